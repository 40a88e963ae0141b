"""The orders of callers for stored jobs: cancel a job, end jobs that took too long, clear the queue, try a
job again, keep a job no longer than to a time, delete a job.

Each is one guarded statement; what it leaves behind goes in the same transaction. An order that comes too
late changes nothing, and the job is given back as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stoker.control.rules.job_states import PURGED, JobState
from stoker.control.rules.queueing.deadlines import missed
from stoker.control.rules.queueing.order import IN_LINE, RETRY
from stoker.control.rules.queueing.priorities import HEAD_START_S, Priority
from stoker.control.rules.types import Changed, JobView
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.attempts import job_attempts, keep_last
from stoker.control.store.jobs.cases import drop_case
from stoker.control.store.jobs.orphan_objects import has_delivered, note_orphans, prefixes, release
from stoker.control.store.jobs.reads import NO_REF, view, view_of_row
from stoker.control.store.jobs.saves import drop_save
from stoker.control.store.jobs.webhook_outbox import note_end
from stoker.wire.messages import AttemptKey

DELETED = "the endpoint was deleted"
"""Why jobs of a deleted endpoint were cancelled."""

# ---- cancel and purge ---------------------------------------------------------------------------

# `node` stays: what the attempt cost may still be reported.
_END = """
UPDATE jobs SET state = :state, ended_at = :now, suspect = 0, uploading = 0, reason = :reason,
    delay_ms = COALESCE(delay_ms, {ms :now - created_at}), expires_at = {kept}, held_from = NULL
"""
_ENDED = """
RETURNING id, endpoint, state, created_at, sync, attempt, refused, worker, delay_ms, execution_ms, webhook,
    not_before, reason, node, seq, traceparent, stream_attempt
"""

_CANCEL = f"""{_END}
WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now AND {guard("cancel")}
{_ENDED}"""

_END_WAIT = f"""{_END}
WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now AND {guard("wait_over")}
{_ENDED}"""

# `seq + 0`: the queue's own index is to be walked, and not that of all jobs.
_PURGE = f"""{_END}
WHERE seq IN (SELECT seq FROM jobs
              WHERE endpoint = :endpoint AND {guard("purge")} AND account = :account AND seq + 0 <= :upto
                AND expires_at > :now
              ORDER BY rank, not_before, seq LIMIT :limit)
{_ENDED}"""


def cancel(
    conn: Conn, account: str, endpoint: str, job: str, now: float
) -> tuple[JobView | None, Changed | None]:
    """Cancels the job at once, if it had not ended. Returns its view, and what changed."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run(_CANCEL, values | {"state": "CANCELLED", "reason": None}).fetchone()
    if row is None:
        return view(conn, account, endpoint, job, now), None
    changed = _ended(conn, row, now)
    conn.write("count", {"account": account, "endpoint": endpoint, "name": "cancelled", "by": 1})
    return changed.view, changed


def end_wait(
    conn: Conn, account: str, endpoint: str, job: str, now: float, why: str
) -> tuple[JobView | None, Changed | None]:
    """Ends the job as TIMED_OUT with this error, if it had not ended. Returns its view, and what changed."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run(_END_WAIT, values | {"state": "TIMED_OUT", "reason": None}).fetchone()
    if row is None:
        return view(conn, account, endpoint, job, now), None
    changed = _timed_out(conn, row, account, now, why)
    return changed.view, changed


def _timed_out(conn: Conn, row: Any, account: str, now: float, why: str) -> Changed:
    conn.write("insert_result", {"seq": row[14], "output": None, "error": why, **NO_REF})
    conn.write("count", {"account": account, "endpoint": row[1], "name": "failed", "by": 1})
    return _ended(conn, row, now, why)


_END_LATE = f"""{_END}
WHERE {guard("wait_over")} AND seq IN (
    SELECT seq FROM jobs
    WHERE late_at <= :now AND late_at IS NOT NULL AND ended_at IS NULL AND expires_at > :now
    ORDER BY late_at LIMIT :limit)
{_ENDED}, account, late_at, deadline"""


def end_late(conn: Conn, now: float, limit: int) -> tuple[Changed, ...]:
    """Ends at most `limit` jobs as TIMED_OUT that missed a deadline, waiting or running. Fewer: it is
    done."""
    rows = conn.run(_END_LATE, {"now": now, "limit": limit, "state": "TIMED_OUT", "reason": None}).fetchall()
    return tuple(_timed_out(conn, row, row[17], now, missed(row[3], row[18], row[19])) for row in rows)


def purge(conn: Conn, account: str, endpoint: str, upto: int, now: float, limit: int) -> tuple[Changed, ...]:
    """Cancels at most `limit` waiting jobs, none that came after `upto`. Fewer than that: it is done."""
    values = {"account": account, "endpoint": endpoint, "upto": upto, "now": now, "limit": limit}
    rows = conn.run(_PURGE, values | {"state": "CANCELLED", "reason": PURGED}).fetchall()
    if rows:
        conn.write("count", {"account": account, "endpoint": endpoint, "name": "cancelled", "by": len(rows)})
    return tuple(_ended(conn, row, now) for row in rows)


_PURGE_AHEAD = f"""{_END}
WHERE id = :job AND attempt = :attempt AND account = :account AND endpoint = :endpoint AND seq <= :upto
  AND expires_at > :now AND {guard("cancel")}
{_ENDED}"""


def purge_ahead(
    conn: Conn, account: str, endpoint: str, upto: int, now: float, keys: Iterable[AttemptKey]
) -> tuple[Changed, ...]:
    """Cancels these attempts, which lie ahead of a worker, as `purge` does those that no worker has."""
    values = {"account": account, "endpoint": endpoint, "upto": upto, "now": now}
    values |= {"state": "CANCELLED", "reason": PURGED}
    found = [conn.run(_PURGE_AHEAD, values | {"job": key.job, "attempt": key.attempt}) for key in keys]
    rows = [row for one in found if (row := one.fetchone()) is not None]
    if rows:
        conn.write("count", {"account": account, "endpoint": endpoint, "name": "cancelled", "by": len(rows)})
    return tuple(_ended(conn, row, now) for row in rows)


_CANCEL_ALL = f"""{_END}
WHERE seq IN (SELECT seq FROM jobs WHERE endpoint = :endpoint AND {guard("cancel")} AND expires_at > :now
              ORDER BY seq LIMIT :limit)
{_ENDED}"""


def cancel_all(conn: Conn, endpoint: str, now: float, limit: int) -> tuple[Changed, ...]:
    """Cancels at most `limit` jobs of an endpoint that was deleted, waiting or running. Fewer: it is done."""
    values = {"endpoint": endpoint, "now": now, "limit": limit, "state": "CANCELLED", "reason": DELETED}
    rows = conn.run(_CANCEL_ALL, values).fetchall()
    return tuple(_ended(conn, row, now) for row in rows)


# As both columns of the list's index order it: MAX(seq) may read every endpoint's jobs.
_NEWEST = """
SELECT seq FROM jobs WHERE endpoint >= :endpoint AND endpoint <= :endpoint
ORDER BY endpoint DESC, seq DESC LIMIT 1
"""


def newest(conn: Conn, endpoint: str) -> int:
    """Returns the number of the endpoint's last job; 0 where there is none."""
    row = conn.run(_NEWEST, {"endpoint": endpoint}).fetchone()
    return 0 if row is None else int(row[0])


def _ended(conn: Conn, row: Any, now: float, error: str | None = None) -> Changed:
    ended = view_of_row(row, now, error=error, traceparent=row[15])
    node, seq = row[13], row[14]
    if row[16] is not None:
        drop_save(conn, seq)
    if ended.webhook is not None:
        note_end(conn, seq, ended, ended.webhook, now)
    stop = None if node is None else (node, AttemptKey(ended.id, ended.attempt))
    return Changed(ended.id, ended.endpoint, ended.state, cancel=stop, view=ended)


# ---- retry --------------------------------------------------------------------------------------

_REOPEN = f"""
UPDATE jobs SET state = 'IN_QUEUE', expires_at = ttl_at,
    rank = CASE WHEN low = 1 THEN {IN_LINE} ELSE {RETRY} END,
    not_before = CASE WHEN low = 1 THEN created_at - {HEAD_START_S[Priority.LOW]} ELSE :now END,
    failures = 0, handler_failures = 0, backoffs = 0, given_before = attempt - refused,
    first_attempt = attempt + 1, reason = NULL, claimed_at = NULL, ended_at = NULL, node = NULL,
    late_at = CASE WHEN deadline > :now THEN deadline END,
    deadline = CASE WHEN deadline > :now THEN deadline END,
    worker = NULL, delay_ms = NULL, execution_ms = NULL, stream_attempt = NULL, held_from = NULL
WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now AND {guard("reopen")}
RETURNING seq, attempt
"""
_RUN = "SELECT first_attempt, stream_attempt FROM jobs WHERE id = :job"
_SPILLED = """
SELECT ref_key FROM results WHERE seq = :seq
UNION ALL SELECT ref_key FROM chunks WHERE seq = :seq AND ref_key IS NOT NULL
"""
_OUTPUT = """
SELECT 1 FROM results WHERE seq = :seq AND ref_key IS NOT NULL
UNION ALL SELECT 1 FROM webhooks WHERE job = :job AND output_key IS NOT NULL
"""


def retry(
    conn: Conn, account: str, endpoint: str, job: str, now: float
) -> tuple[JobView | None, Changed | None]:
    """Puts the job back into the queue, ahead of the others, with its input and its old ttl and without its
    result.

    (None, None): there is no such job. A view without a change: only FAILED and TIMED_OUT jobs are retried.
    """
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    run = conn.run(_RUN, {"job": job}).fetchone()
    before = job_attempts(conn, account, endpoint, job, now)
    row = conn.run(_REOPEN, values).fetchone()
    if row is not None:
        if before is not None:
            keep_last(conn, row[0], before)
        _forget_result(conn, endpoint, AttemptKey(job, row[1]), row[0])
        first, stream = run
        if stream is not None:  # the folders of earlier attempts were kept for its chunks
            note_orphans(conn, prefixes(endpoint, job, range(first, row[1])))
    found = view(conn, account, endpoint, job, now)
    return found, None if row is None else Changed(job, endpoint, JobState.IN_QUEUE, cause="requested")


def _forget_result(conn: Conn, endpoint: str, last: AttemptKey, seq: int) -> None:
    """Forgets the job's result; the pollers of its stream begin again, too. What the last attempt left is
    deleted where nothing names it: neither the record, nor a webhook that is still to be delivered."""
    drop_case(conn, seq)
    spilled = conn.run(_OUTPUT, {"seq": seq, "job": last.job}).fetchone() is not None
    keys = [key for (key,) in conn.run(_SPILLED, {"seq": seq})]
    for table in ("results", "progress", "chunks", "cursors"):
        conn.run(f"DELETE FROM {table} WHERE seq = :seq", {"seq": seq})
    release(conn, last.job, keys)
    if not spilled and not has_delivered(conn, last.job):
        note_orphans(conn, prefixes(endpoint, last.job, [last.attempt]))


# ---- a shorter life -----------------------------------------------------------------------------

_SHORTEN = """
UPDATE jobs SET ttl_at = :until, expires_at = CASE WHEN expires_at < :until THEN expires_at ELSE :until END
WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now AND ttl_at > :until
"""


def shorten(conn: Conn, account: str, endpoint: str, job: str, until: float, now: float) -> JobView | None:
    """Shortens the life of the job and its record to `until`. Returns the job; None where it has expired or
    never was."""
    values = {"account": account, "endpoint": endpoint, "job": job, "until": until, "now": now}
    conn.run(_SHORTEN, values)
    return view(conn, account, endpoint, job, now)


# ---- deleted --------------------------------------------------------------------------------------

_DROP_ARTIFACTS = "DELETE FROM artifacts WHERE job = :job AND account = :account RETURNING key"


def delete(
    conn: Conn, account: str, endpoint: str, job: str, now: float
) -> tuple[JobView | None, Changed | None]:
    """Ends the life of the job, of its record and of its files. Returns its last view, and what changed;
    (None, None) where there is no such job."""
    found, changed = cancel(conn, account, endpoint, job, now)
    if found is None:
        return None, None
    shorten(conn, account, endpoint, job, now, now)
    note_orphans(conn, [key for (key,) in conn.run(_DROP_ARTIFACTS, {"job": job, "account": account})])
    return found, changed
