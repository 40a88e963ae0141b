"""An agent's spawners on the tests' engine, and what tests ask of containers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from stoker.agent.interfaces import WorkerExit
from stoker.agent.workers.containers import spawner
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.spawner import ContainerSpawner, HostFolder, HostFolders, SpawnerByImage
from stoker.agent.workers.processes.by_kind import SpawnerByKind
from stoker.agent.workers.processes.local_spawner import LocalSpawner
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.sdk_programs.server import ProtocolServer
from stoker.agent.workers.sdk_programs.worker import ProtocolSpawner
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.frames import Frame
from tests.container_engine_here import IMAGE, patient


class RecordedWorker:
    """A worker's watcher: keeps what it hears, and waits for more."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.exit: WorkerExit | None = None
        self.process: Any = None
        self.printed: Any = None
        self.moved = asyncio.Event()

    def on_broken(self, why: str) -> None:
        raise AssertionError(why)

    def on_frame(self, frame: Frame) -> None:
        assert self.exit is None, "a frame after the exit"
        self.frames.append(frame)
        self.moved.set()

    def on_exit(self, exit: WorkerExit) -> None:  # noqa: A002
        assert self.exit is None
        self.exit = exit
        self.moved.set()

    async def until(self, found: Any, within_s: float = 60.0) -> Any:
        async with asyncio.timeout(within_s):
            while not (result := found()):
                self.moved.clear()
                await self.moved.wait()
        return result

    async def received(self, kind: str) -> Frame:
        found = await self.until(lambda: [f for f in self.frames if f.kind == kind] or self.exit)
        assert not isinstance(found, WorkerExit), found
        return found[-1]

    async def exited(self) -> WorkerExit:
        return await self.until(lambda: self.exit)


class Host:
    """One agent's spawners on the tests' engine. `lines` is what its workers printed."""

    def __init__(self, engine: ContainerEngine, folder: Path, **more: Any) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.scratch = ScratchFolders(folder / "scratch")
        self.engine = engine
        folders = HostFolders(
            HostFolder(folder, folder), more.pop("volumes", None), more.pop("weights", None)
        )
        self.containers = ContainerSpawner(engine, folders, "agent-1", self.scratch, **more)
        local = LocalSpawner(folder)
        late_s = spawner.PRINTED_LATE_S
        serving = lambda of, *late: lambda: ProtocolSpawner(of, ProtocolServer(refuse_s=0.05), *late)  # noqa: E731
        plain = SpawnerByKind(local, protocol=serving(local))
        self.contained = SpawnerByKind(self.containers, protocol=serving(self.containers, late_s))
        self.spawner = SpawnerByImage(plain, self.contained)
        self._workers: list[RecordedWorker] = []

    @property
    def lines(self) -> list[str]:
        return [line.text for worker in self._workers for line in worker.printed.after(0)[1]]

    def start(self, device: Device | None = None, **fields: Any) -> RecordedWorker:
        worker = RecordedWorker()
        self._workers.append(worker)
        fields = {"version": 1, "handler": "", "image": IMAGE, **fields}
        spec = WorkerSpec(worker=f"w{len(self._workers)}", endpoint="e1", **fields)
        worker.process = self.spawner.spawn(spec, device, worker)
        worker.printed = worker.process.tail.listen()
        worker.printed.watch(worker.moved.set)
        return worker

    def python(self, name: str, folder: str = "/app", **fields: Any) -> RecordedWorker:
        handler = f"{folder}/{name}.py:handler"
        worker = self.start(handler=handler, **fields)
        setup = {"handler": handler, "device": None, "concurrency": 1, "preload": []}
        worker.process.send(Frame("setup", setup))
        return worker


async def surely_out_of_memory(end: Callable[[], Awaitable[WorkerExit]]) -> WorkerExit:
    """The first of several that is said for sure to be. On a busy host a container's cgroup may be swept away
    before anybody has read what it counted: that is only likely then."""
    for _ in range(5):
        ended = await end()
        if "likely" not in ended.reason:
            break
        assert "out of memory" in ended.reason
    return ended


def containers_left(address: str) -> list[Any]:
    again = patient(address)
    try:
        return again.client.containers(all=True)
    finally:
        again.close()
