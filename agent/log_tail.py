"""The last lines of what a worker prints, however much it prints.

Pure: bytes in, lines out. A line is cut at LINE_MAX bytes, the rest of it is dropped; KEPT lines are
remembered. What one attempt printed is what came since the mark that was set when it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

LINE_MAX = 8192
KEPT = 100

Sink = Callable[[str], None]


class LogTail:
    """`sink` hears each whole line. Without one, lines that will not be kept are not even decoded."""

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self._kept: deque[bytes] = deque(maxlen=KEPT)
        self._open = b""  # the line that has no end yet, cut
        self._count = 0  # of all lines so far

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if not whole:
            self._open = (self._open + rest)[:LINE_MAX]
            return
        whole[0] = self._open + whole[0]
        self._open = rest[:LINE_MAX]
        kept = whole if self._sink else whole[-KEPT:]
        self._count += len(whole) - len(kept)
        for line in kept:
            self._keep(line[:LINE_MAX])

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

    def _keep(self, line: bytes) -> None:
        self._count += 1
        self._kept.append(line)
        if self._sink is not None:
            self._sink(_text(line))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(map(_text, self._kept))


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")
