"""Attempts in the store: noted when their job waits again, and read with the one of the job's own row.

    claim ──> jobs: attempt 1 ──lost──> attempts: 1 ──claim──> jobs: attempt 2 ──end──> jobs: attempt 2

A job's row has all that is known of its last attempt, so a job that ends at its first one costs no statement
more. Nodes are looked up by their worker once the row names none.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict

from stoker.control.rules.attempts import MOST_ATTEMPTS, REASON_CHARACTERS, Attempt, JobAttempts, shown
from stoker.control.store.database.opening import Conn
from stoker.wire.messages import AttemptKey

# What an earlier attempt left in a column does not count: its time is before the claim.
_LAST = """
    jobs.seq, jobs.attempt, jobs.worker,
    COALESCE(jobs.node, :node, (SELECT g.node FROM given_workers g WHERE g.worker = jobs.worker)),
    jobs.claimed_at,
    (SELECT c.stored_at FROM chunks c
     WHERE c.seq = jobs.seq AND c.attempt = COALESCE(jobs.stream_attempt, jobs.attempt)
       AND c.stored_at >= jobs.claimed_at ORDER BY c.n LIMIT 1),
    CASE WHEN jobs.uploading_at >= jobs.claimed_at THEN jobs.uploading_at END
"""

# What the attempt's own node says of it replaces what was assumed when the node was lost.
_NOTE = f"""
INSERT INTO attempts (seq, attempt, worker, node, assigned_at, chunk_at, uploading_at,
                      wait_ms, execution_ms, ended_at, cause, reason)
SELECT {_LAST}, CAST(:wait_ms AS BIGINT), CAST(:execution_ms AS BIGINT), :now, :cause, :reason
FROM jobs WHERE jobs.id = :job AND jobs.claimed_at IS NOT NULL AND jobs.worker IS NOT NULL
ON CONFLICT (seq, attempt) DO UPDATE SET chunk_at = excluded.chunk_at, uploading_at = excluded.uploading_at,
    wait_ms = excluded.wait_ms, execution_ms = excluded.execution_ms, ended_at = excluded.ended_at,
    cause = excluded.cause, reason = excluded.reason
WHERE excluded.execution_ms IS NOT NULL
"""
_KEEP = f"""
INSERT INTO attempts (seq, attempt, worker, node, assigned_at, chunk_at, uploading_at,
                      wait_ms, execution_ms, ended_at, cause, reason)
VALUES (:seq, :attempt, :worker, :node, :assigned_at, :chunk_at, :uploading_at,
        :wait_ms, :execution_ms, :ended_at, :cause,
        (SELECT SUBSTR(error, 1, {REASON_CHARACTERS}) FROM results WHERE seq = :seq))
ON CONFLICT (seq, attempt) DO UPDATE SET chunk_at = excluded.chunk_at, uploading_at = excluded.uploading_at,
    wait_ms = excluded.wait_ms, execution_ms = excluded.execution_ms, ended_at = excluded.ended_at,
    cause = excluded.cause, reason = excluded.reason
"""
_ANEW = f"""
UPDATE attempts SET reason = SUBSTR(COALESCE(reason || '; ', '') || :why, 1, {REASON_CHARACTERS})
WHERE seq = :seq AND attempt = (SELECT MAX(latest.attempt) FROM attempts latest WHERE latest.seq = :seq)
"""
_BOUND = """
DELETE FROM attempts WHERE attempt <= :upto AND seq = (SELECT seq FROM jobs WHERE id = :job)
"""
_RESUMED = """
DELETE FROM attempts WHERE attempt = :attempt AND seq = (SELECT seq FROM jobs WHERE id = :job)
"""
_ROW = f"""
SELECT {_LAST}, jobs.created_at, jobs.ended_at, jobs.state,
    CASE WHEN jobs.execution_ms IS NOT NULL THEN jobs.delay_ms - {{ms jobs.claimed_at - jobs.created_at}} END,
    jobs.execution_ms, jobs.node
FROM jobs
WHERE jobs.id = :job AND jobs.account = :account AND jobs.endpoint = :endpoint AND jobs.expires_at > :now
"""
_NOTED = """
SELECT attempt, worker, node, assigned_at, wait_ms, execution_ms, chunk_at, uploading_at, ended_at, cause,
    reason
FROM attempts WHERE seq = :seq ORDER BY attempt
"""


def note_attempt(
    conn: Conn,
    key: AttemptKey,
    node: str | None,
    cause: str,
    reason: str | None,
    now: float,
    took_ms: tuple[int, int] | None = None,
) -> None:
    """Notes the last attempt at a job, which waits again, or failed for good. `took_ms`: how long it waited
    on its node and then ran, where its node says so."""
    wait_ms, execution_ms = took_ms or (None, None)
    values = {"job": key.job, "node": node, "cause": cause, "now": now}
    values["reason"] = None if reason is None else reason[:REASON_CHARACTERS]
    conn.run(_NOTE, values | {"wait_ms": wait_ms, "execution_ms": execution_ms})
    if key.attempt > MOST_ATTEMPTS:
        conn.run(_BOUND, {"job": key.job, "upto": key.attempt - MOST_ATTEMPTS})


def note_new_beginning(conn: Conn, seq: int, why: str) -> None:
    """Adds to the attempt that was noted last why the next one begins anew."""
    conn.run(_ANEW, {"seq": seq, "why": why})


def resume_attempt(conn: Conn, key: AttemptKey) -> None:
    """Forgets that the attempt was lost: its node came back with it."""
    conn.run(_RESUMED, {"job": key.job, "attempt": key.attempt})


def keep_last(conn: Conn, seq: int, before: JobAttempts) -> None:
    """Notes the attempt that ended the job, which its caller has tried again since; the job's result is still
    there. `before`: the attempts as they were read before that. One with a reason was noted already."""
    last = before.attempts[-1] if before.attempts else None
    if last is not None and last.reason is None:
        conn.run(_KEEP, {"seq": seq, **asdict(last)})


def job_attempts(conn: Conn, account: str, endpoint: str, job: str, now: float) -> JobAttempts | None:
    """Returns the attempts at a job, oldest first; None when there is no such job."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now, "node": None}
    row = conn.run(_ROW, values).fetchone()
    if row is None:
        return None
    noted = [Attempt(*found) for found in conn.run(_NOTED, {"seq": row[0]})]
    return JobAttempts(row[7], row[8], shown(noted, _last(row)))


def _last(row: Any) -> Attempt | None:
    """Returns the attempt of a job's row; None where it had none, or waits, or ended while it waited."""
    attempt, worker, node, claimed_at, chunk_at, uploading_at, _, ended_at, state = row[1:10]
    wait_ms, execution_ms, holder = row[10:]
    ran = state == "IN_PROGRESS" or (
        ended_at is not None and (execution_ms is not None or holder is not None)
    )
    if claimed_at is None or worker is None or not ran:
        return None
    cause = "" if ended_at is None else state.lower()
    return Attempt(
        attempt,
        worker,
        node,
        claimed_at,
        wait_ms,
        execution_ms,
        chunk_at,
        uploading_at,
        ended_at,
        cause,
    )
