"""The node agent: one per host. Keeps a session with control, and the host's workers and attempts running.

    run ── load the outbox ── connect ── session ── (broken: wait, jittered) ── connect ── …   until stop()
                                                                                └─ refused: AgentRefused
    stop ── drains: says so, takes nothing new ── grace for what runs ── hands the rest back, uncounted
             ── stops the workers ── delivers what it can ── saves

Everything it starts is a task of `run`'s group or a timer that `run` silences: nothing outlives `run`. No
truth lies in a `finally`: an agent that is killed instead loses what runs, and nothing that was acknowledged
or saved. Control learns from the next Hello what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from stoker.agent import usage
from stoker.agent.attempt import Ladder
from stoker.agent.attempts import Attempts
from stoker.agent.device_watch import DeviceWatch, Occupants
from stoker.agent.input_fetches import NoInputs
from stoker.agent.lease import Lease
from stoker.agent.metering import Metering
from stoker.agent.pod_seam import NoPods, PodEngine
from stoker.agent.pods import Marks, MarksInMemory, Pods
from stoker.agent.process import StopLadder
from stoker.agent.reports import Reports
from stoker.agent.seams import AgentRefused, Inputs, Objects, OutboxDisk, Sampler, Scratch, Spawner
from stoker.agent.session import Node, Session
from stoker.agent.volume_watch import NoVolumes, VolumeFolders, VolumeWatch
from stoker.agent.worker_wear import Measure, nothing_measured
from stoker.agent.workers import Worker, WorkerContext, Workers
from stoker.wire.messages import PROTOCOL, Device, Hello, PodSpec, Usage
from stoker.wire.names import short_id
from stoker.wire.streams import AgentStream, StreamEnded
from stoker.worker.frames import Frame

log = logging.getLogger(__name__)

RESTART_S = 60.0
"""How long a control that said goodbye is looked for often."""

LEASE_LOOK_S = 1.0
"""The host may have slept meanwhile, which no timer of the loop notices."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`node` is stable over restarts of the agent. Durations in seconds; `grace_s` is what running work gets
    to end by itself once the agent was told to stop."""

    node: str
    name: str
    join_token: str = field(repr=False)
    agent_version: str = "0"
    facts: Mapping[str, str] = field(default_factory=dict)
    ladder: Ladder = field(default_factory=Ladder)
    stop_ladder: StopLadder = field(default_factory=StopLadder)
    grace_s: float = 5.0
    deliver_s: float = 2.0
    answer_s: float = 10.0
    reconnect_first_s: float = 0.1
    reconnect_longest_s: float = 10.0
    reconnect_soon_s: float = 0.5


class Agent:
    """`boottime` goes on while the host sleeps; the loop's time by default. `wall`, seconds since the epoch,
    says where on the calendar a span of usage began, and nothing else: what is waited for are durations."""

    def __init__(
        self,
        settings: AgentSettings,
        connect: Callable[[], Awaitable[AgentStream]],
        spawner: Spawner,
        objects: Objects,
        sampler: Sampler,
        scratch: Scratch,
        outbox_disk: OutboxDisk,
        rng: Random,
        boottime: Callable[[], float] | None = None,
        measure: Measure = nothing_measured,
        inputs: Inputs | None = None,
        wall: Callable[[], float] | None = None,
        pods: PodEngine | None = None,
        pod_marks: Marks | None = None,
        volumes: VolumeFolders | None = None,
    ) -> None:
        self.settings = settings
        self.boot = short_id(rng)
        self.devices = sampler.inventory()
        self._connect = connect
        self._spawner = spawner
        self._measure = measure
        self._rng = rng
        self._boottime = boottime or (lambda: asyncio.get_running_loop().time())
        self._wall = wall or (lambda: asyncio.get_running_loop().time())
        self._tasks: asyncio.TaskGroup
        self._stop_asked = asyncio.Event()
        self._paused = False
        self._stream: AgentStream | None = None
        self._back_soon = 0.0
        self._beat = 0
        self.lease = Lease()
        self.reports = Reports(outbox_disk, self._pressure)
        self.watch = DeviceWatch(sampler, self._occupants())
        self.workers = Workers(self._worker_context())
        self.attempts = Attempts(
            self.reports,
            objects,
            scratch,
            self.workers.get,
            self._spawn,
            settings.ladder,
            self.watch,
            inputs or NoInputs(),
        )
        marks = MarksInMemory() if pod_marks is None else pod_marks
        self.pods = Pods(pods or NoPods(), marks, self.reports.add, self._pod_meter)
        self.volumes = VolumeWatch(volumes or NoVolumes(), self.workers.volumes, self.reports.add)
        self._node = self._for_sessions()

    def _for_sessions(self) -> Node:
        return Node(
            self.workers,
            self.attempts,
            self.reports,
            self.lease,
            self.watch,
            self.pods,
            self.volumes,
            self._boottime,
            self._next_beat,
            self._stop_asked.is_set,
        )

    def _pod_meter(self, spec: PodSpec) -> Metering:
        """Spans are counted by version: each may have other devices."""
        boot = f"{self.boot}-{spec.version}"
        meter = usage.Meter(spec.pod, boot, "pod", version=spec.version, devices=spec.devices)
        return _OnDevices(meter, self.reports.add, self._wall, self.watch, spec)

    def _occupants(self) -> Occupants[Worker]:
        return Occupants(
            lambda uuid: self.workers.on_device(uuid),  # noqa: PLW0108  # neither is there yet
            lambda worker, why: self.attempts.lose(worker, why),  # noqa: PLW0108
            lambda worker, why: self.attempts.gone(worker, why, True),
        )

    def _worker_context(self) -> WorkerContext:
        return WorkerContext(
            spawner=self._spawner,
            devices=self.watch,
            ladder=self.settings.stop_ladder,
            device=self._device,
            report=self.reports.add,
            frame=self._frame,
            gone=self._process_gone,
            left=self._worker_left,
            paused=lambda: self._paused,
            spawn=self._spawn,
            measure=self._measure,
            boot=self.boot,
            wall=self._wall,
        )

    # -- from start to end

    def stop(self) -> None:
        """SIGTERM: `run` winds down and returns."""
        self._stop_asked.set()
        self.reports.wake.set()  # control is to hear of it now

    def learn(self, facts: Mapping[str, str]) -> None:
        """What is new about this host. A Hello tells it: what runs outlives the session that ends for it."""
        self.settings = replace(self.settings, facts={**self.settings.facts, **facts})
        if self._stream is not None and not self._stop_asked.is_set():
            self._stream.end("there is news of this host")

    async def run(self) -> None:
        """Until `stop`, or raises AgentRefused with control's sentence."""
        self.reports.load()
        refused: AgentRefused | None = None
        try:
            async with asyncio.TaskGroup() as self._tasks:
                background = [
                    self._tasks.create_task(self.watch.run(), name="devices"),
                    self._tasks.create_task(self.pods.run(), name="pods"),
                    self._tasks.create_task(self.volumes.run(), name="volumes"),
                    self._tasks.create_task(self._sessions(), name="sessions"),
                    self._tasks.create_task(self._watch_lease(), name="lease"),
                ]
                await self._stop_asked.wait()
                await self._wind_down()
                for task in background:
                    task.cancel()
        except* AgentRefused as group:
            refused = next(error for error in group.exceptions if isinstance(error, AgentRefused))
            self.reports.save()
        finally:
            self._silence()
            await self._spawner.close()
            self._silence()
        if refused is not None:
            raise refused

    async def _wind_down(self) -> None:
        """Takes nothing new; what runs gets its grace; then its worker is stopped, by force in the end."""
        settings, why = self.settings, "the agent is shutting down"
        self.attempts.closed = why
        self.reports.save()
        self.workers.drain_all(why)
        await self._settled(lambda: not self.attempts.held(), settings.grace_s)
        self.attempts.stop_all(why)
        patience = settings.ladder.cooperative_s + settings.ladder.term_s
        await self._settled(lambda: not self.attempts.held(), patience + 1.0)
        self.workers.stop_all(why)
        patience = settings.stop_ladder.stop_s + settings.stop_ladder.term_s
        await self._settled(lambda: not len(self.workers), patience + 1.0)
        await self._settled(lambda: self.reports.empty, settings.deliver_s)
        self.reports.save()

    async def _settled(self, done: Callable[[], bool], within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not done():
                    self.attempts.moved.clear()
                    await self.attempts.moved.wait()

    def _silence(self) -> None:
        self.workers.discard()
        self.attempts.discard()
        self.pods.discard()
        self.reports.close()

    # -- the connection

    async def _sessions(self) -> None:
        await self.watch.looked.wait()  # the first Hello tells of a device that is ill
        with suppress(TimeoutError):  # and of the pods, unless their engine hangs
            async with asyncio.timeout(self.settings.answer_s):
                await self.pods.looked.wait()
        failures = 0
        while True:
            welcomed, reason = await self._one_session()
            failures = 0 if welcomed else failures + 1
            wait = self._back_off(failures, soon=asyncio.get_running_loop().time() < self._back_soon)
            log.info("not connected: %s; trying again in %.1f s", reason, wait)
            await asyncio.sleep(wait)

    async def _one_session(self) -> tuple[bool, str]:
        """Returns whether control took this node in, and why it is over."""
        session: Session | None = None
        try:
            async with asyncio.timeout(self.settings.answer_s):
                stream = self._stream = await self._connect()
            session = Session(self._node, stream, self.settings.answer_s)
            await session.run(self._hello())
        except (StreamEnded, OSError) as error:
            # TimeoutError is an OSError
            if session is not None and session.control_stops:
                self._back_soon = asyncio.get_running_loop().time() + RESTART_S
            return session is not None and session.welcomed, str(error) or "no connection in time"
        finally:
            self._stream = None

    def _back_off(self, failures: int, *, soon: bool = False) -> float:
        """Exponential, and never the same for two nodes: they all lose the same control plane at once.
        `soon`: control said that it goes, and who goes so is back in a moment."""
        wanted = self.settings.reconnect_first_s * 2.0 ** min(failures, 16)
        longest = self.settings.reconnect_soon_s if soon else self.settings.reconnect_longest_s
        return min(wanted, longest) * self._rng.uniform(0.5, 1.0)

    def _hello(self) -> Hello:
        settings = self.settings
        return Hello(
            PROTOCOL,
            settings.join_token,
            settings.node,
            settings.name,
            self.boot,
            settings.agent_version,
            self.devices,
            settings.facts,
        )

    def _next_beat(self) -> int:
        self._beat += 1
        return self._beat

    async def _watch_lease(self) -> None:
        """An agent that is cut off for longer than its lease stops its own work."""
        over = False
        while True:
            left = self.lease.left(self._boottime())
            if left is not None and left <= 0 and not over:
                log.warning("the lease is over: what runs here is stopped")
                self.attempts.lease_lost()
            over = left is not None and left <= 0
            await asyncio.sleep(LEASE_LOOK_S if left is None or left <= 0 else min(left, LEASE_LOOK_S))

    # -- between the parts

    def _device(self, uuid: str) -> Device | None:
        return next((device for device in self.devices if device.uuid == uuid), None)

    def _frame(self, worker: Worker, frame: Frame) -> None:
        self.attempts.frame(worker, frame)

    def _process_gone(self, worker: Worker, why: str, planned: bool) -> None:
        self.attempts.gone(worker, why, planned)

    def _worker_left(self, worker: Worker) -> None:
        self.workers.forget(worker)
        self.attempts.moved.set()

    def _pressure(self, full: bool) -> None:
        self._paused = full
        self.workers.pause_or_resume()

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._tasks.create_task(coroutine, name=name)


class _OnDevices(Metering):
    """Of a pod. Its devices are told, too: what it holds of their memory is nobody's leftover."""

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
