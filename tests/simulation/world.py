"""A whole service in one process on virtual time: control, agents, workers, callers, and all that breaks.

The shells are the real ones; only the seams are simulated. A control process shares its database and
object store with the one after it, an agent its outbox file with its next start; all else dies.
The story and the faults draw from the seed what happens; this class makes it possible, the witness watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from stoker.agent.errors import AgentRefused
from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.jobs.reports import outbox_file
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.agent.node import Agent, AgentParts, AgentSettings
from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import ControlError
from stoker.control.nodes.joining import revoke
from stoker.control.plane import Plane
from stoker.control.rules.queueing import ahead
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.store.resources.keys import create_join_token
from stoker.testing.fake_host import FakeSampler, MemoryScratch
from stoker.testing.fake_spawner import Start
from stoker.testing.fake_weights import FakeWeights
from stoker.testing.memory_disk import MemoryDisk
from stoker.wire.messages import AttemptKey, Device, Outcome
from stoker.wire.streams import AgentStream, StreamEnded
from tests.simulation.ledger import PIECE_PRICE, PRICES
from tests.simulation.memory_store import memory_store
from tests.simulation.network import Network
from tests.simulation.receivers import Receivers
from tests.simulation.storage import Disk, Shop, SimArtifacts, SimCommitter, SimObjects
from tests.simulation.virtual_loop import Process, VirtualLoop
from tests.simulation.witness import HostWatch, Witness
from tests.simulation.workshop import SimSpawner

T = TypeVar("T")
EPOCH = 1_700_000_000.0
RESTART_S = 5.0
"""Whoever watches over agents starts one that was refused again after this."""

STOP_S = 5.0
"""A control that has not stopped by then is killed."""

UNSAVED_S = 2.5
PATIENCE_S = 60.0
"""A call is answered within its own wait and this, while control runs."""

SMALL = {"SPILL_BYTES": 700, "OUTPUT_MAX": 500, "HOLD_MAX": 2000, "SAVE_INLINE_MAX": 300}
"""Payloads go through the object store from these sizes on: megabytes would teach no more."""


AHEAD_MOST = 8
"""Jobs ahead of one worker."""


class Broken(Exception):
    """The caller's connection to control broke before there was an answer."""


@dataclass
class Host:
    """What of an agent's machine outlives its process. `node` is the id that it gives itself."""

    name: str
    node: str
    disk: MemoryDisk = field(default_factory=MemoryDisk)
    process: Process | None = None
    spawner: SimSpawner | None = None
    agent: Agent | None = None
    scratch: MemoryScratch | None = None
    weights: set[str] = field(default_factory=set)
    """The keys of those on its disk."""
    wanted: bool = False
    credential: str = ""
    token: str = ""
    """A join token made for this host alone; none: the one of all hosts."""

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.dead

    @property
    def spawner_jobs(self) -> int:
        return sum(len(process._jobs) for process in self.spawner.processes) if self.spawner else 0


def shrink() -> None:
    """Puts the small limits in the place of the large ones, wherever they are named."""
    ahead.MOST = AHEAD_MOST
    for name, module in list(sys.modules.items()):
        if name.startswith("stoker."):
            for limit, size in SMALL.items():
                if hasattr(module, limit):
                    setattr(module, limit, size)


ACTED_BY_S = 3.0
"""No longer than this after it read the clock, control does what it decided by it, with a slow store, too."""


class World:
    def __init__(self, seed: int, loop: VirtualLoop, nodes: int = 3) -> None:
        self.seed = seed
        self.loop = loop
        self.rng = Random(seed * 7919 + 1)
        self.weights_rng = Random(seed * 43 + 6)
        self.jumped = 0.0
        self.set_back = (-ACTED_BY_S, 0.0)  # when, and by how much
        self.store = memory_store()
        self.witness = Witness(loop, self.clock, self.latest_reading, self.store.writer)
        self.witness.read_object = self._read_object  # type: ignore[method-assign]
        self.witness.held_by = self._held_by  # type: ignore[method-assign]
        self.shop = Shop(Random(seed * 31 + 3))
        self.receivers = Receivers(Random(seed * 41 + 5), self.witness)
        self.crashes = 0
        self.was_full = False
        self.full_disks: set[str] = set()
        self.ask: Callable[..., None] = lambda *_: None
        """One more caller, now, with such a plan and, if need be, timeout; the story sets it."""
        self.rough = 0
        self.rough_until = 0.0
        self.disk = Disk(Random(seed * 37 + 4))
        self.network = Network(loop, Random(seed * 104_729 + 2))
        self._listen()
        self.hosts: list[Host] = []
        self.agents: list[Agent] = []
        self.spawners: list[SimSpawner] = []
        for n in range(nodes):
            self.add_host(f"node-{n}", f"node-{n}")
        self.starts: dict[str, Start] = {}
        self.starts_on: dict[str, Start] = {}
        """The way in which all workers start on a host, where that is not their endpoint's."""
        self.endpoints: list[Endpoint] = []
        self.control: Process | None = None
        self.plane: Plane | None = None
        self.token = ""
        self.kill_before_commit = 0.0
        self.kill_after_commit = 0.0
        self.control_may_start_at = 0.0
        self.thawed_at = 0.0
        self.died = asyncio.Event()
        self.context = copy_context()

    def _listen(self) -> None:
        network, witness = self.network, self.witness
        network.on_sent_up, network.on_sent_down = witness.sent_up, witness.sent_down
        network.on_received, network.on_poisoned = witness.was_sent, witness.was_poisoned

    def _read_object(self, key: str) -> bytes:
        return self.shop.blobs["stoker", key]

    def _held_by(self, host: str) -> set[AttemptKey]:
        """The attempts that the agent of this host has not brought to their end. Of two clones of one host,
        the agent of the later one says Hello."""
        *_, agent = (one.agent for one in self.hosts if one.name == host)
        assert agent is not None
        attempts = agent.attempts._attempts.items()
        return {key for key, one in attempts if type(one.state).__name__ not in ("Reporting", "Over")}

    def smooth_since(self) -> float:
        """Since when neither control nor what it stores in has been slow."""
        return self.loop.time() if self.rough else self.rough_until

    def clock(self) -> float:
        """The wall clock."""
        return EPOCH + self.loop.time() + self.jumped

    def jump(self, by: float) -> None:
        """The wall clock is set forward, or back."""
        self.jumped += by
        if by < 0:
            self.set_back = (self.loop.time(), -by)

    def latest_reading(self) -> float:
        """The latest time by which something may be done now: what was read before the clock was set back is
        still used for a moment."""
        at, by = self.set_back
        return self.clock() + (by if self.loop.time() < at + ACTED_BY_S else 0.0)

    def close(self) -> None:
        for agent in self.agents:
            agent.attempts.discard()
            agent.workers.discard()
        for spawner in self.spawners:
            spawner.close_files()
        self.store.close()

    # -- control

    def add_endpoint(self, name: str, **fields: Any) -> None:
        concurrency, max_jobs = fields.pop("concurrency", 1), fields.pop("max_jobs", None)
        weights = fields.pop("weights", ())
        more = {"concurrency": concurrency, "max_jobs": max_jobs, "weights": weights}
        run = EndpointVersion("/h.py:handler", prices=(PIECE_PRICE,), **more)
        self.endpoints.append(Endpoint(name, "default", name, 1, run, **fields))

    async def start_control(self) -> None:
        """Until it is started: one that is killed while it starts is started again."""
        while self.plane is None:
            await asyncio.sleep(max(self.control_may_start_at - self.loop.time(), 0.0))
            if self.control is None or self.control.dead:
                self._boot_control()
            await asyncio.sleep(0.05)

    def _boot_control(self) -> None:
        process = self.control = Process("control")
        self.died = asyncio.Event()
        self.witness.note("control starts")
        commits = SimCommitter(
            self.store.writer,
            self.disk,
            settled=self.witness.settled,
            before=lambda: self._dies(process, self.kill_before_commit),
            after=lambda: self._dies(process, self.kill_after_commit),
        )

        async def main() -> None:
            if not self.token:
                _, self.token = await commits.commit(lambda c: create_join_token(c, name="sim", now=0.0))
            plane = self.make_plane(commits)
            try:
                await plane.start(self.endpoints)
            except ControlError:
                return self._control_failed(process)  # the store is full: whoever watches it starts it again
            self.plane = plane
            await plane.run()

        self._watch(self.loop.start(process, main()), process)

    def make_plane(self, commits: SimCommitter) -> Plane:
        rng, settings = Random(self.rng.random()), PlaneSettings(price_list=PRICES)
        return Plane(settings, commits, SimArtifacts(self.shop), self.clock, rng, self.receivers.post)

    def _control_failed(self, process: Process) -> None:
        self.control_may_start_at = self.loop.time() + 1.0
        self.context.copy().run(self.kill_control)

    def _watch(self, task: asyncio.Task[Any], process: Process) -> None:
        """Nobody's main task may end by an error of its own."""

        def over(task: asyncio.Task[Any]) -> None:
            if process.dead or task.cancelled() or self.loop.over:
                return
            error = task.exception()
            if error is not None and not isinstance(error, AgentRefused):
                self.witness.fail(f"{process.name} ended with {error!r}")

        task.add_done_callback(over)

    def _dies(self, process: Process, chance: float) -> bool:
        if not process.dead and chance and self.rng.random() < chance:
            self.kill_control(after_s=self.rng.choice([0.1, 0.5, 3.0]))
        return process.dead

    def kill_control(self, *, after_s: float = 0.5, quietly: bool = False) -> None:
        """`quietly`: its host lost its power, and no connection was closed."""
        if self.control is None or self.control.dead:
            return
        self.witness.note("control is killed")
        self.crashes += 1
        self.loop.kill(self.control)
        self.plane = None
        self.died.set()
        self.control_may_start_at = max(self.control_may_start_at, self.loop.time() + after_s)
        for host in list(self.network.links):
            self.network.sever(host, *(() if quietly else ("agent",)))
        self.loop.create_task(self.start_control(), context=self.context.copy())

    async def stop_control(self, after_s: float) -> None:
        """As for an update: it says goodbye, and the next process starts `after_s` later."""
        process, plane = self.control, self.plane
        if process is None or process.dead or plane is None:
            return
        self.witness.note("control is stopped")
        await asyncio.wait([self.loop.start(process, plane.stop())], timeout=STOP_S)
        if process is self.control:
            self.kill_control(after_s=after_s)

    async def freeze_control(self, seconds: float) -> None:
        process = self.control
        if process is None or process.dead:
            return
        self.witness.note("control is frozen for {} s", seconds)
        self.thawed_at = max(self.thawed_at, self.loop.time() + seconds)
        self.loop.freeze(process)
        await asyncio.sleep(seconds)
        self.loop.thaw(process)
        self.rough_until = self.loop.time()
        for host in self.hosts:
            self.witness.unwell(host.name)

    # -- agents

    def add_host(self, name: str, node: str) -> Host:
        """A clone has the credential that lies on the disk of the first with its node id."""
        host = Host(name, node)
        copied = [other.credential for other in self.hosts if other.node == node]
        host.credential = copied[0] if copied else ""
        self.hosts.append(host)
        self.witness.hosts[name] = HostWatch()
        return host

    def start_agent(self, host: Host) -> None:
        host.wanted = True
        if host.up:
            return
        self.witness.note("{} starts", host.name)
        process = host.process = Process(host.name)
        if self.weights_rng.random() < 0.2:
            host.weights.clear()  # an operator cleaned up
        spawner = host.spawner = SimSpawner(
            host.name,
            self.witness,
            self.loop,
            lambda endpoint: self.starts_on.get(host.name) or self.starts.get(endpoint, Start()),
            host.weights,
        )
        weights = FakeWeights(self.weights_rng.choice([0.1, 5.0]), held=host.weights)
        if self.weights_rng.random() < 0.3:
            weights.failures.append(f"node {host.name} cannot get the weights")
        host.scratch = MemoryScratch()
        signing = SigningRequests()
        parts = AgentParts(
            sources=SourceFolders(Path("/nowhere")),
            connect=self._connector(host),
            spawner=spawner,
            objects=SimObjects(self.shop, signing),
            signing=signing,
            sampler=FakeSampler((Device(f"GPU-{host.name}", "gpu", "simulated"),)),
            scratch=host.scratch,
            weights=weights,
            outbox_disk=host.disk,
            rng=Random(self.rng.random()),
            wall=self.clock,
            keep_credential=lambda credential: self._keeps(host, credential),
        )
        agent = host.agent = Agent(AgentSettings(node=host.node, name=host.name), parts)
        self.agents.append(agent)
        self.spawners.append(spawner)
        task = self.loop.start(process, self._life(host, agent, process))
        self._watch(task, process)
        self.loop.start(process, self._check_loaded(host, _on_disk(host.disk)))

    def _keeps(self, host: Host, credential: str) -> bool:
        if host.disk.full:
            return False
        host.credential = credential
        return True

    async def _life(self, host: Host, agent: Agent, process: Process) -> None:
        try:
            await agent.run()
        except AgentRefused as refused:
            self.witness.note("{} is refused: {}", host.name, refused)
            if "credential" in str(refused) or "make another" in str(refused):
                self._let_in_again(host)
        self.context.copy().run(self._left, host, process)

    def _let_in_again(self, host: Host) -> None:
        """The operator does what the refusal says, when no copy of this host is up. If control dies before it
        has made a token, the next refusal asks for another one."""
        copies = [other for other in self.hosts if other.node == host.node and other is not host]
        if self.plane is None or self.control is None or any(copy.up for copy in copies):
            return
        commits = self.plane._commits

        async def main() -> None:
            await commits.commit(lambda conn: revoke(conn, host.node, self.clock()))
            await asyncio.sleep(0.01)  # a token of that very moment would count as an older one
            _, token = await commits.commit(
                lambda conn: create_join_token(conn, name=host.name, now=self.clock())
            )
            host.credential, host.token = "", token
            self.witness.note("{} may join again", host.name)

        self.loop.start(self.control, main())

    def _left(self, host: Host, process: Process) -> None:
        """Its process ended by itself; whoever watches over it starts it again, if it is wanted."""
        self.witness.note("{} has ended", host.name)
        process.dead = True
        kept = _on_disk(host.disk)
        self._check_outbox(host, kept, 0.0)
        self.witness.lost_with(host.name, kept)
        self.loop.call_later(RESTART_S, lambda: host.wanted and self.start_agent(host), context=self.context)

    def kill_agent(self, host: Host, *, quietly: bool = False) -> None:
        """`quietly`: the host lost its power, and control does not learn of it."""
        host.wanted = False
        if not host.up:
            return
        assert host.process is not None
        assert host.spawner is not None
        self.witness.note("{} is killed", host.name)
        self.loop.kill(host.process)
        host.spawner.vanish()
        self.network.sever(host.name, *(() if quietly else ("control",)))
        kept = _on_disk(host.disk)
        self._check_outbox(host, kept, UNSAVED_S)
        self.witness.lost_with(host.name, kept)

    def _check_outbox(self, host: Host, kept: set[AttemptKey], unsaved_s: float) -> None:
        """A result that nobody acknowledged for a while is on the disk."""
        assert host.agent is not None
        for item in host.agent.reports._box.items:
            body, waited = item.body, self.loop.time() - item.at
            if not isinstance(body, Outcome) or body.end != "completed" or host.name in self.full_disks:
                continue
            if waited >= unsaved_s and AttemptKey(body.job, body.attempt) not in kept:
                self.witness.fail(
                    f"{host.name} died with an outcome {waited:.1f} s old and not on its disk: {body}"
                )

    async def _check_loaded(self, host: Host, kept: set[AttemptKey]) -> None:
        """What was on the disk is to be delivered."""
        await asyncio.sleep(0.0001)
        if host.up and host.agent is not None:
            waiting = {held.key for held in host.agent.reports.reporting()}
            if not kept <= waiting:
                self.witness.fail(f"{host.name} had {kept} on its disk, and {waiting} in its outbox")

    def _connector(self, host: Host) -> Callable[[], Coroutine[Any, Any, AgentStream]]:
        async def connect() -> AgentStream:
            await asyncio.sleep(0.0005 + self.network.rng.random() * 0.004)
            if self.plane is None or self.control is None or self.network.silent(host.name):
                raise StreamEnded("nobody answers")
            link = self.network.join(host.name)
            brought = host.credential or host.token or self.token
            self.loop.start(self.control, self.plane.nodes.serve(link.control, host.name, brought))
            return link.agent

        return connect

    # -- callers

    async def call(self, ask: Callable[[Plane], Coroutine[Any, Any, T]], wait_s: float = 0.0) -> T:
        """One request: it runs in the control process and breaks with it. It is answered, or all is over."""
        if self.plane is None or self.control is None:
            raise Broken
        task = self.loop.start(self.control, ask(self.plane))
        died = asyncio.ensure_future(self.died.wait())
        began = self.loop.time()
        try:
            while not task.done() and not died.done():
                limit = max(began + wait_s, self.thawed_at) + PATIENCE_S
                if self.loop.time() >= limit:
                    self.witness.fail(f"a call that waits {wait_s:g} s had no answer: {task}")
                late = max(limit - self.loop.time(), 0.01)
                await asyncio.wait([task, died], timeout=late, return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
        if not task.done():
            raise Broken
        return task.result()


def _on_disk(disk: MemoryDisk) -> set[AttemptKey]:
    data = disk.load()
    bodies: list[Any] = []
    with contextlib.suppress(ValueError, KeyError, TypeError):
        bodies = outbox_file.decode(data) if data else []
    return {AttemptKey(body.job, body.attempt) for body in bodies if isinstance(body, Outcome)}
