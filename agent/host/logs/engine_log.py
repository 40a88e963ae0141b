"""The log of a container as its engine keeps it, read again every second while somebody follows it.

    watch ──> the last lines ──a second──> those that came after them ──> ... stop

Nothing is read while nobody follows. A line has the time that the engine gave it, by which the next reading
goes on; several lines of one nanosecond that fall into two readings count once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from stoker.agent.host.logs.tail import LINE_MAX, WATCHED, Line, last_writing

log = logging.getLogger(__name__)

AGAIN_S = 1.0
_NANO = 1_000_000_000


class Printed(NamedTuple):
    """A line with its time in nanoseconds since the epoch."""

    at_ns: int
    text: str


def parse(output: bytes, after_ns: int) -> list[Printed]:
    """Returns the lines of an engine's output with timestamps that came after a time. What has no time is
    left out; of a line that was overwritten, the last version counts."""
    found = []
    for line in output.split(b"\n"):
        stamp, _, text = line.partition(b" ")
        at_ns = _nanoseconds(stamp.decode(errors="replace"))
        if at_ns is not None and at_ns > after_ns:
            found.append(Printed(at_ns, last_writing(text)[:LINE_MAX].decode(errors="replace")))
    return found


def _nanoseconds(stamp: str) -> int | None:
    whole, dot, rest = stamp.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))] if dot else ""
    try:
        at = datetime.fromisoformat(whole + rest[len(digits) :] if dot else stamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else int(at.timestamp()) * _NANO + int(digits[:9].ljust(9, "0"))


class EngineLog:
    """The log of a container, read from its engine. `read` returns an engine's output from a second of the
    epoch on, or its last lines for None. `after` and `watch` are those of a TailListener; there is one
    watcher at most."""

    def __init__(self, read: Callable[[int | None], Awaitable[bytes]]) -> None:
        self._read = read
        self._lines: deque[Line] = deque(maxlen=WATCHED)
        self._count = 0
        self._last_ns = 0

    def after(self, position: int, *, whole: bool = True) -> tuple[int, tuple[Line, ...]]:
        """Returns the lines from `position` on that are remembered, and the position of the first of them.
        All are `whole`."""
        first = max(position, self._count - len(self._lines))
        left = self._count - first
        return first, tuple(self._lines)[-left:] if left > 0 else ()

    def watch(self, on_lines: Callable[[], None]) -> Callable[[], None]:
        """Reads, and calls `on_lines` after the first reading and after new lines, until the returned
        function is called."""
        reading = asyncio.create_task(self._follow(on_lines), name="read the log of a pod")

        def stop() -> None:
            reading.cancel()

        return stop

    async def _follow(self, on_lines: Callable[[], None]) -> None:
        first = True
        while True:
            try:
                output = await self._read(self._last_ns // _NANO if self._last_ns else None)
            except Exception as error:
                log.debug("the log of a pod cannot be read now: %s", error)
                output = b""
            if new := parse(output, self._last_ns):
                self._last_ns = max(one.at_ns for one in new)
                self._lines.extend(Line(one.at_ns // 1_000_000, one.text) for one in new)
                self._count += len(new)
            if new or first:
                on_lines()
            first = False
            await asyncio.sleep(AGAIN_S)


class FollowedLog(Struct, frozen=True):
    """The log of a pod that may be followed, and the secrets that no line may show."""

    log: EngineLog
    secrets: Sequence[str]
