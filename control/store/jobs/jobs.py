"""Jobs in the store: submitted, and claimed for free slots.

Every function runs in the caller's transaction. A claim takes the jobs in the order of
`control.rules.queueing.order`; it is guarded by the session of the node, so that a superseded connection
claims nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.order import place
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.retries import retries
from stoker.control.rules.submissions import S3Config
from stoker.control.rules.types import Claimed, JobView, NewJob, Slot, Submitted
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.idempotency import first_use
from stoker.control.store.jobs.reads import NO_REF, ref_columns, ref_of, view
from stoker.control.store.jobs.saves import give_save, saved_for

# ---- submit and claim ---------------------------------------------------------------------------


def submit(conn: Conn, new: NewJob, slots: Sequence[Slot], now: float) -> Submitted:
    """Stores the job and claims what the slots can take, which may be other jobs that waited longer.

    Where its idempotency key is known, nothing is stored or claimed. Raises KeyReused.
    """
    if new.once is not None:
        known = first_use(conn, new, new.once, now)
        if known is not None:
            return Submitted(_first(conn, new, *known, now), repeated=True)
    seq = _insert(conn, new)
    if new.saved is not None:
        give_save(conn, seq, new.saved)
    claimed = claim(conn, slots, now, known={seq: new}) if slots else ()
    mine = next((one for one in claimed if one.job == new.id), None)
    accepted = JobView(
        id=new.id,
        endpoint=new.endpoint,
        state=JobState.IN_QUEUE if mine is None else JobState.IN_PROGRESS,
        created_at=new.created_at,
        sync=new.sync,
        attempt=0 if mine is None else mine.attempt,
        worker=None if mine is None else mine.worker,
        delay_ms=None if mine is None else int((now - new.created_at) * 1000),
        webhook=new.webhook,
        not_before=0.0,
    )
    return Submitted(accepted, claimed)


def _first(conn: Conn, new: NewJob, job: str, at: float, now: float) -> JobView:
    """Returns the job of the key's first use; where its record was deleted, as the job was accepted then."""
    found = view(conn, new.account, new.endpoint, job, now)
    return found or JobView(job, new.endpoint, JobState.IN_QUEUE, created_at=at, sync=new.sync)


def _insert(conn: Conn, new: NewJob) -> int:
    at = place(new.priority, new.created_at)
    row = {
        "id": new.id,
        "account": new.account,
        "endpoint": new.endpoint,
        "rank": at.lane,
        "not_before": at.since,
        "created_at": new.created_at,
        "expires_at": new.expires_at,
        "retention_s": new.retention_s,
        "sync": int(new.sync),
        "low": int(new.priority is Priority.LOW),
        "urgent": int(new.priority is Priority.URGENT),
        "late_at": min((at for at in (new.start_by, new.deadline) if at is not None), default=None),
        "deadline": new.deadline,
        "max_attempts": new.max_attempts,
        "handler_retries": new.handler_retries,
        "execution_timeout_ms": new.execution_timeout_ms,
        "webhook": new.webhook,
        "own_bucket": int(new.s3 is not None),
        "api_key": new.api_key,
        "metered": int(new.metered),
        "traceparent": new.traceparent,
    }
    (seq,) = conn.run("insert_job", row).fetchone()
    s3 = None if new.s3 is None else _seal_s3(conn, new.s3)
    where = NO_REF if new.input_ref is None else ref_columns(new.input_ref)
    conn.write("insert_input", {"seq": seq, "body": new.input, "s3": s3, **where})
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
        values = {
            "endpoint": slot.endpoint,
            "node": slot.node,
            "session": slot.session,
            "worker": slot.worker,
            "free": slot.free,
            "now": now,
        }
        rows = conn.run("claim", values).fetchall()
        # Only where it can save another slot the query: it costs as much as the claim.
        if len(rows) < slot.free and len(slots) > 1 and _is_current(conn, slot):
            empty.add(slot.endpoint)
        claimed += [_claimed(conn, slot, row, known or {}) for row in sorted(rows)]
    return tuple(claimed)


def _is_current(conn: Conn, slot: Slot) -> bool:
    """Returns whether the slot's session is the node's current one: then it was the queue that gave no more,
    and not the session that was refused."""
    found = conn.run("is_current", {"node": slot.node, "session": slot.session})
    return found.fetchone() is not None


def _claimed(conn: Conn, slot: Slot, row: tuple[Any, ...], known: dict[int, NewJob]) -> Claimed:
    seq, job, attempt, refused, account, created_at, expires_at, timeout_ms, api_key, traceparent = row
    if attempt > 1 and retries(attempt, refused):
        conn.write("count", {"account": account, "endpoint": slot.endpoint, "name": "retried", "by": 1})
    saved = saved_for(conn, seq, job, slot) if attempt > 1 else None
    new = known.get(seq)
    if new is not None:
        body, ref, s3 = new.input, new.input_ref, new.s3
    else:
        body, key, size, sha256, sealed = conn.run("input", {"seq": seq}).fetchone()
        ref = ref_of(key, size, sha256)
        s3 = None if sealed is None else S3Config(*json.loads(conn.secrets.open(sealed)))
    return Claimed(
        job=job,
        attempt=attempt,
        account=account,
        endpoint=slot.endpoint,
        node=slot.node,
        worker=slot.worker,
        created_at=created_at,
        expires_at=expires_at,
        execution_timeout_ms=timeout_ms,
        input=body,
        input_ref=ref,
        s3=s3,
        api_key=api_key,
        traceparent=traceparent,
        saved=saved,
    )


def _seal_s3(conn: Conn, s3: S3Config) -> bytes:
    fields = [s3.access_id, s3.access_secret, s3.bucket, s3.endpoint_url, s3.object_path, s3.region]
    return conn.secrets.seal(json.dumps(fields).encode())
