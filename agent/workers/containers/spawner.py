"""Starts the workers whose spec names an image, as containers. `SpawnerByImage` chooses between this and
plain processes.

An agent that runs in a container itself starts siblings, so the engine mounts folders of the *host*.
`HostFolder` holds the host's paths of the agent's data folder, volume root and weights;
`agent.workers.containers.probe` checks the first two at the agent's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

import stoker
from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.host.storage import volumes
from stoker.agent.interfaces import Spawner, WorkerProcess, WorkerWatcher
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.images import Images
from stoker.agent.workers.containers.plan import ContainerLimits, HostPaths, Network, is_gpu, plan, refusal
from stoker.agent.workers.containers.process import Container, ContainerProcess
from stoker.agent.workers.processes.scratch_folders import ScratchFolders
from stoker.agent.workers.processes.spawn_request import Program
from stoker.wire.messages import Device, WorkerSpec

log = logging.getLogger(__name__)

PRINTED_LATE_S = 0.05
"""How late a program's output may arrive by way of the engine: 2 ms mostly, 15 ms on a busy host."""

CLOSE_S = 20.0
"""How long the agent's end waits for an engine that hangs."""


class HostFolder(Struct, frozen=True):
    """A folder of the agent, `inside`, and the path of the same folder on the engine's host, `outside`."""

    inside: Path
    outside: Path

    def path(self, inside: Path) -> str:
        return str(self.outside / inside.relative_to(self.inside))


class HostFolders(Struct, frozen=True):
    """The agent's folders that are mounted into containers: its data folder, and those of volumes and weights
    where it has them."""

    data: HostFolder
    volumes: HostFolder | None = None
    weights: HostFolder | None = None


class ContainerSpawner:
    """The spawner of workers in containers. `agent` labels its containers. If workers run as users other than
    the agent's, a volume's folder gets the group that `users` names. `network` is that of containers."""

    def __init__(
        self,
        engine: ContainerEngine,
        folders: HostFolders,
        agent: str,
        scratch: ScratchFolders,
        *,
        limits: ContainerLimits | None = None,
        network: Network = "bridge",
        users: WorkerUsers | None = None,
    ) -> None:
        self._engine, self._folders = engine, folders
        self._folder = folders.data.inside / "containers"
        self._agent, self._scratch = agent, scratch
        self._limits = limits or ContainerLimits()
        self._network: Network = network
        self._users = users or WorkerUsers()
        self.images = Images(engine, folders.data.inside / "images.json")
        self._processes: set[ContainerProcess] = set()
        shutil.rmtree(self._folder, ignore_errors=True)
        if engine.facts.name:
            self._make_folder()

    def spawn(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        program: Program | None = None,
    ) -> ContainerProcess:
        """Implements `Spawner.spawn`. Only the environment of `program` is used."""
        if (why := refusal(self._engine.facts, spec.image, device)) is not None:
            raise SpawnFailed(why)
        name = f"{spec.worker}-{secrets.token_hex(3)}"
        with contextlib.ExitStack() as undo:
            paths = self._paths(spec, name, undo)
            frames = Path(self._folder, name) if program is None else None
            added = {} if program is None else program.environment
            limits, network = self._limits, self._network
            container = Container(
                spec,
                lambda image: plan(spec, device, image, added, paths, limits, network),
                f"stoker-{name}",
                frames,
                limits.of(spec.limits).memory_bytes,
                _gpus(spec, device),
                program.on_network if program is not None and network != "host" else None,
            )
            process = ContainerProcess(container, self._engine, self.images, watcher, LogTail())
            self._processes.add(process)
            resources = undo.pop_all()
        process.ended.add_done_callback(lambda _: self._ended(process, resources))
        return process

    def _ended(self, process: ContainerProcess, resources: contextlib.ExitStack) -> None:
        self._processes.discard(process)
        resources.close()

    def _paths(self, spec: WorkerSpec, name: str, undo: contextlib.ExitStack) -> HostPaths:
        """Creates the folders that the container will mount. `undo` removes them again."""
        volume = self._volume(spec)
        shown = self._folders.weights if spec.weights else None
        weights = "" if shown is None else str(shown.outside)
        user = self._users.take(spec.worker)
        undo.callback(self._users.free, spec.worker, user)
        group = self._users.group_of(spec.volume) if volume else None
        groups = () if group is None else (group,)
        paths = HostPaths(self._agent, "", "", "", "", volume, user, groups, weights)
        if spec.kind != "python":
            return paths
        try:
            frames = self._frames_folder(name, undo)
            scratch = self._scratch.open(spec.worker, user)
        except OSError as error:
            raise SpawnFailed(f"no folder for the container {name}: {error.strerror}") from None
        undo.callback(self._scratch.close, spec.worker)
        return replace(
            paths,
            frames=self._folders.data.path(frames),
            package=self._folders.data.path(self._folder / "package"),
            scratch=str(scratch),
            scratch_source=self._folders.data.path(scratch),
        )

    def _volume(self, spec: WorkerSpec) -> str:
        """Returns the host's path of the volume's folder, which the workers' group may write to."""
        if not spec.volume:
            return ""
        root = self._folders.volumes
        group = self._users.group_of(spec.volume)
        path = volumes.shared(None if root is None else root.inside, spec.volume, group)
        assert root is not None
        return root.path(path)

    def _frames_folder(self, name: str, undo: contextlib.ExitStack) -> Path:
        """Makes the folder of the socket. Other users may pass through it to the socket; only the agent may
        enter the folder above it."""
        if not self._folder.exists():  # the host had no engine at the agent's start
            self._make_folder()
        made = self._folder / name
        undo.callback(shutil.rmtree, made, ignore_errors=True)
        (made / "package").mkdir(parents=True)
        os.chmod(made, 0o711)
        return made

    def _make_folder(self) -> None:
        """Makes the folder, with a copy of the worker package. A container sees nothing else of this
        installation, and the engine may see no folder of an agent in a container but the data folder."""
        self._folder.mkdir(mode=0o700)
        package = self._folder / "package" / "stoker"
        package.mkdir(parents=True)
        source = Path(stoker.__file__).parent
        for module in ("__init__.py", "app_values.py"):
            shutil.copy(source / module, package)
        shutil.copytree(source / "worker", package / "worker", ignore=shutil.ignore_patterns("__pycache__"))

    async def close(self) -> None:
        """Kills and removes all containers. When this returns, every watcher's `on_exit` was called."""
        ended = [process.ended for process in self._processes]
        for process in list(self._processes):
            process.kill()
        if ended:
            await asyncio.wait(ended, timeout=CLOSE_S)
        for process in list(self._processes):
            process.give_up()
        await asyncio.gather(*ended)
        await self._engine.stop()


def _gpus(spec: WorkerSpec, device: Device | None) -> int:
    """Returns how many GPUs its /dev must show; slices of one GPU show it once."""
    if not is_gpu(device):
        return 0
    return len(spec.devices) if device is not None and device.kind == "gpu" else 1


class SpawnerByImage:
    """Starts workers with an image as containers, others as plain processes."""

    def __init__(self, plain: Spawner, containers: Spawner) -> None:
        self._plain, self._containers = plain, containers

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        return (self._containers if spec.image else self._plain).spawn(spec, device, watcher)

    async def close(self) -> None:
        await self._plain.close()
        await self._containers.close()
