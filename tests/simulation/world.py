"""A whole fleet in one process on virtual time: one control plane, agents, workers, callers, and what breaks.

The shells are the real ones; only the seams are simulated. A control process shares its store and object
store with the one after it, an agent its outbox file; everything else dies with the process. The network
between an agent and control can break (both ends learn of it) or fall silent (nobody does).

An invariant is checked at every commit: a job that has ended never changes again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from virtual_loop import Process, VirtualLoop

from stoker.agent.fake_host import FakeSampler, MemoryScratch
from stoker.agent.fake_objects import FakeObjects
from stoker.agent.fake_spawner import FakeSpawner
from stoker.agent.node import Agent, AgentSettings
from stoker.agent.outbox_disk import MemoryDisk
from stoker.control.artifacts import MemoryArtifacts
from stoker.control.commit import InlineCommitter
from stoker.control.keys import create_join_token
from stoker.control.plane import Plane
from stoker.control.settings import PlaneSettings
from stoker.control.store import open_store
from stoker.control.types import TERMINAL, Endpoint, EndpointVersion, JobView, Submission
from stoker.wire.messages import Device
from stoker.wire.streams import AgentStream, MemoryStream, StreamEnded

T = TypeVar("T")
GPU = Device("GPU-0", "gpu", "simulated")
EPOCH = 1_700_000_000.0


class Broken(Exception):
    """The caller's connection to control broke before there was an answer."""


class Wire(MemoryStream[Any, Any]):
    """One end of a connection over a network that takes its time, and may fall silent."""

    network: Network
    node: str

    async def send(self, message: Any) -> None:
        if self._ended is not None:
            raise StreamEnded(self._ended)
        self.network.loop.call_at(self.network.arrival(self.node), self._arrive, message)

    def _arrive(self, message: Any) -> None:
        if self.peer._ended is None:
            self.peer._inbox.put_nowait(message)


@dataclass
class Network:
    loop: VirtualLoop
    rng: Random
    silent_until: dict[str, float] = field(default_factory=dict)
    links: dict[str, tuple[Wire, Wire]] = field(default_factory=dict)
    _arrivals: dict[str, float] = field(default_factory=dict)

    def silent(self, node: str) -> bool:
        return self.loop.time() < self.silent_until.get(node, 0.0)

    def arrival(self, node: str) -> float:
        """When a message sent now arrives: after a silence, as TCP sends again; none overtakes another."""
        earliest = max(self.loop.time(), self.silent_until.get(node, 0.0)) + self.rng.uniform(0.0001, 0.003)
        self._arrivals[node] = max(self._arrivals.get(node, 0.0) + 1e-6, earliest)
        return self._arrivals[node]

    def join(self, node: str) -> tuple[Wire, Wire]:
        self.drop(node)
        agent, control = Wire(), Wire()
        agent.peer, control.peer = control, agent
        for end in (agent, control):
            end.network, end.node = self, node
        self.links[node] = (agent, control)
        return agent, control

    def drop(self, node: str) -> None:
        """The connection breaks; both ends learn of it."""
        link = self.links.pop(node, None)
        if link is not None:
            link[0].cut()


@dataclass
class Host:
    """What of an agent's machine outlives its process."""

    node: str
    disk: MemoryDisk
    process: Process | None = None
    spawner: FakeSpawner | None = None
    agent: Agent | None = None


class World:
    """`faults` are drawn from the seed by the story; this class only makes them possible."""

    def __init__(self, seed: int, loop: VirtualLoop, nodes: int = 2) -> None:
        self.seed = seed
        self.loop = loop
        self.rng = Random(seed * 7919 + 1)
        self.store = open_store(":memory:")
        self.objects: dict[tuple[str, str], bytes] = {}
        self.network = Network(loop, Random(seed * 104_729 + 2))
        self.hosts = [Host(f"node-{n}", MemoryDisk()) for n in range(nodes)]
        self.control: Process | None = None
        self.plane: Plane | None = None
        self.token = ""
        self.ended: dict[str, tuple[str, bytes | None, str | None]] = {}
        self.kill_at_commit = 0.0
        self.died: asyncio.Event = asyncio.Event()

    def clock(self) -> float:
        return EPOCH + self.loop.time()

    # -- control

    async def start_control(self) -> None:
        process = self.control = Process("control")
        self.died = asyncio.Event()
        commits = InlineCommitter(self.store, self._after_commit)
        artifacts = MemoryArtifacts(blobs=self.objects)
        started: asyncio.Future[Plane] = self.loop.create_future()

        async def main() -> None:
            if not self.token:
                _, self.token = await commits.commit(lambda c: create_join_token(c, name="sim", now=0.0))
            rng = Random(self.rng.random())
            plane = Plane(PlaneSettings(), commits, artifacts, self.clock, rng, self.post)
            await plane.start([self.endpoint()])
            started.set_result(plane)
            await plane.run()

        self.loop.start(process, main())
        self.plane = None
        done, _ = await asyncio.wait([started], timeout=30)
        if done:
            self.plane = started.result()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The receiver of webhooks."""
        await asyncio.sleep(0.01)
        return 200

    def endpoint(self) -> Endpoint:
        return Endpoint(
            "echo", "default", "echo", 1, EndpointVersion("/h.py:handler"), workers_min=1, workers_max=4
        )

    def kill_control(self) -> None:
        if self.control is not None and not self.control.dead:
            self.loop.kill(self.control)
            self.plane = None
            self.died.set()
            for host in self.hosts:
                self.network.drop(host.node)

    def _after_commit(self) -> None:
        self._check_ends()
        if self.kill_at_commit and self.rng.random() < self.kill_at_commit:
            self.kill_at_commit = 0.0
            self.kill_control()

    def _check_ends(self) -> None:
        """Invariant: the first end wins, for ever."""
        raw = self.store.writer.raw
        for row in raw.execute(
            "SELECT j.id, j.state, r.output, r.error FROM jobs j LEFT JOIN results r ON r.seq = j.seq "
            "WHERE j.state IN ('COMPLETED', 'FAILED', 'TIMED_OUT', 'CANCELLED')"
        ):
            job, state, output, error = row
            now = (state, output, error)
            before = self.ended.setdefault(job, now)
            assert before == now, f"{job} had ended as {before} and is now {now}"

    # -- agents

    def start_agent(self, host: Host) -> None:
        process = host.process = Process(host.node)
        spawner = host.spawner = FakeSpawner()
        host.agent = Agent(
            AgentSettings(node=host.node, name=host.node, join_token=self.token),
            self._connector(host),
            spawner=spawner,
            objects=FakeObjects(self.objects),
            sampler=FakeSampler((GPU,)),
            scratch=MemoryScratch(),
            outbox_disk=host.disk,
            rng=Random(self.rng.random()),
        )
        self.loop.start(process, host.agent.run())

    def kill_agent(self, host: Host) -> None:
        if host.process is not None:
            self.loop.kill(host.process)
            self.network.drop(host.node)

    def _connector(self, host: Host) -> Callable[[], Coroutine[Any, Any, AgentStream]]:
        async def connect() -> AgentStream:
            await asyncio.sleep(self.network.rng.uniform(0.0005, 0.005))
            if self.plane is None or self.control is None or self.network.silent(host.node):
                raise StreamEnded("nobody answers")
            agent, control = self.network.join(host.node)
            self.loop.start(self.control, self.plane.serve_node(control, host.node))
            return agent

        return connect

    # -- callers

    async def call(self, ask: Callable[[Plane], Coroutine[Any, Any, T]]) -> T:
        """One request: it runs in the control process and breaks with it."""
        if self.plane is None or self.control is None:
            raise Broken
        task = self.loop.start(self.control, ask(self.plane))
        died = asyncio.ensure_future(self.died.wait())
        try:
            await asyncio.wait([task, died], return_when=asyncio.FIRST_COMPLETED)
        finally:
            died.cancel()
        if not task.done():
            raise Broken
        return task.result()

    async def insist(self, ask: Callable[[Plane], Coroutine[Any, Any, T]]) -> T:
        """Asks again until there is an answer."""
        while True:
            try:
                return await self.call(ask)
            except Broken:
                await asyncio.sleep(0.25)

    async def submit(self, script: dict[str, Any]) -> str | None:
        """The id of an accepted job; None when the answer was lost. The input is what the worker does."""
        body = Submission(input=json.dumps(script).encode())
        try:
            return (await self.call(lambda p: p.submit("default", "echo", body, sync=False))).id
        except Broken:
            return None

    async def end_of(self, job: str) -> JobView:
        while True:
            view = await self.insist(lambda p: p.wait("default", "echo", job, 60))
            if view.state in TERMINAL:
                return view
