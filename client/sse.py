"""Reads server-sent events: lines in, events out. Knows nothing of HTTP or of jobs.

Only what the service sends is covered: `event`, `id`, `data` and comments; `retry` is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RawEvent:
    kind: str
    id: str
    data: str


def read_events(lines: Iterable[str]) -> Iterator[RawEvent]:
    """An event is complete at its empty line; one that the end of the stream cut off is dropped."""
    kind, data = "message", list[str]()
    last_id = ""
    for line in lines:
        if not line:
            if data:
                yield RawEvent(kind, last_id, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "id":
            last_id = value
        elif name == "data":
            data.append(value)
