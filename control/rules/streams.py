"""The events that readers of a job's stream and of its logs receive.

Plain frozen data, as in `control.rules.types`; `control.http.calls.event_stream` writes them on the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import NamedTuple

from msgspec import Struct

from stoker.control.rules.types import JobView
from stoker.wire.messages import Ref


class StoredChunk(Struct, frozen=True):
    """A chunk of partial output; a chunk over 1 MB is where `ref` says, and `value` is empty then."""

    attempt: int
    n: int
    value: bytes
    ref: Ref | None = None


class Cursor(Struct, frozen=True):
    """The place up to which pollers of a stream have read; `end_reported`: its end, too."""

    attempt: int = 0
    n: int = -1
    end_reported: bool = False


class StreamPoll(Struct, frozen=True):
    """The answer to a poll of a stream. `cursor` is what to `advance` to once the answer was written.
    `end_reported`: pollers had already received the end."""

    view: JobView
    chunks: tuple[StoredChunk, ...]
    cursor: Cursor
    end_reported: bool = False


class StreamEvent(Struct, frozen=True):
    """A server-sent event. Ids read `attempt-n`; `reset` says that an earlier attempt's chunks are void."""

    kind: str  # chunk, progress, reset, end
    attempt: int
    n: int
    value: bytes
    view: JobView | None = None
    ref: Ref | None = None


class LogLine(NamedTuple):
    """A line of a log, with its number. `at_ms`: when it was printed, since the epoch; None if that is not
    known."""

    n: int
    text: str
    at_ms: int | None = None


def numbered(first: int, lines: Sequence[str], times: Sequence[int]) -> list[LogLine]:
    """Returns the lines, the first with this number; `times` has a time for each line, or is empty."""
    return [LogLine(n, *both) for n, both in enumerate(zip_longest(lines, times), first)]


class AttemptLog(Struct, frozen=True):
    """The last lines that a handler wrote during one attempt; `first` counts those that came before. `times`:
    when each was printed, in milliseconds since the epoch; empty where the node did not say."""

    attempt: int
    worker: str
    lines: tuple[str, ...]
    first: int = 0
    times: tuple[int, ...] = ()

    def numbered(self) -> list[LogLine]:
        """Returns the lines with their numbers and times."""
        return numbered(self.first, self.lines, self.times)


class LogEvent(Struct, frozen=True):
    """A server-sent event of the log of a job or a worker. Ids read `attempt-n`, with 0 for a worker.
    `reset`: a new attempt begins; `skipped`: this many `lines` up to this one were deleted. `at_ms`: when the
    line was printed, if that is known. The `end` has the job's `view`, or the name of the `worker`."""

    kind: str  # log, skipped, reset, end
    attempt: int
    n: int = -1
    line: str = ""
    lines: int = 0
    view: JobView | None = None
    at_ms: int | None = None
    worker: str = ""
