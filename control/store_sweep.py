"""What time takes: jobs past their expiry, artifacts past their seven days; and samples of the queue.

Deletions in the object store come after the commit, and must not be lost in a crash: `expired_artifacts` and
`leftovers` list until `forget_artifacts` and `forget_leftovers` are told.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import delete, func, select

from stoker.control.schema import artifacts, counters, inputs, jobs, results, spans
from stoker.control.statements import guard
from stoker.control.store_open import Conn
from stoker.control.store_reports import prefixes
from stoker.control.types import Changed, JobState, QueueSample
from stoker.wire.messages import AttemptKey, Span

_DELETE = f"DELETE FROM jobs WHERE seq = :seq AND {guard('expire')}"


def expire(conn: Conn, now: float, limit: int) -> tuple[Changed, ...]:
    """Deletes at most `limit` jobs whose time has passed, and names the running work to stop."""
    rows = conn.execute(
        select(
            jobs.c.seq,
            jobs.c.id,
            jobs.c.endpoint,
            jobs.c.state,
            jobs.c.attempt,
            jobs.c.node,
            jobs.c.own_bucket,
            inputs.c.ref_key.label("input_key"),
            results.c.ref_key.label("output_key"),
        )
        .join(inputs, inputs.c.seq == jobs.c.seq, isouter=True)
        .join(results, results.c.seq == jobs.c.seq, isouter=True)
        .where(jobs.c.expires_at <= now)
        .order_by(jobs.c.expires_at)
        .limit(limit)
    ).all()
    conn.run_many(_DELETE, [{"seq": row.seq} for row in rows])
    note_leftovers(conn, [name for row in rows for name in (*_keys(row), *_leftovers(row))])
    return tuple(_gone(row) for row in rows)


def _gone(row: Any) -> Changed:
    stop = None if row.node is None else (row.node, AttemptKey(row.id, row.attempt))
    return Changed(row.id, row.endpoint, JobState(row.state), cancel=stop, gone=True)


def _keys(row: Any) -> list[str]:
    """Spilled payloads."""
    return [key for key in (row.input_key, row.output_key) if key is not None]


def _leftovers(row: Any) -> tuple[str, ...]:
    """Prefixes of attempts that no accepted outcome accounts for."""
    if row.own_bucket:
        return ()
    settled = row.state in (JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT)
    return prefixes(row.endpoint, row.id, range(1, row.attempt + (0 if settled else 1)))


def expired_artifacts(conn: Conn, now: float, limit: int) -> tuple[str, ...]:
    """Keys of artifacts whose URLs have run out, oldest first."""
    found = (
        select(artifacts.c.key)
        .where(artifacts.c.expires_at <= now)
        .order_by(artifacts.c.expires_at)
        .limit(limit)
    )
    return tuple(conn.execute(found).scalars())


def forget_artifacts(conn: Conn, keys: Collection[str]) -> None:
    """They are deleted from the object store."""
    if keys:
        conn.execute(delete(artifacts).where(artifacts.c.key.in_(list(keys))))


# ---- what no record names any more --------------------------------------------------------------


def note_leftovers(conn: Conn, names: Collection[str]) -> None:
    """Object keys, and prefixes that end in a slash, to be deleted from the object store."""
    if names:
        statement = "INSERT INTO leftovers (name) VALUES (:name) ON CONFLICT DO NOTHING"
        conn.run_many(statement, [{"name": name} for name in names])


def noted(conn: Conn, changed: tuple[Changed, ...]) -> tuple[Changed, ...]:
    """Notes what the attempts that do not count have left, in the transaction that gave them up."""
    note_leftovers(conn, [prefix for change in changed for prefix in change.losers])
    return changed


def leftovers(conn: Conn, limit: int) -> tuple[str, ...]:
    found = conn.run("SELECT name FROM leftovers LIMIT :limit", {"limit": limit})
    return tuple(name for (name,) in found)


def forget_leftovers(conn: Conn, names: Collection[str]) -> None:
    """They are deleted from the object store."""
    conn.run_many("DELETE FROM leftovers WHERE name = :name", [{"name": name} for name in names])


# ---- samples ------------------------------------------------------------------------------------


def queue_sample(conn: Conn) -> dict[str, QueueSample]:
    """By endpoint. Reads an index from end to end: for a sampler once a second, not for every request."""
    waiting = (
        select(jobs.c.endpoint, jobs.c.rank, func.count(), func.min(jobs.c.seq))
        .where(jobs.c.state == JobState.IN_QUEUE.value)
        .group_by(jobs.c.endpoint, jobs.c.rank)
    )
    found: dict[str, dict[str, Any]] = {}
    oldest: dict[str, int] = {}
    for endpoint, rank, number, seq in conn.execute(waiting).all():
        into = found.setdefault(endpoint, {"queued": 0, "low": 0})
        into["low" if rank >= 2 else "queued"] += number
        oldest[endpoint] = min(seq, oldest.get(endpoint, seq))
    for endpoint, number in conn.execute(_RUNNING).all():
        found.setdefault(endpoint, {})["in_progress"] = number
    for endpoint, seq in oldest.items():
        created = select(jobs.c.created_at).where(jobs.c.seq == seq)
        found[endpoint]["oldest_created"] = conn.execute(created).scalar()
    return {endpoint: QueueSample(endpoint, **sample) for endpoint, sample in found.items()}


_RUNNING = (
    select(jobs.c.endpoint, func.count())
    .where(jobs.c.node.is_not(None), jobs.c.state == JobState.IN_PROGRESS.value)
    .group_by(jobs.c.endpoint)
)


def read_counters(conn: Conn, account: str, endpoint: str) -> dict[str, int]:
    """completed, failed, cancelled, retried: they outlive the jobs that they count. Absent means none."""
    found = select(counters.c.name, counters.c.value).where(
        counters.c.account == account, counters.c.endpoint == endpoint
    )
    return {row.name: row.value for row in conn.execute(found)}


def job_spans(conn: Conn, job: str) -> tuple[tuple[int, Span], ...]:
    """The bill of one job, with the attempt of each span."""
    found = select(spans).where(spans.c.job == job).order_by(spans.c.attempt, spans.c.kind, spans.c.unit)
    return tuple(
        (row.attempt, Span(row.kind, row.unit, row.quantity, row.nano_usd)) for row in conn.execute(found)
    )
