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


def tried_again(conn: Conn, node: str, outcome: Outcome, now: float) -> WaitsAgain | GivenUp | None:
    """Puts the job of a failed attempt back into the queue, after its back-off, unless it failed often
    enough: then nothing is changed. Returns None where the attempt was over."""
    key = AttemptKey(outcome.job, outcome.attempt)
    values = {"job": key.job, "attempt": key.attempt, "node": node}
    row = conn.run(_OPEN, values).fetchone()
    if row is None:
        return None
    job, (low, refused, backoffs) = WaitsAgain(*row[:9]), row[9:12]
    again, counts, uncounted = _decided(conn, job.seq, outcome, Counts(*row[12:]), now)
    if again.not_before is None:
        return GivenUp(again.why)
    at = place_again(low=low == 1, created_at=job.created_at, not_before=again.not_before, now=now)
    if outcome.end == "yielded":
        at = note_yield(conn, job.seq, now)
    _requeue(conn, values, at, again.why, counts, refused + uncounted, backoffs)
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
    key = AttemptKey(report.job, report.attempt)
    values = {"job": key.job, "attempt": key.attempt, "node": node}
    row = conn.run(_OPEN, values).fetchone()
    if row is None:
        return None
    job, (low, refusals, backoffs) = WaitsAgain(*row[:9]), row[9:12]
    again = after_refusal(backoffs, report.reason, now, at_once=report.at_once)
    backoffs += not report.at_once
    assert again.not_before is not None  # after a refusal nothing gives up
    at = place_again(low=low == 1, created_at=job.created_at, not_before=again.not_before, now=now)
    _requeue(conn, values, at, again.why, Counts(*row[12:]), refusals + 1, backoffs)
    cause = "handed_back" if report.at_once else "refused"
    note_attempt(conn, key, node, cause, again.why, now)
    return Changed(key.job, job.endpoint, JobState.IN_QUEUE, cause=cause)
