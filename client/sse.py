"""Reads server-sent events: bytes in, events out. Knows nothing of HTTP or of jobs.

Only what the service sends is covered: `event`, `id`, `data` and comments; `retry` is ignored. A line ends
with a line feed and with nothing else: JSON text may hold the other letters that `splitlines` breaks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawEvent:
    kind: str
    id: str
    data: str


class EventReader:
    """An event is complete at its empty line; one that the end of the stream cut off is dropped."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line that has not ended
        self._kind, self._data = "message", list[str]()
        self._last_id = ""

    def feed(self, data: bytes) -> Iterator[RawEvent]:
        """The events that are complete with these bytes."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            whole = b"".join([*self._rest, line])
            self._rest = []
            event = self.line(whole.decode("utf-8", "replace").removesuffix("\r"))
            if event is not None:
                yield event
        self._rest.append(rest)

    def line(self, line: str) -> RawEvent | None:
        """The event that this line, without its end, completes."""
        if not line:
            kind, data = self._kind, self._data
            self._kind, self._data = "message", []
            return RawEvent(kind, self._last_id, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._kind = value
        elif name == "id":
            self._last_id = value
        elif name == "data":
            self._data.append(value)
        return None


def read_events(lines: Iterable[str]) -> Iterator[RawEvent]:
    """The same from lines."""
    reader = EventReader()
    for line in lines:
        if (event := reader.line(line)) is not None:
            yield event
