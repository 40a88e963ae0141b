"""Starts the agent's reaper (`agent.host.process_tree.reaper`), starts it again when it dies, and stops
it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

from stoker.agent.host.process_tree.tree import life

log = logging.getLogger(__name__)

REAPER = Path(__file__).with_name("reaper.py")
AGAIN_S = 1.0


class ReaperSupervisor:
    """The supervisor of the agent's reaper. `cgroup` is the folder of the workers' cgroups, `users` the range
    of their users, if there are any."""

    def __init__(self, cgroup: Path | None, users: tuple[int, int] | None) -> None:
        between = "" if users is None else f"{users[0]}-{users[1]}"
        self._arguments = [str(os.getpid()), life(), str(cgroup or ""), between]
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _start(self) -> None:
        """Raises OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REAPER), *self._arguments],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._died)

    def _died(self) -> None:
        self._unwatch()
        log.warning("the reaper was killed (%d); another is started", self._process.wait())
        self._again = self._loop.call_later(AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        self._again = None
        try:
            self._start()
        except OSError as error:  # the host may have no process or descriptor left at the moment
            log.error("the reaper cannot be started, and is tried again: %s", error)
            self._again = self._loop.call_later(AGAIN_S, self._start_again)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)

    def stop(self) -> None:
        """Stops the reaper. To be called when no process of a worker is left."""
        if self._again is not None:
            self._again.cancel()
            return
        self._unwatch()
        self._process.kill()
        self._process.wait()
