"""The tail of a worker's log: its pipe, read on the loop, and the last lines, however much the worker prints.

A line is cut at LINE_MAX bytes. Of a line that was overwritten with carriage returns (a progress bar) the
last version counts. Its time is that at which its end was read. KEPT lines are remembered, WATCHED lines
while there is a watcher. What an attempt printed is what came after it began to listen.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

LINE_MAX = 8192
KEPT = 100
WATCHED = 1000

READ_MAX = 64 * 1024
READS_MAX = 4
"""At once: more than the kernel holds, and an end for a pipe that is written to without end."""

WRITABLE = 0o622


class Line(NamedTuple):
    """A line, and when it was printed: milliseconds since the epoch."""

    at_ms: int
    text: str


class LogTail:
    """The tail of what a worker printed. `kept` are the last of `count` lines, each with its time; `open` is
    the line that has no end yet, cut. Lines that will not be kept are not processed. `drain` reads what waits
    in the worker's pipe, once there is one. `wall` returns seconds since the epoch."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self.kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self.open = b""
        self.count = 0
        self._wall = wall
        self._read_ms = 0
        self.drain: Callable[[], object] = lambda: None
        self._watchers: list[Callable[[], None]] = []

    def feed(self, data: bytes) -> None:
        self._read_ms = int(self._wall() * 1000)
        *whole, rest = data.split(b"\n")
        if not whole:
            self.open = last_writing(self.open + rest)[:LINE_MAX]
            return
        whole[0] = self.open + whole[0]
        self.open = last_writing(rest)[:LINE_MAX]
        kept = whole[-WATCHED if self._watchers else -KEPT :]
        self.count += len(whole) - len(kept)
        for line in kept:
            self._keep(last_writing(line)[:LINE_MAX])
        for on_lines in tuple(self._watchers):
            on_lines()

    def close(self) -> None:
        """Keeps the last line, which may have no end; it was printed when its last part was."""
        if self.open:
            self._keep(self.open)
        self.open = b""

    def listen(self) -> TailListener:
        """Listens to what is printed from now on. A line that has no end yet ends here."""
        self.drain()
        if self.open:
            self.close()
        return TailListener(self, self.count)

    def watch(self, on_lines: Callable[[], None]) -> Callable[[], None]:
        """Calls `on_lines` after new lines, until the returned function is called."""
        self._watchers.append(on_lines)
        self._remember(WATCHED)

        def stop() -> None:
            self._watchers.remove(on_lines)
            if not self._watchers:
                self._remember(KEPT)

        return stop

    def _remember(self, lines: int) -> None:
        if self.kept.maxlen != lines:
            self.kept = deque(self.kept, maxlen=lines)

    def _keep(self, line: bytes) -> None:
        self.count += 1
        self.kept.append((self._read_ms, line))

    @property
    def open_line(self) -> tuple[int, bytes]:
        """The line that has no end yet, with the time of its last part."""
        return self._read_ms, self.open

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(_text(line) for _, line in self.kept)[-KEPT:]


class TailListener(Struct, frozen=True):
    """The view of a log tail from the line `begin` on. It may be made and used after the worker's death,
    too."""

    tail: LogTail
    begin: int

    def after(self, position: int, *, whole: bool = True) -> tuple[int, tuple[Line, ...]]:
        """Returns the lines from `position` on, counted from 0, that are remembered, and the position of the
        first of them: a later one where some lines are lost. With `whole`, a line that has no end yet is left
        out."""
        tail = self.tail
        tail.drain()
        end, lines = tail.count, [*tail.kept]
        if tail.open and not whole:
            end, lines = end + 1, [*lines, tail.open_line]
        new = min(end - self.begin - position, len(lines))
        found = lines[-new:] if new else []
        return end - new - self.begin, tuple([Line(at_ms, _text(line)) for at_ms, line in found])

    def watch(self, on_lines: Callable[[], None]) -> Callable[[], None]:
        return self.tail.watch(on_lines)


def log_pipe() -> tuple[int, int]:
    """Returns the ends of a new pipe to read and to write. Also a worker with a user of its own may open the
    latter by its name (/dev/stdout); no other process can open a pipe by its name without rights over a
    process that holds the pipe."""
    log_read, log_write = os.pipe()
    os.fchmod(log_write, WRITABLE)
    return log_read, log_write


class LogPipe:
    """Owns `fd`. One read at each turn of the loop: a worker that floods delays nothing else."""

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop, tail: LogTail) -> None:
        self._fd, self._loop, self._tail = fd, loop, tail
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)
        tail.drain = self.drain

    def feed_to(self, tail: LogTail) -> None:
        """Feeds this tail from now on, in place of the one before."""
        self._tail, tail.drain = tail, self.drain

    def _read(self) -> None:
        self.drain(1)

    def drain(self, reads: int = READS_MAX) -> None:
        """Reads what waits."""
        try:
            while self._fd >= 0 and reads:
                if data := os.read(self._fd, READ_MAX):
                    self._tail.feed(data)
                    reads -= 1
                else:
                    self._close()
        except BlockingIOError:
            return

    def finish(self) -> None:
        self.drain()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


def last_writing(line: bytes) -> bytes:
    """Returns what a terminal shows of the line. A carriage return at its end overwrites nothing yet."""
    end = len(line.rstrip(b"\r"))
    return line[line.rfind(b"\r", 0, end) + 1 :]


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")
