"""The spawner of a worker by its kind: `python`, and the kinds of programs, whose spawners are made with the
first worker of theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stoker.agent.errors import SpawnFailed
from stoker.agent.interfaces import Spawner, WorkerProcess, WorkerWatcher
from stoker.agent.workers.processes.spawn_request import Program
from stoker.wire.messages import Device, WorkerSpec


class ProgramSpawner(Protocol):
    """Starts the process of a program: `agent.workers.processes.local_spawner`, or
    `agent.workers.containers.spawner` if it has an image."""

    def spawn(
        self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher, program: Program
    ) -> WorkerProcess: ...


class SpawnerByKind:
    """Chooses the spawner by the kind of the worker. `programs` makes that of each other kind when the first
    worker of it starts, because an HTTP server takes 5 MB of memory."""

    def __init__(self, python: Spawner, **programs: Callable[[], Spawner]) -> None:
        self._by_kind, self._programs = {"python": python}, programs

    def spawn(self, spec: WorkerSpec, device: Device | None, watcher: WorkerWatcher) -> WorkerProcess:
        if spec.kind not in self._by_kind:
            if spec.kind not in self._programs:
                raise SpawnFailed(f"this agent has no workers of kind {spec.kind!r}; update it")
            self._by_kind[spec.kind] = self._programs[spec.kind]()
        return self._by_kind[spec.kind].spawn(spec, device, watcher)

    async def close(self) -> None:
        for spawner in self._by_kind.values():
            await spawner.close()
