"""Workers as containers: the Spawner of those whose spec names an image.

Made by `containers`, once the engine was asked what it is; what an earlier agent of this data folder left is
removed before the first worker starts. `Contained` beside it picks by the image.

An agent that is itself in a container starts siblings: the engine mounts folders of the *host*. `host_folder`
says what the host calls the agent's data folder; all that is mounted lies below it. Whether that is true is
tried at the start of each worker: a wrong one ends with the engine's words.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import stoker
import stoker.worker
from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_images import Images
from stoker.agent.container_plan import Limits, Place, create_request, is_gpu, refusal
from stoker.agent.container_process import Container, ContainerProcess
from stoker.agent.local_process import LogSink, Program
from stoker.agent.log_tail import LogTail
from stoker.agent.seams import Spawner, SpawnFailed, WorkerProcess, WorkerWatcher
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)


class ContainerSpawner:
    """`agent` labels its containers; `scratch` is the folder of the attempts' scratch folders."""

    def __init__(
        self,
        engine: ContainerEngine,
        folder: Path,
        agent: str,
        scratch: Path,
        *,
        limits: Limits | None = None,
        user: tuple[int, int] | None = None,
        host_folder: Path | None = None,
        log_sink: LogSink | None = None,
    ) -> None:
        self._engine = engine
        self._data, self._host = folder.absolute(), (host_folder or folder).absolute()
        self._folder = self._data / "containers"
        self._agent, self._scratch = agent, scratch.absolute()
        self._limits = limits or Limits()
        self._user = user or (0, 0)
        self._log_sink = log_sink
        self._images = Images(engine, self._data / "images.json")
        self._living: set[ContainerProcess] = set()
        shutil.rmtree(self._folder, ignore_errors=True)
        if engine.facts.name:
            self._copy_package()

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> ContainerProcess:
        return self.start(spec, device, watcher)

    def start(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        program: Program | None = None,
    ) -> ContainerProcess:
        """As the seam's `spawn`; of a program, only the environment is used."""
        if (why := refusal(self._engine.facts, spec, device)) is not None:
            raise SpawnFailed(why)
        name = f"{spec.worker}-{secrets.token_hex(3)}"
        frames = None if program is not None else self._frames_folder(name)
        added = {} if program is None else program.environment
        request = partial(self._request, spec, device, frames, added)
        container = Container(
            spec, request, f"stoker-{name}", frames, self._limits.memory, gpu=is_gpu(device)
        )
        process = ContainerProcess(container, self._engine, self._images, watcher, self._tail(spec.worker))
        self._living.add(process)
        process.ended.add_done_callback(lambda _: self._living.discard(process))
        return process

    def _request(
        self,
        spec: WorkerSpec,
        device: Device | None,
        frames: Path | None,
        added: Mapping[str, str],
        image: str,
    ) -> Mapping[str, Any]:
        place = Place(
            self._agent,
            self._on_host(frames or self._folder),
            self._on_host(self._folder / "package"),
            str(self._scratch),
            self._on_host(self._scratch),
            self._user,
        )
        return create_request(spec, device, image, added, place, self._limits)

    def _on_host(self, path: Path) -> str:
        return str(self._host / path.relative_to(self._data))

    def _frames_folder(self, name: str) -> Path:
        """Another user passes through to the socket; the folder above it is the agent's alone."""
        made = self._folder / name
        try:
            (made / "package").mkdir(parents=True)
            os.chmod(made, 0o711)
        except OSError as error:
            raise SpawnFailed(f"no folder for the container {name}: {error.strerror}") from None
        return made

    def _copy_package(self) -> None:
        """The worker package alone, below the data folder: nothing else of this installation is shown to a
        container, and the engine may know no other folder of an agent that is in a container itself."""
        package = self._folder / "package" / "stoker"
        package.mkdir(parents=True)
        shutil.copy(Path(stoker.__file__), package)
        source = Path(stoker.worker.__file__).parent
        shutil.copytree(source, package / "worker", ignore=shutil.ignore_patterns("__pycache__"))

    def _tail(self, worker: str) -> LogTail:
        sink = self._log_sink
        return LogTail(None if sink is None else lambda line: sink(worker, line))

    async def close(self) -> None:
        """Kills and removes whatever is left; every watcher has heard of its end when this returns."""
        waiting = [process.ended for process in self._living]
        for process in list(self._living):
            process.kill()
        await asyncio.gather(*waiting)
        await asyncio.to_thread(self._engine.close)


class Contained:
    """The Spawner that the agent has: workers with an image to the containers, others to plain processes."""

    def __init__(self, plain: Spawner, containers: Spawner, programs: Callable[[], Spawner]) -> None:
        self._plain, self._containers, self._make = plain, containers, programs
        self._programs: Spawner | None = None

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        if not spec.image:
            return self._plain.spawn(spec, device, watcher)
        if spec.kind != "protocol":
            return self._containers.spawn(spec, device, watcher)
        if self._programs is None:
            self._programs = self._make()
        return self._programs.spawn(spec, device, watcher)

    async def close(self) -> None:
        await self._plain.close()
        await self._containers.close()
        if self._programs is not None:
            await self._programs.close()
