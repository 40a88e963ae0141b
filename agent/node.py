"""The node agent: one per host. Keeps a session with control, and runs the host's workers, attempts and pods.

    run ── load the outbox ── connect ── session ── (broken: wait, jittered) ── connect ── …   until stop()
                                 │                                              └─ refused: AgentRefused
                                 └─ joined: keep the credential, and connect with it at once
    stop ── drains: reports it, takes nothing new ── asks what runs to yield, and waits for it
             ── gives the rest back, uncounted ── stops the workers ── delivers what it can ── saves

Everything that it starts is a task of `run`'s group or a timer that `run` stops: nothing outlives `run`. An
agent that is killed loses what runs, and nothing that was acknowledged or saved; control learns from the next
Hello what is missing. So nothing that must be true afterwards depends on a `finally`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from random import Random
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.agent.alarm import loop_time
from stoker.agent.errors import AgentRefused
from stoker.agent.host.devices.interfaces import Sampler
from stoker.agent.host.devices.watch import DeviceWatch
from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.host.storage.volume_watch import NoVolumes, VolumeFolders, VolumeWatch
from stoker.agent.interfaces import (
    Certificates,
    Inputs,
    NoCertificates,
    Objects,
    OutboxDisk,
    Scratch,
    Spawner,
)
from stoker.agent.jobs.attempts.attempt_context import AttemptContext
from stoker.agent.jobs.attempts.attempt_machine import CANCEL_S
from stoker.agent.jobs.attempts.attempts import Attempts
from stoker.agent.jobs.inputs.fetches import NoInputs
from stoker.agent.jobs.inputs.kept_requests import KeptRequests
from stoker.agent.jobs.reports.reports import Reports
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.agent.link.lease import Lease
from stoker.agent.link.session import Joined, Node, Session, Tunnelling
from stoker.agent.link.source_requests import SourceRequests
from stoker.agent.pods.interfaces import NoPods, PodEngine
from stoker.agent.pods.pods import Marks, MarksInMemory, Pods
from stoker.agent.weights.interfaces import NoWeights, Weights
from stoker.agent.workers.lifecycle import usage
from stoker.agent.workers.lifecycle.metering import Metering
from stoker.agent.workers.lifecycle.process_life import WAITING_MOST
from stoker.agent.workers.lifecycle.process_machine import StopLadder
from stoker.agent.workers.lifecycle.recycling import Measure, nothing_measured
from stoker.agent.workers.lifecycle.worker import Worker
from stoker.agent.workers.lifecycle.worker_context import WorkerContext
from stoker.agent.workers.lifecycle.workers import Workers
from stoker.wire.ids import short_id
from stoker.wire.messages import PROTOCOL, DirectGateway, GatewayAddress, Hello, PodSpec, Usage, WorkerState
from stoker.wire.streams import AgentStream, StreamEnded

log = logging.getLogger(__name__)

RESTART_S = 60.0
"""How long the agent tries at short intervals to reach a control that announced that it stops."""

TAKE_OVER_S = 10.0
"""How long it does so where a session broke: the spare of a control that was killed leads within seconds."""

LEASE_CHECK_S = 1.0
"""The host may have slept meanwhile, which no timer of the loop notices."""

REASONS = 16
"""So many of the last reasons why there is no session are told once: addresses of control take turns."""

OTHERS_S = 2.0
"""How long the end of the agent waits for uploads to buckets of callers, once nothing else runs."""


class AgentSettings(Struct, frozen=True):
    """The settings of an agent. `node` is stable over restarts of the agent. Durations are in seconds.
    `cancel_s` is how long a handler may take to answer a cancel; `grace_s` how long running work may take to
    end once the agent stops. `gateway` and `direct`: how control on this host, and on another one, reaches
    the http workers, if it can."""

    node: str
    name: str
    agent_version: str = "0"
    facts: Mapping[str, str] = field(default_factory=dict)
    gateway: GatewayAddress | None = None
    direct: DirectGateway | None = None
    cancel_s: float = CANCEL_S
    stop_ladder: StopLadder = field(default_factory=StopLadder)
    grace_s: float = 5.0
    deliver_s: float = 2.0
    answer_s: float = 10.0
    reconnect_first_s: float = 0.1
    reconnect_longest_s: float = 10.0
    reconnect_soon_s: float = 0.5


class AgentParts(Struct, frozen=True, kw_only=True):
    """The parts that an agent is made of.

    `connect` opens a stream to control. `boottime` is a clock that goes on while the host sleeps. `wall`
    returns seconds since the epoch, and is used only to date spans of usage. `on_worker` is called with each
    state of a worker that is reported, `on_welcome` when a session begins. `keep_credential` stores what this
    node joins with from then on, and returns whether it could. `proof` returns the credential of a node that
    joins again. `tunnel` holds a tunnel to control open.
    """

    connect: Callable[[], Awaitable[AgentStream]]
    spawner: Spawner
    objects: Objects
    sampler: Sampler
    scratch: Scratch
    outbox_disk: OutboxDisk
    rng: Random
    inputs: Inputs = field(default_factory=NoInputs)
    pods: PodEngine = field(default_factory=NoPods)
    pod_marks: Marks = field(default_factory=MarksInMemory)
    volumes: VolumeFolders = field(default_factory=NoVolumes)
    weights: Weights = field(default_factory=NoWeights)
    sources: SourceFolders
    signing: SigningRequests = field(default_factory=SigningRequests)
    measure: Measure = nothing_measured
    boottime: Callable[[], float] = loop_time
    wall: Callable[[], float] = loop_time
    on_worker: Callable[[WorkerState], None] = lambda state: None
    keep_credential: Callable[[str], bool] = lambda credential: False
    certificates: Certificates = field(default_factory=NoCertificates)
    proof: Callable[[], str] = str
    on_welcome: Callable[[], None] = lambda: None
    disk_facts: Callable[[], Mapping[str, str]] = dict
    tunnel: Tunnelling | None = None
    after_session: Callable[[bool], bool] = lambda welcomed: True
    """Called after each session, or try for one, with whether control welcomed this node and answered to the
    end. Returns whether to wait before the next `connect`."""


class Agent:
    def __init__(self, settings: AgentSettings, parts: AgentParts) -> None:
        self.settings = settings
        self._parts = parts
        self.boot = short_id(parts.rng)
        self.devices = parts.sampler.inventory()
        self._tasks: asyncio.TaskGroup
        self._stop_requested = asyncio.Event()
        self.leaves_because = ""
        self._paused = False
        self._stream: AgentStream | None = None
        self._session: Session | None = None
        self._back_soon = 0.0
        self._silent = False  # the control of the last session answered no more
        self._new_facts: dict[str, str] = {}
        self._beat = 0
        self.lease = Lease()
        self.signing = parts.signing
        self.source_requests = SourceRequests(parts.signing.wake)
        self.kept_requests = KeptRequests(parts.signing.wake)
        self.reports = Reports(parts.outbox_disk, self._on_pressure, parts.signing.wake)
        workers: dict[str, Worker] = {}
        self.watch = DeviceWatch(
            parts.sampler,
            workers,
            lose=lambda worker, why: self.attempts.lose(worker, why),  # noqa: PLW0108  # not there yet
            let_go=lambda worker, why: self.attempts.on_exit(worker, why, True),
        )
        context = AttemptContext(
            self.reports, parts.objects, parts.scratch, parts.inputs, self.kept_requests, self._spawn
        )
        self.attempts = Attempts(context, workers, self.watch, settings.cancel_s)
        self.workers = Workers(workers, self._worker_context())
        self.pods = Pods(parts.pods, parts.pod_marks, self.reports.add, self._pod_metering)
        self.attempts.logs.pods = self.pods.log_of
        self.volumes = VolumeWatch(parts.volumes, self.workers.volumes, self.reports.add)
        self._node = Node(
            workers=self.workers,
            attempts=self.attempts,
            reports=self.reports,
            lease=self.lease,
            watch=self.watch,
            pods=self.pods,
            volumes=self.volumes,
            boottime=parts.boottime,
            next_beat=self._next_beat,
            take_new_facts=self._take_new_facts,
            draining=self._stop_requested.is_set,
            signing=self.signing,
            source_requests=self.source_requests,
            kept_requests=self.kept_requests,
            keep_credential=parts.keep_credential,
            certificates=parts.certificates,
            on_welcome=parts.on_welcome,
            tunnel=parts.tunnel,
        )

    def _worker_context(self) -> WorkerContext[Worker]:
        return WorkerContext(
            spawner=self._parts.spawner,
            devices=self.watch,
            ladder=self.settings.stop_ladder,
            find_device=lambda uuid: next((one for one in self.devices if one.uuid == uuid), None),
            report=self._report_of_worker,
            on_message=self.attempts.on_message,
            on_exit=self.attempts.on_exit,
            on_closed=self.attempts.hand_back,
            on_gone=self._worker_gone,
            paused=lambda: self._paused,
            spawn=self._spawn,
            measure=self._parts.measure,
            weights=self._parts.weights,
            sources=self._parts.sources,
            fetch_source=self.source_requests.fetch,
            boot=self.boot,
            wall=self._parts.wall,
        )

    def _report_of_worker(self, body: WorkerState | Usage) -> None:
        self.reports.add(body)
        if isinstance(body, WorkerState):
            self._parts.on_worker(body)

    def _worker_gone(self, worker: Worker) -> None:
        self.workers.by_name.pop(worker.name, None)
        self._parts.weights.release(worker.name)
        worker.source.release()
        self.attempts.logs.worker_gone(worker.name)
        self.attempts.moved.set()

    def _pod_metering(self, spec: PodSpec) -> Metering:
        """Spans are counted by version: each may have other devices."""
        boot = f"{self.boot}-{spec.version}"
        meter = usage.Meter(spec.pod, boot, "pod", version=spec.version, devices=spec.devices)
        return _PodMetering(meter, self.reports.add, self._parts.wall, self.watch, spec)

    def _on_pressure(self, full: bool) -> None:
        self._paused = full
        self.workers.pause_or_resume()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._tasks.create_task(coroutine, name=name)

    @property
    def connected(self) -> bool:
        """Returns True while there is a session with control."""
        return self._session is not None and self._session.welcomed

    @property
    def leaving(self) -> bool:
        return self._stop_requested.is_set()

    # -- from start to end

    def stop(self) -> None:
        """Lets `run` wind down and return."""
        self._stop_requested.set()
        self.reports.wake.set()  # reported at once

    def leave(self, why: str, within_s: float) -> None:
        """Stops as `stop` does, for this reason. What does not end by itself is given back in time for the
        agent to be gone `within_s` seconds from now. Nothing happens to an agent that stops already."""
        if not self.leaving:
            settings, ladder = self.settings, self.settings.stop_ladder
            ending_s = settings.cancel_s + ladder.term_s + settings.deliver_s + 1.0
            self.settings = replace(settings, grace_s=max(within_s - ending_s, 0.0))
            self.leaves_because = why
            self.stop()

    def learn(self, facts: Mapping[str, str]) -> None:
        """Adds facts about this host. The session is ended, since a Hello reports them; what runs goes on."""
        self.settings = replace(self.settings, facts={**self.settings.facts, **facts})
        if self._stream is not None and not self._stop_requested.is_set():
            self._stream.end("the facts of this host have changed")

    def _note(self, facts: Mapping[str, str]) -> None:
        """Takes new facts: the next beat reports them, and so does every Hello from now on."""
        self._new_facts |= {
            name: value for name, value in facts.items() if self.settings.facts.get(name) != value
        }
        self.settings = replace(self.settings, facts={**self.settings.facts, **facts})

    def _take_new_facts(self) -> Mapping[str, str]:
        self._note(self._parts.disk_facts())
        taken, self._new_facts = self._new_facts, {}
        return taken

    async def run(self) -> None:
        """Runs the agent until `stop`. Raises AgentRefused with control's reason."""
        self.reports.load()
        self._parts.weights.report_to(self._note)
        refused: AgentRefused | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                background = [
                    self._tasks.create_task(self.watch.run(), name="devices"),
                    self._tasks.create_task(self.pods.run(), name="pods"),
                    self._tasks.create_task(self.volumes.run(), name="volumes"),
                    self._tasks.create_task(self._parts.weights.run(), name="weights"),
                    self._tasks.create_task(self._sessions(), name="sessions"),
                    self._tasks.create_task(self._watch_lease(), name="lease"),
                ]
                await self._stop_requested.wait()
                await self._wind_down()
                for task in background:
                    task.cancel()
        except* AgentRefused as group:
            refused = next(error for error in group.exceptions if isinstance(error, AgentRefused))
            self.reports.save()
        finally:
            self._discard()
            await self._parts.spawner.close()
            self._discard()
        if refused is not None:
            raise refused

    async def _wind_down(self) -> None:
        """Takes nothing new, waits for what runs, stops the workers, and delivers the reports."""
        settings, why = self.settings, "the agent is shutting down"
        self.attempts.closed = why
        self.reports.save()
        self.workers.drain_all(why)
        self.attempts.ask_all_to_yield(self.leaves_because or f"node {settings.name} is about to leave")
        await self._settled(lambda: not self.attempts.holds_exit(), settings.grace_s)
        await self._settled(lambda: not self.attempts.held(), min(settings.grace_s, OTHERS_S))
        self.attempts.stop_all(why)
        ladder = settings.stop_ladder
        await self._settled(lambda: not self.attempts.held(), settings.cancel_s + ladder.term_s + 1.0)
        self.workers.stop_all(why)
        await self._settled(lambda: not self.workers.by_name, ladder.stop_s + ladder.term_s + 1.0)
        await self._settled(lambda: self.reports.empty, settings.deliver_s)
        self.reports.save()

    async def _settled(self, done: Callable[[], bool], within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not done():
                    self.attempts.moved.clear()
                    await self.attempts.moved.wait()

    def _discard(self) -> None:
        self.workers.discard()
        self.attempts.discard()
        self.pods.discard()
        self.reports.close()

    # -- the connection

    async def _sessions(self) -> None:
        await self.watch.looked.wait()  # the first Hello reports unhealthy devices
        with suppress(TimeoutError):  # and of the pods and weights, unless their engine or disk hangs
            async with asyncio.timeout(self.settings.answer_s):
                await self.pods.looked.wait()
                await self._parts.weights.looked.wait()
        failures, joined = 0, False
        told: deque[str] = deque(maxlen=REASONS)
        while True:
            try:
                welcomed, reason = await self._one_session()
            except Joined as end:
                if not joined:
                    # At once: until it was used, any holder of the join token may act as this node.
                    joined = True
                    log.info("%s", end)
                    continue
                welcomed, reason = False, "control gave a second credential, and no session"
            if welcomed:
                told.clear()
            level = logging.DEBUG if reason in told else logging.INFO
            told.append(reason)
            if not self._parts.after_session(welcomed and not self._silent):
                log.log(level, "not connected: %s; trying the next address of control", reason)
                continue
            failures = 0 if welcomed else failures + 1
            wait = self._back_off(failures, soon=asyncio.get_running_loop().time() < self._back_soon)
            log.log(level, "not connected: %s; trying again in %.1f s", reason, wait)
            await asyncio.sleep(wait)

    async def _one_session(self) -> tuple[bool, str]:
        """Returns whether control welcomed this node, and why the session ended; raises Joined."""
        session: Session | None = None
        try:
            async with asyncio.timeout(self.settings.answer_s):
                stream = self._stream = await self._parts.connect()
            session = self._session = Session(self._node, stream, self.settings.answer_s)
            await session.run(self._hello())
        except (StreamEnded, OSError) as error:
            # TimeoutError is an OSError
            self._silent = session is not None and session.control_silent
            if session is not None and (session.welcomed or session.control_stops):
                soon_s = RESTART_S if session.control_stops else TAKE_OVER_S
                self._back_soon = asyncio.get_running_loop().time() + soon_s
            return session is not None and session.welcomed, str(error) or "no connection in time"
        finally:
            self._stream = self._session = None

    def _back_off(self, failures: int, *, soon: bool = False) -> float:
        """Returns the pause before the next connection: exponential, with jitter, since all nodes lose the
        same control plane at once. `soon`: control said that it stops, or has just ended, and it
        or its spare is likely to be there in a moment."""
        wanted = self.settings.reconnect_first_s * 2.0 ** min(failures, 16)
        longest = self.settings.reconnect_soon_s if soon else self.settings.reconnect_longest_s
        return min(wanted, longest) * self._parts.rng.uniform(0.5, 1.0)

    def _hello(self) -> Hello:
        self._take_new_facts()  # all of them are in it
        node, name, version = self.settings.node, self.settings.name, self.settings.agent_version
        hello = Hello(PROTOCOL, node, name, self.boot, version, self.devices, self.settings.facts)
        return replace(
            hello,
            gateway=self.settings.gateway,
            direct=self.settings.direct,
            tunnels=self._parts.tunnel is not None,
            jobs_ahead=WAITING_MOST,
            saves=True,
            yields=True,
            credential=self._parts.proof(),
        )

    def _next_beat(self) -> int:
        self._beat += 1
        return self._beat

    async def _watch_lease(self) -> None:
        """Stops the work of an agent that is cut off for longer than its lease."""
        over = False
        while True:
            left = self.lease.left(self._parts.boottime())
            if left is not None and left <= 0 and not over:
                log.warning("the lease is over: what runs here is stopped")
                self.attempts.lease_lost()
            over = left is not None and left <= 0
            await asyncio.sleep(LEASE_CHECK_S if left is None or left <= 0 else min(left, LEASE_CHECK_S))


class _PodMetering(Metering):
    """Tells the devices of a pod, too, so that the memory that it uses counts as used."""

    def __init__(
        self,
        meter: usage.Meter,
        report: Callable[[Usage], object],
        wall: Callable[[], float],
        devices: DeviceWatch[Worker],
        spec: PodSpec,
    ) -> None:
        super().__init__(meter, report, wall)
        self._devices, self._spec = devices, spec

    def began(self) -> None:
        super().began()
        self._devices.started(self._spec.pod, self._spec.devices)

    def ended(self) -> None:
        super().ended()
        self._devices.ended(self._spec.pod, self._spec.devices)
