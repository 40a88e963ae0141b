"""Programs of tests/handlers_protocol as real processes; nothing of them may be left."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.processes.by_kind import SpawnerByKind
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.sdk_programs.server import ProtocolServer
from stoker.agent.workers.sdk_programs.worker import ProtocolProcess, ProtocolSpawner
from stoker.wire.messages import WorkerSpec
from stoker.worker.frames import Frame
from tests.children import children

HANDLERS = Path(__file__).parents[3] / "handlers_protocol"
ROOT = Path(__file__).parents[4]
STOCK = ROOT / ".peers" / "python" / "bin" / "python"
ENDS = ("done", "failed", "returned")


class Program:
    """A worker process and its frames."""

    def __init__(self) -> None:
        self.worker = ""
        self.process: ProtocolProcess
        self.frames: list[Frame] = []
        self.exit: WorkerExit | None = None
        self._moved = asyncio.Event()
        self._numbers = itertools.count(1)

    def on_broken(self, why: str) -> None:
        raise AssertionError(why)

    def on_frame(self, frame: Frame) -> None:
        assert self.exit is None, "a frame after the exit"
        self.frames.append(frame)
        self._moved.set()

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        assert self.exit is None
        self.exit = exit
        self._moved.set()

    async def until(self, found: Any, within_s: float = 100.0) -> Any:
        async with asyncio.timeout(within_s):
            while not (result := found()):
                self._moved.clear()
                await self._moved.wait()
        return result

    async def ready(self) -> None:
        await self.until(lambda: [f for f in self.frames if f.kind == "ready"] or self.exit)
        assert self.exit is None, self.exit

    def run(self, job_input: Any, **more: Any) -> str:
        job = f"job-{next(self._numbers)}"
        fields = {"job": job, "attempt": 1, "scratch": "/tmp", **more}
        self.process.send(Frame("run", fields, json.dumps(job_input).encode()))
        return job

    async def end(self, job: str) -> Frame:
        return (await self.until(lambda: [f for f in self.about(job) if f.kind in ENDS]))[0]

    async def received(self, job: str, kind: str) -> Frame:
        return (await self.until(lambda: [f for f in self.about(job) if f.kind == kind]))[0]

    def about(self, job: str) -> list[Frame]:
        return [frame for frame in self.frames if frame.fields.get("job") == job]

    async def output(self, job_input: Any, **more: Any) -> Any:
        frame = await self.end(self.run(job_input, **more))
        assert frame.kind == "done", frame
        return json.loads(frame.body)

    async def error(self, job_input: Any) -> str:
        frame = await self.end(self.run(job_input))
        assert frame.kind == "failed", frame
        return str(frame.fields["error"])

    async def exited(self) -> WorkerExit:
        return await self.until(lambda: self.exit)


class Host:
    """Starts programs; one server and one spawner for all of them, as in an agent."""

    def __init__(self, folder: Path) -> None:
        local = LocalSpawner(folder)
        self.spawner = SpawnerByKind(
            local, protocol=lambda: ProtocolSpawner(local, ProtocolServer(refuse_s=0.05))
        )
        self.programs: dict[str, Program] = {}

    def start(
        self,
        file: str,
        *,
        command: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
        slots: int = 16,
        **env: str,
    ) -> Program:
        program, worker = Program(), f"w{len(self.programs) + 1}"
        spec = WorkerSpec(
            worker,
            "e1",
            1,
            str(HANDLERS),
            env=env,
            concurrency=slots,
            kind="protocol",
            command=command or (str(STOCK), file, *arguments),
        )
        process = self.spawner.spawn(spec, None, program)
        assert isinstance(process, ProtocolProcess)
        program.worker, program.process = worker, process
        self.programs[worker] = program
        return program


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Host]:
    """For one module: a stock program needs more than a second to start."""
    made = Host(tmp_path_factory.mktemp("agent"))
    yield made
    await made.spawner.close()


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


@pytest.fixture(scope="session")
def stock() -> None:
    """Skips where the stock worker could not be had."""
    if not STOCK.exists():
        why = STOCK.parents[2] / "python.why"
        pytest.skip(why.read_text().strip() if why.exists() else f"there is no {STOCK}; .ci/peers makes it")
