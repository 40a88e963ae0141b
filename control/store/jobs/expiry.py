"""Deletes what has expired: jobs, idempotency keys after 24 hours, artifacts after seven days.

Deletions in the object store come after the commit, and must not be lost in a crash: `expired_artifacts`
lists until `forget_artifacts` is called; what jobs leave there is noted (`orphan_objects`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import bindparam, delete, select

from stoker.control.rules.job_states import TERMINAL, JobState
from stoker.control.rules.types import Changed
from stoker.control.store.database.opening import Conn
from stoker.control.store.database.statements import guard
from stoker.control.store.jobs.idempotency import sweep_keys
from stoker.control.store.jobs.orphan_objects import has_delivered, note_orphans, prefixes, release
from stoker.control.store.tables.jobs import artifacts, cases, chunks, inputs, jobs, results
from stoker.wire.messages import AttemptKey

_DELETE = f"DELETE FROM jobs WHERE seq = :seq AND {guard('expire')}"

_PAST = (
    select(
        jobs.c.seq,
        jobs.c.id,
        jobs.c.endpoint,
        jobs.c.state,
        jobs.c.attempt,
        jobs.c.node,
        jobs.c.first_attempt,
        inputs.c.ref_key.label("input_key"),
        results.c.ref_key.label("output_key"),
        cases.c.ref_key.label("save_key"),
    )
    .join(inputs, inputs.c.seq == jobs.c.seq, isouter=True)
    .join(results, results.c.seq == jobs.c.seq, isouter=True)
    .join(cases, cases.c.seq == jobs.c.seq, isouter=True)
    .where(jobs.c.expires_at <= bindparam("now"))
    .order_by(jobs.c.expires_at)
    .limit(bindparam("most"))
)
_ANY_PAST = "SELECT 1 FROM jobs WHERE expires_at <= :now LIMIT 1"
"""Asked in every pass, most of which find nothing."""


def expire(conn: Conn, now: float, limit: int) -> tuple[Changed, ...]:
    """Deletes at most `limit` jobs whose time has passed, and names the running work to stop.

    As many idempotency keys go with them: there are no more of those than of jobs.
    """
    sweep_keys(conn, now, limit)
    if conn.run(_ANY_PAST, {"now": now}).fetchone() is None:
        return ()
    rows = conn.execute(_PAST, {"now": now, "most": limit}).all()
    spilled = _chunks(conn, [row.seq for row in rows])
    conn.run_many(_DELETE, [{"seq": row.seq} for row in rows])
    note_orphans(conn, [prefix for row in rows for prefix in _orphans_of(conn, row)])
    for row in rows:
        release(conn, row.id, [row.input_key, row.output_key, row.save_key, *spilled.get(row.seq, ())])
    return tuple(_gone(row) for row in rows)


def _gone(row: Any) -> Changed:
    stop = None if row.node is None else (row.node, AttemptKey(row.id, row.attempt))
    return Changed(row.id, row.endpoint, JobState(row.state), cancel=stop, gone=True)


def _chunks(conn: Conn, jobs_of: list[int]) -> dict[int, list[str]]:
    """Returns the object keys of the chunks of these jobs' streams that are in the object store, by job."""
    found = select(chunks.c.seq, chunks.c.ref_key).where(
        chunks.c.ref_key.is_not(None), chunks.c.seq.in_(jobs_of)
    )
    keys: dict[int, list[str]] = {}
    for seq, key in conn.execute(found):
        keys.setdefault(seq, []).append(key)
    return keys


def _orphans_of(conn: Conn, row: Any) -> tuple[str, ...]:
    """Returns the prefixes of attempts below which nothing is named any more.

    Of an attempt that ended its job, but not well, there may be more than was reported: a file, or a chunk of
    its stream, that was uploaded just before. A spilled output is deleted by itself: a webhook may name it
    still.
    """
    kept = row.state == JobState.COMPLETED or row.output_key is not None
    kept = kept or (row.state in TERMINAL and has_delivered(conn, row.id))
    return prefixes(row.endpoint, row.id, range(row.first_attempt, row.attempt + (0 if kept else 1)))


def expired_artifacts(conn: Conn, now: float, limit: int) -> tuple[str, ...]:
    """Returns the keys of artifacts whose URLs have run out, oldest first."""
    found = (
        select(artifacts.c.key)
        .where(artifacts.c.expires_at <= now)
        .order_by(artifacts.c.expires_at)
        .limit(limit)
    )
    return tuple(conn.execute(found).scalars())


def forget_artifacts(conn: Conn, keys: Collection[str]) -> None:
    """Forgets artifacts that were deleted from the object store."""
    if keys:
        conn.execute(delete(artifacts).where(artifacts.c.key.in_(list(keys))))
