"""Workers as containers: the Spawner of those whose spec names an image.

Made when the engine was asked what it is; one that answers only later becomes the same object. What an
earlier agent of this data folder left is removed before the first worker starts. `Contained` beside it picks
by the image.

An agent that is itself in a container starts siblings: the engine mounts folders of the *host*. `OnHost` says
what the host calls the agent's data folder and volume root; whether that is true, `agent.container_probe` has
tried at the agent's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import stoker
from stoker.agent import volumes
from stoker.agent.birth import Program
from stoker.agent.container_engine import ContainerEngine
from stoker.agent.container_images import Images
from stoker.agent.container_plan import Limits, Place, is_gpu, plan, refusal
from stoker.agent.container_process import Container, ContainerProcess
from stoker.agent.files import ScratchFolders
from stoker.agent.log_tail import LogTail
from stoker.agent.seams import Spawner, SpawnFailed, WorkerProcess, WorkerWatcher
from stoker.agent.worker_users import WorkerUsers
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)

PRINTED_LATE_S = 0.05
"""How late what a program prints may come, by way of the engine: mostly 2 ms, 15 ms on a busy host."""

CLOSE_S = 20.0
"""An engine that hangs does not hold up the agent's end."""


@dataclass(frozen=True, slots=True)
class OnHost:
    """A folder of the agent's, and the name of the same folder on the engine's host."""

    inside: Path
    outside: Path

    def path(self, inside: Path) -> str:
        return str(self.outside / inside.relative_to(self.inside))


class ContainerSpawner:
    """`data` is the agent's data folder, `agent` labels its containers. Of a volume's folder the group
    becomes what `users` say, where workers are not the agent's own user."""

    def __init__(
        self,
        engine: ContainerEngine,
        data: OnHost,
        agent: str,
        scratch: ScratchFolders,
        *,
        limits: Limits | None = None,
        users: WorkerUsers | None = None,
        volumes: OnHost | None = None,
    ) -> None:
        self._engine, self._data, self._volumes = engine, data, volumes
        self._folder = data.inside / "containers"
        self._agent, self._scratch = agent, scratch
        self._limits = limits or Limits()
        self._users = users or WorkerUsers()
        self.images = Images(engine, data.inside / "images.json")
        self._living: set[ContainerProcess] = set()
        shutil.rmtree(self._folder, ignore_errors=True)
        if engine.facts.name:
            self._make_folder()

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
        if (why := refusal(self._engine.facts, spec.image, device)) is not None:
            raise SpawnFailed(why)
        name = f"{spec.worker}-{secrets.token_hex(3)}"
        with contextlib.ExitStack() as undo:
            place = self._place(spec, name, undo)
            frames = Path(self._folder, name) if program is None else None
            added = {} if program is None else program.environment
            limits = self._limits
            container = Container(
                spec,
                lambda image: plan(spec, device, image, added, place, limits),
                f"stoker-{name}",
                frames,
                limits.of(spec.limits).memory,
                _gpus(spec, device),
            )
            process = ContainerProcess(container, self._engine, self.images, watcher, LogTail())
            self._living.add(process)
            given_back = undo.pop_all()
        process.ended.add_done_callback(lambda _: self._gone(process, given_back))
        return process

    def _gone(self, process: ContainerProcess, given_back: contextlib.ExitStack) -> None:
        self._living.discard(process)
        given_back.close()

    def _place(self, spec: WorkerSpec, name: str, undo: contextlib.ExitStack) -> Place:
        """Makes what the container will be shown. `undo` takes it away again."""
        volume = self._volume(spec)
        place = Place(self._agent, "", "", "", "", volume)
        if spec.kind == "protocol":
            return place
        user = self._users.take(spec.worker)
        undo.callback(self._users.free, spec.worker, user)
        try:
            frames = self._frames_folder(name, undo)
            scratch = self._scratch.open(spec.worker)
        except OSError as error:
            raise SpawnFailed(f"no folder for the container {name}: {error.strerror}") from None
        undo.callback(self._scratch.close, spec.worker)
        group = self._users.group_of(spec.volume) if volume else None
        return replace(
            place,
            frames=self._data.path(frames),
            package=self._data.path(self._folder / "package"),
            scratch=str(scratch),
            scratch_source=self._data.path(scratch),
            user=user or (0, 0),
            groups=() if group is None else (group,),
        )

    def _volume(self, spec: WorkerSpec) -> str:
        """The host's path of its folder, which the workers' group may write to."""
        if not spec.volume:
            return ""
        root = self._volumes
        group = self._users.group_of(spec.volume)
        path = volumes.shared(None if root is None else root.inside, spec.volume, group)
        assert root is not None
        return root.path(path)

    def _frames_folder(self, name: str, undo: contextlib.ExitStack) -> Path:
        """Another user passes through to the socket; the folder above it is the agent's alone."""
        if not self._folder.exists():  # there was no engine until now
            self._make_folder()
        made = self._folder / name
        undo.callback(shutil.rmtree, made, ignore_errors=True)
        (made / "package").mkdir(parents=True)
        os.chmod(made, 0o711)
        return made

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700)
        self._copy_package()

    def _copy_package(self) -> None:
        """The worker package alone, below the data folder: nothing else of this installation is shown to a
        container, and the engine may know no other folder of an agent that is in a container itself."""
        package = self._folder / "package" / "stoker"
        package.mkdir(parents=True)
        shutil.copy(Path(stoker.__file__), package)
        source = Path(stoker.__file__).parent / "worker"
        shutil.copytree(source, package / "worker", ignore=shutil.ignore_patterns("__pycache__"))

    async def close(self) -> None:
        """Kills and removes whatever is left; every watcher has heard of its end when this returns."""
        waiting = [process.ended for process in self._living]
        for process in list(self._living):
            process.kill()
        if waiting:
            await asyncio.wait(waiting, timeout=CLOSE_S)
        for process in list(self._living):
            process.abandon()
        await asyncio.gather(*waiting)
        await self._engine.leave()


def _gpus(spec: WorkerSpec, device: Device | None) -> int:
    """How many whole GPUs must be in its /dev; slices of one show it once."""
    if not is_gpu(device):
        return 0
    return len(spec.devices) if device is not None and device.kind == "gpu" else 1


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
