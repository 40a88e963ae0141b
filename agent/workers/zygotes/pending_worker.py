"""A worker that waits for a zygote to fork its process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from stoker.agent.errors import SpawnFailed
from stoker.agent.host.logs.tail import LogTail
from stoker.agent.interfaces import WorkerExit, WorkerWatcher
from stoker.agent.workers.processes.running_process import LocalProcess
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.frames import Frame

Make = Callable[[WorkerSpec, Device | None, WorkerWatcher], LocalProcess]
"""Raises SpawnFailed."""


class PendingWorker:
    """Implements WorkerProcess. Keeps the frames that are sent before the worker has a process."""

    def __init__(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        withdrawn: Callable[[PendingWorker], None],
    ) -> None:
        self._arguments = spec, device, watcher
        self._watcher = watcher
        self._withdrawn = withdrawn
        self._process: LocalProcess | None = None
        self.tail, self.image_id = LogTail(), ""
        self._over = False
        self._frames: list[Frame] = []
        self._paused = False

    @property
    def pid(self) -> int:
        """The process id, or 0 before there is a process."""
        return 0 if self._process is None else self._process.pid

    @property
    def alive(self) -> bool:
        return not self._over if self._process is None else self._process.alive

    def begin(self, make: Make) -> bool:
        """Starts its process and returns True, or calls the watcher's `on_exit` and returns False."""
        try:
            self._process = make(*self._arguments)
            self._process.print_to(self.tail)
        except SpawnFailed as error:
            self._end(WorkerExit(1, str(error)))
            return False
        if self._paused:
            self._process.pause()
        try:
            for frame in self._frames:
                self._process.send(frame)
        except OSError:  # no descriptor is left
            self._process.kill()
        return True

    def send(self, frame: Frame) -> None:
        if self._process is not None:
            self._process.send(frame)
        elif not self._over:
            self._frames.append(frame)

    def pause(self) -> None:
        self._paused = True
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        self._paused = False
        if self._process is not None:
            self._process.resume()

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()
        else:
            self._give_up(signal.SIGTERM, "stopped by the agent (SIGTERM)")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
        else:
            self._give_up(signal.SIGKILL, "killed by the agent")

    def _give_up(self, number: int, why: str) -> None:
        if not self._over:
            self._withdrawn(self)
            self._end(WorkerExit(-number, why))

    def _end(self, exit: WorkerExit) -> None:  # noqa: A002
        """Calls `on_exit` from the loop, after the caller has returned."""
        self._over = True
        asyncio.get_running_loop().call_soon(self._watcher.on_exit, exit)
