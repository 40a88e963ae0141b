"""The pipe that a worker prints to, and the agent's end of it: read on the loop, a piece at a time."""

from __future__ import annotations

import asyncio
import os

from stoker.agent.log_tail import LogTail

READ_MAX = 64 * 1024
READS_MAX = 4
"""At once: more than the kernel holds, and an end for a pipe that is written to for ever."""

WRITABLE = 0o622


def log_pipe() -> tuple[int, int]:
    """The ends to read and to write. Also a worker with a user of its own may open the latter by its name
    (/dev/stdout); nobody else can reach a pipe's name without rights over a process that holds it."""
    log_end, log_start = os.pipe()
    os.fchmod(log_start, WRITABLE)
    return log_end, log_start


class LogPipe:
    """Owns `fd`. One read at each turn of the loop: a worker that floods starves nobody."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, tail: LogTail) -> None:
        self._fd, self._loop, self._tail = fd, loop, tail
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def _read(self) -> bool:
        """Whether something came."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, READ_MAX)
        except BlockingIOError:
            return False
        if not data:
            self._close()
        self._tail.feed(data)
        return bool(data)

    def drain(self) -> None:
        for _ in range(READS_MAX):
            if not self._read():
                break

    def finish(self) -> None:
        self.drain()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
