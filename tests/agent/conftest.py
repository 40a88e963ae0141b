"""One agent with fakes around it, and a scripted control plane at the other end, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.host.storage.volume_watch import NoVolumes, VolumeFolders
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.agent.node import Agent, AgentParts, AgentSettings
from stoker.agent.pods.pods import MarksInMemory
from stoker.agent.weights.interfaces import NoWeights, Weights
from stoker.agent.workers.lifecycle.recycling import Measure, nothing_measured
from stoker.testing.fake_host import CPU, FakeSampler, MemoryScratch
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.fake_pods import FakePodEngine
from stoker.testing.fake_spawner import FakeSpawner, Start
from stoker.testing.memory_disk import MemoryDisk
from stoker.testing.memory_stream import MemoryStream, memory_logs, memory_pair
from stoker.wire.messages import (
    Ack,
    Assign,
    AttemptKey,
    Beat,
    Cancel,
    CertificateAnswer,
    Desired,
    Device,
    FromAgent,
    FromControl,
    Grant,
    Hello,
    KeptAsk,
    KeptPage,
    LogLines,
    LogWanted,
    Outcome,
    PodSpec,
    Refusal,
    Refused,
    Report,
    SignAnswer,
    SignAsk,
    Signed,
    Welcome,
    WorkerSpec,
    WorkerState,
    Yield,
)
from stoker.wire.streams import AgentLogs, AgentStream, StreamEnded
from tests.load_module import load_module

virtual = load_module(
    "agent_tests_virtual_loop", Path(__file__).parents[1] / "simulation" / "virtual_loop.py"
)

GRANT = Grant("http://s3", "http://public", "eu", "bucket", "", "id", "secret")


class FakeCertificates:
    """Requests a certificate while one is `due`, and keeps what comes."""

    def __init__(self) -> None:
        self.due = False
        self.kept: list[CertificateAnswer] = []

    def request(self) -> bytes:
        return b"request" if self.due else b""

    def answered(self, answer: CertificateAnswer) -> None:
        self.due = False
        self.kept.append(answer)


class Control:
    """The other end of the stream: records everything, answers as it is told."""

    def __init__(self) -> None:
        self.up = True
        self.acks = True
        self.beats_acked = True
        self.refusal: str | None = None
        self.stop: tuple[AttemptKey, ...] = ()
        self.yields = True
        self.hellos: list[Hello] = []
        self.reports: list[Report] = []
        self.beats: list[tuple[float, Beat]] = []
        self.asks: list[SignAsk] = []
        self.signs = True
        self.gives_kept = False
        self.kept_asks: list[KeptAsk] = []
        self.pages: dict[int, KeptPage] = {}  # by their first chunk; other asks get no answer
        self.batches: list[tuple[int, ...]] = []
        self.logs: asyncio.Queue[MemoryStream[LogLines, LogWanted]] = asyncio.Queue()
        self.drains: list[float] = []  # when it heard of it, once per session
        self.workers: tuple[WorkerSpec, ...] = ()
        self.pods: tuple[PodSpec, ...] = ()
        self.sessions = 0
        self.certifies = False
        self.certificate: CertificateAnswer | None = None  # what it answers a request with
        self.certificate_asks: list[float] = []  # when each came
        self.gives: list[str] = []  # credentials, to a node that has not kept them
        self.revision = 0
        self.stream: MemoryStream[FromAgent, FromControl] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()

    async def connect(self) -> AgentStream:
        if not self.up:
            raise OSError("connection refused")
        agent, control = memory_pair()
        agent.open_logs = self._open_logs  # type: ignore[attr-defined]
        self._tasks.append(asyncio.create_task(self._serve(control)))
        return agent

    async def _open_logs(self) -> AgentLogs:
        agent, control = memory_logs()
        self.logs.put_nowait(control)
        return agent

    async def _serve(self, stream: MemoryStream[FromAgent, FromControl]) -> None:
        try:
            first = await stream.receive()
            hello = first.hello
            assert hello is not None
            self.hellos.append(hello)
            self._moved.set()
            if self.refusal is not None:
                await stream.send(FromControl(refusal=Refusal(self.refusal)))
                return
            if self.gives:
                given = self.certificate if first.certificate_ask else None
                await stream.send(FromControl(credential=self.gives[0], certificate=given))
                stream.end("the node joined")
                return
            self.sessions += 1
            self.stream = stream
            welcome = Welcome(
                self.sessions,
                5.0,
                45.0,
                stop=self.stop,
                saves=True,
                yields=self.yields,
                certifies=self.certifies,
                kept=self.gives_kept,
            )
            await stream.send(FromControl(welcome=welcome, desired=self._desired()))
            while True:
                await self._received(stream, await stream.receive())
        except StreamEnded:
            if self.stream is stream:
                self.stream = None
            self._moved.set()

    async def _received(self, stream: MemoryStream[FromAgent, FromControl], message: FromAgent) -> None:
        self.reports += message.reports
        if message.reports:
            self.batches.append(tuple(report.number for report in message.reports))
        if message.beat is not None:
            self.beats.append((asyncio.get_running_loop().time(), message.beat))
        if message.draining:
            self.drains.append(asyncio.get_running_loop().time())
        if message.certificate_ask:
            self.certificate_asks.append(asyncio.get_running_loop().time())
            if self.certificate is not None:
                await stream.send(FromControl(certificate=self.certificate))
        for ask in message.asks:
            self.asks.append(ask)
            if self.signs:
                signed = tuple(Signed(wanted.key) for wanted in ask.wanted)
                await stream.send(FromControl(answers=(SignAnswer(ask.number, signed=signed),)))
        for wanted in message.kept_asks:
            self.kept_asks.append(wanted)
            if (page := self.pages.get(wanted.first)) is not None:
                await stream.send(FromControl(kept=replace(page, number=wanted.number)))
        self._moved.set()
        beat = message.beat.number if message.beat and self.beats_acked else 0
        number = self.reports[-1].number if self.reports and self.acks else 0
        if beat or (message.reports and self.acks):
            await stream.send(FromControl(ack=Ack(number, beat)))

    def _desired(self) -> Desired:
        self.revision += 1
        return Desired(self.revision, self.workers, self.pods)

    async def say(self, message: FromControl) -> None:
        """On a connection that has just been cut, what is said is lost."""
        assert self.stream is not None
        with contextlib.suppress(StreamEnded):
            await self.stream.send(message)

    async def desire(self, *workers: WorkerSpec) -> None:
        self.workers = workers
        await self.say(FromControl(desired=self._desired()))

    async def ready(self, *workers: WorkerSpec) -> None:
        """The workers are desired, and can be given work."""
        await self.until(lambda: self.stream is not None)
        await self.desire(*workers)
        for worker in workers:
            await self.worker_is(worker.worker, "ready")

    async def assign(self, *assigns: Assign) -> None:
        await self.say(FromControl(assigns=assigns))

    async def cancel(self, job: str, attempt: int = 1) -> None:
        await self.say(FromControl(cancels=(Cancel(job, attempt, "cancelled"),)))

    async def ask_to_yield(self, job: str, why: str = "the node leaves", attempt: int = 1) -> None:
        await self.say(FromControl(yields=(Yield(job, attempt, why),)))

    async def until(self, done: Callable[[], object], within_s: float = 1000.0) -> None:
        async with asyncio.timeout(within_s):
            while not done():
                self._moved.clear()
                await self._moved.wait()

    async def worker_is(self, worker: str, state: str) -> WorkerState:
        await self.until(lambda: (news := self.news(worker)) and news[-1].state == state)
        return self.news(worker)[-1]

    async def outcome(self, job: str, attempt: int = 1) -> Outcome:
        await self.until(lambda: self.about(Outcome, job, attempt))
        return self.about(Outcome, job, attempt)[0]

    async def refused(self, job: str, attempt: int = 1) -> Refused:
        await self.until(lambda: self.about(Refused, job, attempt))
        return self.about(Refused, job, attempt)[0]

    def bodies(self, kind: type) -> list[Any]:
        """Each report once, however often it was sent."""
        once = {report.number: report.body for report in self.reports}
        return [body for _, body in sorted(once.items()) if isinstance(body, kind)]

    def about(self, kind: type, job: str, attempt: int = 1) -> list[Any]:
        return [b for b in self.bodies(kind) if (b.job, b.attempt) == (job, attempt)]

    def news(self, worker: str) -> list[WorkerState]:
        return [body for body in self.bodies(WorkerState) if body.worker == worker]


class Host:
    """An agent's machine: what survives the agent (disk, object store), and the agent."""

    def __init__(
        self,
        starts: dict[str, Start] | None = None,
        devices: tuple[Device, ...] = (CPU,),
        volumes: VolumeFolders | None = None,
        weights: Weights | None = None,
    ) -> None:
        self.volumes = volumes
        self.after_session: Callable[[bool], bool] = lambda welcomed: True
        self.sampler = FakeSampler(devices)
        self.control = Control()
        self.spawner = FakeSpawner(starts)
        self.pods, self.pod_marks = FakePodEngine(), MarksInMemory()
        self.objects = FakeObjects()
        self.certificates = FakeCertificates()
        self.scratch = MemoryScratch()
        self.disk = MemoryDisk()
        self.signing = SigningRequests()
        self.rng = Random(7)
        self.settings = AgentSettings("node-1", "host")
        self.asleep = 0.0
        self.credentials: list[str] = []
        self.full = False
        self.measure: Measure = nothing_measured
        self.weights = weights or NoWeights()
        self.agent = self.new_agent()

    def new_agent(self) -> Agent:
        parts = AgentParts(
            sources=SourceFolders(Path("/nowhere")),
            connect=lambda: self.control.connect(),  # noqa: PLW0108  # tests replace it
            spawner=self.spawner,
            objects=self.objects,
            sampler=self.sampler,
            scratch=self.scratch,
            outbox_disk=self.disk,
            rng=self.rng,
            pods=self.pods,
            pod_marks=self.pod_marks,
            volumes=self.volumes or NoVolumes(),
            weights=self.weights,
            signing=self.signing,
            measure=lambda *about: self.measure(*about),  # noqa: PLW0108  # tests replace it
            boottime=lambda: asyncio.get_running_loop().time() + self.asleep,
            keep_credential=self.keeps_credential,
            certificates=self.certificates,
            after_session=lambda welcomed: self.after_session(welcomed),  # noqa: PLW0108  # tests replace it
        )
        self.agent = Agent(self.settings, parts)
        return self.agent

    def keeps_credential(self, credential: str) -> bool:
        if not self.full:
            self.credentials.append(credential)
            self.control.gives.remove(credential)
        return not self.full

    def set(self, **changes: Any) -> None:
        self.settings = replace(self.settings, **changes)
        self.new_agent()

    async def holds_work(self) -> None:
        await self.until(self.agent.attempts.held)

    async def until(self, done: Callable[[], object]) -> None:
        """Virtual time costs nothing: it is polled finely."""
        while not done():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def check_clean(self) -> None:
        """Whatever the story was: nothing of it is left on the host."""
        assert self.spawner.processes == []
        assert self.scratch.folders == set()


def worker(name: str = "w1", **fields: Any) -> WorkerSpec:
    values = {"endpoint": "e1", "version": 1, "handler": "h.py:handler", "devices": (CPU.uuid,), **fields}
    return WorkerSpec(name, **values)


def job(name: str, job_input: bytes = b"{}", *, attempt: int = 1, on: str = "w1", **fields: Any) -> Assign:
    grant = replace(GRANT, prefix=f"e1/{name}/{attempt}/")
    return Assign(name, attempt, on, **{"input": job_input, "grant": grant, **fields})


Story = Callable[[Host], Coroutine[Any, Any, None]]


@pytest.fixture(params=[1, 2], ids="seed{}".format)
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a story beside an agent, then stops the agent and looks for what it left behind."""

    def run(story: Story, settings: dict[str, Any] | None = None, **host_args: Any) -> None:
        async def whole() -> None:
            host = Host(**host_args)
            if settings:
                host.set(**settings)
            running = asyncio.create_task(host.agent.run())
            await story(host)
            host.agent.stop()
            if host.agent is not None and not running.done():
                await _ended(running, host)
            host.check_clean()

        virtual.run(virtual.VirtualLoop(request.param), whole())

    return run


async def _ended(running: asyncio.Task[None], host: Host) -> None:
    async with asyncio.timeout(60):
        await running
    others = asyncio.all_tasks() - {asyncio.current_task(), *host.control._tasks}
    assert not others, f"left running: {others}"


@pytest.fixture
def in_time(request: pytest.FixtureRequest) -> Callable[[Awaitable[Any]], Any]:
    """Runs a coroutine in virtual time, with nothing prepared."""
    return lambda coroutine: virtual.run(virtual.VirtualLoop(1), coroutine)


@pytest.fixture
def a_worker() -> Callable[..., WorkerSpec]:
    return worker


@pytest.fixture
def a_job() -> Callable[..., Assign]:
    return job


@pytest.fixture
def a_host() -> type[Host]:
    return Host


@pytest.fixture
def simulated() -> Any:
    """The module of the virtual loop: its processes can be killed."""
    return virtual
