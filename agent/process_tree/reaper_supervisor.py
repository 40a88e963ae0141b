"""The agent's hold on its keeper (`agent.keeper`): started, again when it dies, and stopped at the end."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path

from stoker.agent.process_tree import life

log = logging.getLogger(__name__)

KEEPER = Path(__file__).with_name("keeper.py")
AGAIN_S = 1.0


class Keeping:
    """`cgroup` is the folder of the workers' cgroups, `users` their range, where there are such."""

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
            [sys.executable, "-I", "-S", str(KEEPER), *self._arguments],
            cwd="/",
            env={},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._died)

    def _died(self) -> None:
        self._unwatch()
        log.warning("the keeper was killed (%d); another is started", self._process.wait())
        self._again = self._loop.call_later(AGAIN_S, self._start_again)

    def _start_again(self) -> None:
        self._again = None
        try:
            self._start()
        except OSError as error:  # a host without a process or descriptor to spare may have one in a moment
            log.error("no keeper can be started, and it is tried again: %s", error)
            self._again = self._loop.call_later(AGAIN_S, self._start_again)

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)

    def stop(self) -> None:
        """When nothing of the workers is left: it would find nothing."""
        if self._again is not None:
            self._again.cancel()
            return
        self._unwatch()
        self._process.kill()
        self._process.wait()
