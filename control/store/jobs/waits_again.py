"""Attempts after which their job waits again, as their nodes report them: those that failed or yielded, and
those that the agent refused or handed back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.order import Place, place_again
from stoker.control.rules.retries import (
    Again,
    Counts,
    after_failure,
    after_lost_save,
    after_refusal,
    after_yield,
)
from stoker.control.rules.types import Changed
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.attempts import note_attempt
from stoker.control.store.jobs.saves import has_progressed, void_save
from stoker.control.store.jobs.yields import note_yield
from stoker.wire.messages import AttemptKey, Outcome, Refused

_OPEN = f"""
SELECT seq, account, endpoint, api_key, metered, own_bucket, created_at, claimed_at, traceparent,
       low, refused, backoffs, failures, handler_failures, max_attempts, handler_retries
FROM jobs WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("retry")}
"""

_REQUEUE = f"""
UPDATE jobs SET state = 'IN_QUEUE', node = NULL, suspect = 0, uploading = 0, not_before = :not_before,
    failures = :failures, handler_failures = :handler_failures, refused = :refused, backoffs = :backoffs,
    rank = :rank, reason = :reason
WHERE id = :job AND attempt = :attempt AND node = :node AND {guard("retry")}
"""


class WaitsAgain(NamedTuple):
    """A job that is back in the queue, with what its attempt is recorded by. `metered`: its GPU time counts
    for a quota."""

    seq: int
    account: str
    endpoint: str
    api_key: str
    metered: int
    own_bucket: int
    created_at: float
    claimed_at: float
    traceparent: str | None


class GivenUp(NamedTuple):
    """A job that is not tried again. `why`: its error."""

    why: str


class _Open(NamedTuple):
    """A job whose attempt is not over. `attempt`: the values that name it in a statement."""

    attempt: dict[str, Any]
    job: WaitsAgain
    low: bool
    refused: int
    backoffs: int
    counts: Counts


def _open(conn: Conn, node: str, report: Outcome | Refused) -> _Open | None:
    """Returns the job of the report, None where its attempt was over."""
    attempt = {"job": report.job, "attempt": report.attempt, "node": node}
    row = conn.run(_OPEN, attempt).fetchone()
    if row is None:
        return None
    low, refused, backoffs = row[9:12]
    return _Open(attempt, WaitsAgain(*row[:9]), low == 1, refused, backoffs, Counts(*row[12:]))


def tried_again(conn: Conn, node: str, outcome: Outcome, now: float) -> WaitsAgain | GivenUp | None:
    """Puts the job of a failed attempt back into the queue, after its back-off, unless it failed often
    enough: then nothing is changed. Returns None where the attempt was over."""
    if (found := _open(conn, node, outcome)) is None:
        return None
    job = found.job
    again, counts, uncounted = _decided(conn, job.seq, outcome, found.counts, now)
    if again.not_before is None:
        return GivenUp(again.why)
    at = place_again(low=found.low, created_at=job.created_at, not_before=again.not_before, now=now)
    if outcome.end == "yielded":
        at = note_yield(conn, job.seq, now)
    _requeue(conn, found.attempt, at, again.why, counts, found.refused + uncounted, found.backoffs)
    key = AttemptKey(outcome.job, outcome.attempt)
    note_attempt(conn, key, node, outcome.end, again.why, now, (outcome.wait_ms, outcome.execution_ms))
    return job


def _decided(
    conn: Conn, seq: int, outcome: Outcome, counts: Counts, now: float
) -> tuple[Again, Counts, bool]:
    """Decides what follows the attempt. The last value: the attempt is not counted as one at all."""
    if outcome.end == "yielded":
        return after_yield(outcome.error or "", now), counts, True
    if outcome.save_gone and void_save(conn, seq):
        return after_lost_save(outcome.error or "its save is gone", now), counts, True
    progressed = has_progressed(conn, outcome.job)
    return (
        *after_failure(outcome.end, outcome.retryable, outcome.error, counts, now, progressed=progressed),
        False,
    )


def _requeue(
    conn: Conn, values: dict[str, Any], at: Place, why: str, counts: Counts, refused: int, backoffs: int
) -> None:
    conn.run(
        _REQUEUE,
        values
        | {
            "not_before": at.since,
            "failures": counts.failures,
            "handler_failures": counts.handler_failures,
            "refused": refused,
            "backoffs": backoffs,
            "rank": at.lane,
            "reason": why,
        },
    )


def refused(conn: Conn, node: str, report: Refused, now: float) -> Changed | None:
    """Puts the job back into the queue, uncounted; after a wait, unless it was handed back for another worker
    to have. Returns None where the attempt was over."""
    if (found := _open(conn, node, report)) is None:
        return None
    key, job = AttemptKey(report.job, report.attempt), found.job
    again = after_refusal(found.backoffs, report.reason, now, at_once=report.at_once)
    backoffs = found.backoffs + (not report.at_once)
    assert again.not_before is not None  # after a refusal nothing gives up
    at = place_again(low=found.low, created_at=job.created_at, not_before=again.not_before, now=now)
    _requeue(conn, found.attempt, at, again.why, found.counts, found.refused + 1, backoffs)
    cause = "handed_back" if report.at_once else "refused"
    note_attempt(conn, key, node, cause, again.why, now)
    return Changed(key.job, job.endpoint, JobState.IN_QUEUE, cause=cause)
