"""A worker that waits for a template: until that forks one for it, it has no process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from stoker.agent.log_tail import Heard, LogTail
from stoker.agent.seams import Listener, SpawnFailed, WorkerExit, WorkerWatcher
from stoker.agent.started_process import LocalProcess
from stoker.wire.messages import Device, WorkerSpec
from stoker.worker.frames import Frame

Make = Callable[[WorkerSpec, Device | None, WorkerWatcher], LocalProcess]
"""Raises SpawnFailed."""


class WaitingWorker:
    """What is asked of it while it has no process is done when it has one."""

    def __init__(
        self,
        spec: WorkerSpec,
        device: Device | None,
        watcher: WorkerWatcher,
        withdrawn: Callable[[WaitingWorker], None],
    ) -> None:
        self._given = spec, device, watcher
        self._watcher = watcher
        self._withdrawn = withdrawn
        self._process: LocalProcess | None = None
        self._over = False
        self._frames: list[Frame] = []
        self._paused = False

    @property
    def pid(self) -> int:
        """0 while there is none."""
        return 0 if self._process is None else self._process.pid

    def begin(self, make: Make) -> bool:
        """Whether it has a process now; without one its exit is told."""
        try:
            self._process = make(*self._given)
        except SpawnFailed as error:
            self._end(WorkerExit(1, str(error)))
            return False
        if self._paused:
            self._process.pause()
        for frame in self._frames:
            self._process.send(frame)
        return True

    def send(self, frame: Frame) -> None:
        if self._process is not None:
            self._process.send(frame)
        elif not self._over:
            self._frames.append(frame)

    def listen(self) -> Listener:
        return Heard(LogTail()) if self._process is None else self._process.listen()

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

    def _end(self, told: WorkerExit) -> None:
        """Told from the loop: whoever calls must have returned before."""
        self._over = True
        asyncio.get_running_loop().call_soon(self._watcher.on_exit, told)
