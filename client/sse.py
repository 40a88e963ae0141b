"""A parser of server-sent events from bytes. Knows nothing of HTTP or of jobs.

Covers what the service sends: `event`, `id`, `data` and comments; `retry` is ignored. Only a line feed ends a
line: JSON text may contain the other characters that `splitlines` splits at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawEvent:
    kind: str
    id: str
    data: str


class EventReader:
    """A reader of one stream of bytes. An event ends with an empty line. An event that the end of the stream
    cuts off is dropped."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # chunks of a line that has not ended
        self._kind, self._data = "message", list[str]()
        self._last_id = ""

    def feed(self, data: bytes) -> Iterator[RawEvent]:
        """Yields the events that these bytes complete."""
        *ended, rest = data.split(b"\n")
        for line in ended:
            whole = b"".join([*self._rest, line])
            self._rest = []
            event = self._line(whole.decode("utf-8", "replace").removesuffix("\r"))
            if event is not None:
                yield event
        self._rest.append(rest)

    def _line(self, line: str) -> RawEvent | None:
        """Returns the event that this line completes, if any. `line` has no line feed."""
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
