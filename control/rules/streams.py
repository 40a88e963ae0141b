"""The events that readers of a job's stream and of its logs receive.

Plain frozen data, as in `control.rules.types`; `control.http.calls.event_stream` writes them on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.control.rules.types import JobView
from stoker.wire.messages import Ref


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk of partial output; a chunk over 1 MB is where `ref` says, and `value` is empty then."""

    attempt: int
    n: int
    value: bytes
    ref: Ref | None = None


@dataclass(frozen=True, slots=True)
class Cursor:
    """The place up to which pollers of a stream have read; `end_reported`: its end, too."""

    attempt: int = 0
    n: int = -1
    end_reported: bool = False


@dataclass(frozen=True, slots=True)
class StreamPoll:
    """The answer to a poll of a stream. `cursor` is what to `advance` to once the answer was written.
    `end_reported`: pollers had already received the end."""

    view: JobView
    chunks: tuple[StoredChunk, ...]
    cursor: Cursor
    end_reported: bool = False


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """A server-sent event. Ids read `attempt-n`; `reset` says that an earlier attempt's chunks are void."""

    kind: str  # chunk, progress, reset, end
    attempt: int
    n: int
    value: bytes
    view: JobView | None = None
    ref: Ref | None = None


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The last lines that a handler wrote during one attempt; `first` counts those that came before."""

    attempt: int
    worker: str
    lines: tuple[str, ...]
    first: int = 0


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A server-sent event of a job's logs. Ids read `attempt-n`. `reset`: a new attempt begins; `skipped`:
    this many `lines` up to this one were deleted."""

    kind: str  # log, skipped, reset, end
    attempt: int
    n: int = -1
    line: str = ""
    lines: int = 0
    view: JobView | None = None
