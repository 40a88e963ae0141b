"""Jobs in the store: submitted, claimed for free slots, cancelled, looked at.

Every function runs in the caller's transaction. A claim takes retries first, then the oldest, and jobs of
low priority last; it is guarded by the session of the node, so that a superseded connection claims nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import select, text

from stoker.control import schema
from stoker.control.job import retention, retries
from stoker.control.statements import guard
from stoker.control.store_open import Conn
from stoker.control.types import (
    Changed,
    Claimed,
    Cursor,
    JobState,
    JobView,
    NewJob,
    S3Config,
    Slot,
    StoredChunk,
    Submitted,
)
from stoker.wire.messages import AttemptKey, Ref

_RETRY_RANK = {False: 0, True: 2}


def rank(*, low: bool, again: bool) -> int:
    """Where in its endpoint's queue a job stands: the lower, the earlier."""
    return _RETRY_RANK[low] + (0 if again else 1)


def ref_columns(ref: Ref | None) -> dict[str, Any]:
    if ref is None:
        return {"ref_key": None, "ref_size": None, "ref_sha256": None}
    return {"ref_key": ref.key, "ref_size": ref.size, "ref_sha256": ref.sha256}


def ref_of(key: str | None, size: int | None, sha256: str | None) -> Ref | None:
    return None if key is None else Ref(key, size or 0, sha256 or "")


# ---- submit and claim ---------------------------------------------------------------------------


def submit(conn: Conn, new: NewJob, slots: Sequence[Slot], now: float) -> Submitted:
    """Stores the job and claims what the slots can take, which may be other jobs that waited longer."""
    seq = _insert(conn, new)
    claimed = claim(conn, slots, now, known={seq: new}) if slots else ()
    mine = next((one for one in claimed if one.job == new.id), None)
    view = JobView(
        id=new.id,
        endpoint=new.endpoint,
        state=JobState.IN_QUEUE if mine is None else JobState.IN_PROGRESS,
        created_at=new.created_at,
        sync=new.sync,
        attempt=0 if mine is None else mine.attempt,
        worker=None if mine is None else mine.worker,
        delay_ms=None if mine is None else int((now - new.created_at) * 1000),
        webhook=new.webhook,
    )
    return Submitted(view, claimed)


def _insert(conn: Conn, new: NewJob) -> int:
    row = {
        "id": new.id,
        "account": new.account,
        "endpoint": new.endpoint,
        "rank": rank(low=new.low_priority, again=False),
        "created_at": new.created_at,
        "expires_at": new.expires_at,
        "retention_s": new.retention_s,
        "sync": int(new.sync),
        "low": int(new.low_priority),
        "max_attempts": new.max_attempts,
        "handler_retries": new.handler_retries,
        "execution_timeout_ms": new.execution_timeout_ms,
        "webhook": new.webhook,
        "own_bucket": int(new.s3 is not None),
    }
    (seq,) = conn.run("insert_job", row).fetchone()
    s3 = None if new.s3 is None else _seal_s3(conn, new.s3)
    conn.run("insert_input", {"seq": seq, "body": new.input, "s3": s3} | ref_columns(new.input_ref))
    return int(seq)


def claim(
    conn: Conn, slots: Sequence[Slot], now: float, *, known: dict[int, NewJob] | None = None
) -> tuple[Claimed, ...]:
    """Moves waiting jobs into the slots. `known`: submissions of this transaction, not to be read again."""
    claimed: list[Claimed] = []
    empty: set[str] = set()
    for slot in slots:
        if slot.free < 1 or slot.endpoint in empty:
            continue
        rows = conn.run("claim", _slot_values(slot, now)).fetchall()
        # Asked only where another slot could be spared the question: it costs as much as the claim.
        if len(rows) < slot.free and len(slots) > 1 and _is_current(conn, slot):
            empty.add(slot.endpoint)
        claimed += [_claimed(conn, slot, row, known or {}) for row in sorted(rows)]
    return tuple(claimed)


def _slot_values(slot: Slot, now: float) -> dict[str, Any]:
    return {
        "endpoint": slot.endpoint,
        "node": slot.node,
        "session": slot.session,
        "worker": slot.worker,
        "free": slot.free,
        "now": now,
    }


def _is_current(conn: Conn, slot: Slot) -> bool:
    """Whether it was the queue that gave no more, and not the node's session that was refused."""
    found = conn.run("is_current", {"node": slot.node, "session": slot.session})
    return found.fetchone() is not None


def _claimed(conn: Conn, slot: Slot, row: tuple[Any, ...], known: dict[int, NewJob]) -> Claimed:
    seq, job, attempt, refused, account, created_at, expires_at, timeout_ms = row
    if retries(attempt, refused):
        count(conn, account, slot.endpoint, "retried")
    new = known.get(seq)
    if new is not None:
        body, ref, s3 = new.input, new.input_ref, new.s3
    else:
        body, key, size, sha256, sealed = conn.run("input", {"seq": seq}).fetchone()
        ref, s3 = ref_of(key, size, sha256), _open_s3(conn, sealed)
    return Claimed(
        job=job,
        attempt=attempt,
        endpoint=slot.endpoint,
        node=slot.node,
        worker=slot.worker,
        created_at=created_at,
        expires_at=expires_at,
        execution_timeout_ms=timeout_ms,
        input=body,
        input_ref=ref,
        s3=s3,
    )


def count(conn: Conn, account: str, endpoint: str, name: str) -> None:
    """Counters are raised only where a row changed, in the same transaction."""
    conn.run("count", {"account": account, "endpoint": endpoint, "name": name, "by": 1})


def _seal_s3(conn: Conn, s3: S3Config) -> bytes:
    fields = [s3.access_id, s3.access_secret, s3.bucket, s3.endpoint_url, s3.object_path]
    return conn.secrets.seal(json.dumps(fields).encode())


def _open_s3(conn: Conn, sealed: bytes | None) -> S3Config | None:
    return None if sealed is None else S3Config(*json.loads(conn.secrets.open(sealed)))


# ---- cancel -------------------------------------------------------------------------------------

_CANCEL = f"""
UPDATE jobs SET state = 'CANCELLED', ended_at = :now, suspect = 0, uploading = 0,
    delay_ms = COALESCE(delay_ms, {{ms :now - created_at}}),
    expires_at = CASE WHEN sync = 1
                      THEN CASE WHEN expires_at < :until_sync THEN expires_at ELSE :until_sync END
                      ELSE CASE WHEN expires_at < :until THEN expires_at ELSE :until END END
WHERE id = :job AND account = :account AND endpoint = :endpoint AND expires_at > :now AND {guard("cancel")}
RETURNING attempt, node
"""


def cancel(
    conn: Conn, account: str, endpoint: str, job: str, now: float
) -> tuple[JobView | None, Changed | None]:
    """CANCELLED at once, if it had not ended. `node` stays: what the attempt cost may still be reported."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    until = {"until": now + retention(False), "until_sync": now + retention(True)}
    row = conn.run(_CANCEL, values | until).fetchone()
    found = view(conn, account, endpoint, job, now)
    if row is None or found is None:
        return found, None
    attempt, node = row
    count(conn, account, endpoint, "cancelled")
    stop = None if node is None else (node, AttemptKey(job, attempt))
    return found, Changed(job, endpoint, JobState.CANCELLED, cancel=stop, view=found)


# ---- views --------------------------------------------------------------------------------------


def view(conn: Conn, account: str, endpoint: str, job: str, now: float) -> JobView | None:
    """The job as its caller may see it; None when there is none, or its time has passed."""
    values = {"account": account, "endpoint": endpoint, "job": job, "now": now}
    row = conn.run("view", values).fetchone()
    if row is None:
        return None
    state = JobState(row[2])
    return JobView(
        id=row[0],
        endpoint=row[1],
        state=state,
        created_at=row[3],
        sync=bool(row[4]),
        attempt=row[5],
        retries=retries(row[5], row[6]),
        worker=row[7],
        delay_ms=None if row[8] is None else max(row[8], 0),
        execution_ms=row[9],
        webhook=row[10],
        output=row[11],
        output_ref=ref_of(row[12], row[13], row[14]),
        error=row[15],
        progress=row[16] if state is JobState.IN_PROGRESS else None,
    )


def chunks(conn: Conn, job: str, after: tuple[int, int], limit: int) -> tuple[StoredChunk, ...]:
    """The current attempt's chunks after `(attempt, n)`; those of an earlier attempt are void."""
    values = {"job": job, "attempt": after[0], "n": after[1], "limit": limit}
    return tuple(StoredChunk(*row) for row in conn.run("chunks", values))


def stream_cursor(conn: Conn, job: str) -> Cursor:
    """Up to where pollers of /stream have read."""
    row = conn.execute(
        select(schema.cursors.c.attempt, schema.cursors.c.n, schema.cursors.c.told)
        .join(schema.jobs)
        .where(schema.jobs.c.id == job)
    ).first()
    return Cursor() if row is None else Cursor(row.attempt, row.n, bool(row.told))


_ADVANCE = text(
    "INSERT INTO cursors (seq, attempt, n, told) SELECT seq, :attempt, :n, :told FROM jobs WHERE id = :job "
    "ON CONFLICT (seq) DO UPDATE SET attempt = excluded.attempt, n = excluded.n, told = excluded.told "
    "WHERE excluded.attempt > cursors.attempt "
    "OR (excluded.attempt = cursors.attempt AND excluded.n > cursors.n) "
    "OR (excluded.attempt = cursors.attempt AND excluded.n = cursors.n AND excluded.told > cursors.told)"
)


def advance(conn: Conn, job: str, cursor: Cursor) -> None:
    """Moves the pollers' cursor forward, never back."""
    values = {"job": job, "attempt": cursor.attempt, "n": cursor.n, "told": int(cursor.told)}
    conn.execute(_ADVANCE, values)
