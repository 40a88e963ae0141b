"""The last lines of what a worker prints, however much it prints.

Pure: bytes in, lines out. A line is cut at LINE_MAX, the rest of it is dropped; KEPT lines are remembered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

LINE_MAX = 4096
KEPT = 64

Sink = Callable[[str], None]


class LogTail:
    """`sink` hears each whole line. Without one, lines that will not be kept are not even decoded."""

    def __init__(self, sink: Sink | None = None) -> None:
        self._sink = sink
        self._kept: deque[bytes] = deque(maxlen=KEPT)
        self._open = b""  # the line that has no end yet, cut

    def feed(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        if not whole:
            self._open = (self._open + rest)[:LINE_MAX]
            return
        whole[0] = self._open + whole[0]
        self._open = rest[:LINE_MAX]
        for line in whole if self._sink else whole[-KEPT:]:
            self._keep(line[:LINE_MAX])

    def close(self) -> None:
        """The last line may have no end."""
        if self._open:
            self._keep(self._open)
        self._open = b""

    def _keep(self, line: bytes) -> None:
        self._kept.append(line)
        if self._sink is not None:
            self._sink(_text(line))

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(map(_text, self._kept))


def _text(line: bytes) -> str:
    return line.rstrip(b"\r").decode("utf-8", "replace")
