"""The output that a function prints, copied line by line to where its call was made from.

The copy is of what the function's own thread or task prints, and what it starts by `asyncio.to_thread` or as
a task. What other threads and other programs print is in the worker's log alone, where all of it is.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

CHARACTERS_MAX = 64 << 10
"""Of the lines of one call; a response carries them. Those after are counted."""

LINE_MAX = 2000
"""Characters of a line; the rest of it is left out, as in the log of a job."""


class PrintedLines:
    """The lines of one call. Its texts may come from several threads."""

    def __init__(self, send: Callable[[str], None]) -> None:
        self._send = send
        self._begun: dict[str, str] = defaultdict(str)
        self._left = CHARACTERS_MAX
        self._left_out = 0
        self._lock = threading.RLock()

    def feed(self, stream: str, text: str) -> None:
        """Takes a part of what is printed to `stream`."""
        with self._lock:
            *whole, rest = text.split("\n")
            for line in whole:
                self._line(self._begun.pop(stream, "") + line)
            self._begun[stream] = _last_writing(self._begun[stream] + rest)[:LINE_MAX]

    def close(self) -> None:
        """Sends the last lines, which may have no end, and how many lines were left out."""
        with self._lock:
            for line in filter(None, self._begun.values()):
                self._line(line)
            self._begun.clear()
            if self._left_out:
                self._send(f"… {self._left_out} lines left out")
            self._left_out = 0

    def _line(self, line: str) -> None:
        text = _last_writing(line)[:LINE_MAX]
        self._left -= len(text) + 1
        if self._left < 0:
            self._left_out += 1
        else:
            self._send(text)


def _last_writing(line: str) -> str:
    """Returns what is seen in the end of a line that was overwritten with carriage returns, as a progress bar
    is.
    """
    kept = line.rstrip("\r")
    return kept[kept.rfind("\r") + 1 :]


printed: ContextVar[PrintedLines | None] = ContextVar("printed", default=None)
"""What takes the lines, set around each call that wants them."""


class Copied:
    """A stream of text that is written to as before; `printed` takes a copy."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self._name, self._stream = name, stream

    def write(self, text: str) -> int:
        count = self._stream.write(text)
        lines = printed.get()
        if lines is not None:
            lines.feed(self._name, text)
        return count

    def writelines(self, texts: Any) -> None:
        for text in texts:
            self.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
