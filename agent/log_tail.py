"""The last lines of what a worker prints, however much it prints.

Pure: bytes in, lines out. A line is cut at LINE_MAX bytes, the rest of it is dropped; of one that was written
over (a progress bar's, by carriage returns) the last writing is the line. KEPT lines are remembered, WATCHED
of them while somebody watches. What one attempt printed is what came since the mark that was set when it
began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

LINE_MAX = 8192
KEPT = 100
WATCHED = 1000


class LogTail:
    """Lines that will not be kept are not even looked at."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque(maxlen=KEPT)
        self._open = b""  # the line that has no end yet, cut
        self._count = 0  # of all lines so far
        self._watchers: list[Callable[[], None]] = []

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if not whole:
            self._open = _last_writing(self._open + rest)[:LINE_MAX]
            return
        whole[0] = self._open + whole[0]
        self._open = _last_writing(rest)[:LINE_MAX]
        kept = whole[-WATCHED if self._watchers else -KEPT :]
        self._count += len(whole) - len(kept)
        for line in kept:
            self._keep(_last_writing(line)[:LINE_MAX])
        for rings in tuple(self._watchers):
            rings()

    def close(self) -> None:
        """The last line may have no end."""
        if self._open:
            self._keep(self._open)
        self._open = b""

    def mark(self) -> int:
        """The place of the next line. One that has no end yet ends here: it belongs to what was before."""
        self.close()
        return self._count

    def since(self, mark: int) -> tuple[str, ...]:
        """What is remembered of the lines from that place on, one without an end included."""
        lines = [*self._kept, self._open] if self._open else [*self._kept]
        new = self._count - mark + bool(self._open)
        return tuple(map(_text, lines[-new:])) if new else ()

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def mark_of_next(self) -> int:
        """How many lines there were, one without an end included."""
        return self._count + bool(self._open)

    def watch(self, rings: Callable[[], None]) -> Callable[[], None]:
        """`rings` is called after new lines, until what is returned here is called."""
        self._watchers.append(rings)
        self._remember(WATCHED)

        def stop() -> None:
            self._watchers.remove(rings)
            if not self._watchers:
                self._remember(KEPT)

        return stop

    def _remember(self, lines: int) -> None:
        if self._kept.maxlen != lines:
            self._kept = deque(self._kept, maxlen=lines)

    def _keep(self, line: bytes) -> None:
        self._count += 1
        self._kept.append(line)

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(map(_text, self._kept))[-KEPT:]


class Heard:
    """What is printed from its making on. `drain` reads what waits in the pipe; it may be made, and asked,
    after the worker's death, too."""

    def __init__(self, tail: LogTail, drain: Callable[[], object] = lambda: None) -> None:
        self._tail, self._drain = tail, drain
        drain()
        self._mark = tail.mark()

    def lines(self) -> tuple[int, tuple[str, ...]]:
        """The last ones that are remembered, one without an end included; and how many came before them."""
        return self.after(0, whole=False)

    def after(self, place: int, *, whole: bool = True) -> tuple[int, tuple[str, ...]]:
        """Those from `place` on that are remembered, and the place of the first of them: later than was asked
        where some are gone. With `whole`, a line that has no end yet waits."""
        self._drain()
        lines = self._tail.since(self._mark + place)
        end = self._tail.mark_of_next() - self._mark
        if whole and self._tail.has_open:
            lines, end = lines[:-1], end - 1
        return end - len(lines), lines

    def watch(self, rings: Callable[[], None]) -> Callable[[], None]:
        return self._tail.watch(rings)


def _last_writing(line: bytes) -> bytes:
    """What a terminal shows of it. A return at the end has nothing written over yet."""
    end = len(line.rstrip(b"\r"))
    return line[line.rfind(b"\r", 0, end) + 1 :]


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")
