"""Attempts at a job with their moments, for whoever asks how the job went. Pure.

    assigned ──wait──> started ────execution────> uploading ──> ended
                          first chunk ·

Durations are the agent's and places in time control's, as in `control.traces.spans`: clocks of nodes need not
agree, and no moment lies outside its attempt. What nobody measured is None: an agent tells when an attempt
started once the attempt has ended.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

MOST_ATTEMPTS = 50
"""Attempts that are kept of a job that waits or runs again: the last ones. Refusals and yields are not
counted towards a job's limits, so nothing else bounds them."""

REASON_CHARACTERS = 1_000
"""How many of a reason are kept with its attempt; the last one is whole in the job's record."""


class Attempt(Struct, frozen=True):
    """An attempt as it is stored. Times are seconds since the epoch. `node`: its id; None where control does
    not know any more which node had the worker. `chunk_at`: when its first chunk was stored. `ended_at`: None
    while it runs. `cause`: why it ended, as in Outcome, or as in Changed. `reason`: the same in words, of
    attempts after which the job went on."""

    attempt: int
    worker: str
    node: str | None
    assigned_at: float
    wait_ms: int | None = None
    execution_ms: int | None = None
    chunk_at: float | None = None
    uploading_at: float | None = None
    ended_at: float | None = None
    cause: str = ""
    reason: str | None = None


class JobAttempts(Struct, frozen=True):
    """A job's own times, in seconds since the epoch, and its attempts, oldest first."""

    created_at: float
    ended_at: float | None
    attempts: tuple[Attempt, ...]


class Moments(Struct, frozen=True):
    """An attempt's moments, in seconds since the epoch; None where there was none, or nobody knows it."""

    assigned: float
    started: float | None
    chunk: float | None
    uploading: float | None
    ended: float | None


def moments(attempt: Attempt) -> Moments:
    """Returns the moments of the attempt, none before it was assigned or after its end."""
    assigned, ended = attempt.assigned_at, attempt.ended_at
    if ended is not None:
        ended = max(ended, assigned)
    started = _within(_started(attempt), assigned, ended)
    begun = assigned if started is None else started
    chunk = _within(attempt.chunk_at, begun, ended)
    uploading = _within(_uploading(attempt, started), begun, ended)
    return Moments(assigned, started, chunk, uploading, ended)


def _started(attempt: Attempt) -> float | None:
    """Returns None for an attempt that failed without a millisecond of waiting or work: nobody knows then
    whether it started."""
    measured = attempt.wait_ms or attempt.execution_ms or attempt.cause == "completed"
    return attempt.assigned_at + (attempt.wait_ms or 0) / 1000 if measured else None


def _uploading(attempt: Attempt, started: float | None) -> float | None:
    """Returns the handler's end once that is known: the report that the upload has begun may have waited with
    others."""
    if attempt.uploading_at is None or started is None or attempt.execution_ms is None:
        return attempt.uploading_at
    return started + attempt.execution_ms / 1000


def _within(at: float | None, first: float, last: float | None) -> float | None:
    if at is None:
        return None
    return max(at, first) if last is None else min(max(at, first), last)


def shown(noted: Sequence[Attempt], last: Attempt | None) -> tuple[Attempt, ...]:
    """Returns the attempts at a job, oldest first. `noted`: those that were noted when the job waited again.
    `last`: the one of the job's own row, if that runs or has ended. A lost attempt is in both where its node
    came back: the one that ended the job counts, and for a job that ended while it waited, the noted one."""
    if last is None:
        return tuple(noted)
    before = tuple(one for one in noted if one.attempt != last.attempt)
    same = next((one for one in noted if one.attempt == last.attempt), None)
    return (*before, last if same is None or _ended_by_itself(last, same) else same)


def _ended_by_itself(last: Attempt, noted: Attempt) -> bool:
    if last.ended_at is None:
        return True
    return last.execution_ms is not None and last.ended_at > (noted.ended_at or 0.0)
