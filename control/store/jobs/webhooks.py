"""The outbox of webhooks: what is still to be told of jobs that ended, and to whom.

A row is written by the transaction that ended the job, as a copy of the record, its input and its output: it
outlives the job, and a retry changes nothing in it. It goes when it was delivered, or was tried often enough.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select

from stoker.control.keys import Entropy
from stoker.control.store.abandoned import release
from stoker.control.store.opening import Conn
from stoker.control.store.schema import webhooks
from stoker.control.types import Delivery, JobState, JobView
from stoker.wire.messages import Ref

TRIES = 3
AGAIN_S = 10.0
_SECRET_BYTES = 24

_INSERT = """
INSERT INTO webhooks (id, job, url, receiver, state, tries, next_at, created_at, retries, worker, delay_ms,
                      execution_ms, error, reason, input, input_key, input_size, input_sha256,
                      output, output_key, output_size, output_sha256)
SELECT :id, j.id, j.webhook, :receiver, j.state, 0, :now, j.created_at, :retries, j.worker, j.delay_ms,
       j.execution_ms, r.error, j.reason, i.body, i.ref_key, i.ref_size, i.ref_sha256,
       r.output, r.ref_key, r.ref_size, r.ref_sha256
FROM jobs j LEFT JOIN inputs i ON i.seq = j.seq LEFT JOIN results r ON r.seq = j.seq
WHERE j.seq = :seq
"""


def delivery_id(job: str, attempt: int, state: JobState) -> str:
    """Every try of a delivery has the same; no other end of the job has it."""
    digest = hashlib.sha256(f"{job}/{attempt}/{state.value}".encode()).hexdigest()
    return f"msg_{digest[:24]}"


def note_end(conn: Conn, seq: int, view: JobView, now: float) -> None:
    """The job has just ended so: whoever it named is to be told. Its result must be stored already."""
    if view.webhook is not None:
        values = {"id": delivery_id(view.id, view.attempt, view.state), "seq": seq, "now": now}
        conn.run(_INSERT, values | {"receiver": receiver_of(view.webhook), "retries": view.retries})


def receiver_of(url: str) -> str:
    """Who is asked: those of one host share its places."""
    return urlsplit(url).netloc.lower()


# ---- delivery -----------------------------------------------------------------------------------

# First the ids alone: a row may hold 2 MB, and those under way are not wanted.
_DUE = "SELECT id FROM webhooks WHERE next_at <= :now ORDER BY next_at LIMIT :limit"
_ROW = """
SELECT id, job, url, receiver, state, tries, created_at, retries, worker, delay_ms, execution_ms, error,
       reason, input, input_key, input_size, input_sha256, output, output_key, output_size, output_sha256
FROM webhooks WHERE id = :id
"""


def due_webhook(
    conn: Conn, now: float, under_way: Collection[str] = (), full: Collection[str] = ()
) -> Delivery | None:
    """The oldest that is due, not under way (it stays due until it was tried), and for none of the receivers
    that are full. None where there is none."""
    most = len(under_way) + 1
    if full:
        which = webhooks.c.next_at <= now, webhooks.c.receiver.not_in(full)
        due = conn.execute(select(webhooks.c.id).where(*which).order_by(webhooks.c.next_at).limit(most)).all()
    else:
        due = conn.run(_DUE, {"now": now, "limit": most}).fetchall()
    found = next((one for (one,) in due if one not in under_way), None)
    return None if found is None else _delivery(conn.run(_ROW, {"id": found}).fetchone())


def _delivery(row: tuple[Any, ...]) -> Delivery:
    view = JobView(
        id=row[1],
        endpoint="",
        state=JobState(row[4]),
        created_at=row[6],
        retries=row[7],
        worker=row[8],
        delay_ms=None if row[9] is None else max(row[9], 0),
        execution_ms=row[10],
        error=row[11],
        reason=row[12],
        webhook=row[2],
        output=row[17],
        output_ref=_ref(*row[18:21]),
    )
    return Delivery(row[0], row[2], row[3], row[5], view, input=row[13], input_ref=_ref(*row[14:17]))


def _ref(key: str | None, size: int | None, sha256: str | None) -> Ref | None:
    return None if key is None else Ref(key, size or 0, sha256 or "")


def next_webhook_at(conn: Conn) -> float | None:
    """When the next delivery is due; in the past where one is."""
    (at,) = conn.run("SELECT MIN(next_at) FROM webhooks", {}).fetchone()
    return None if at is None else float(at)


_AGAIN = f"""
UPDATE webhooks SET tries = tries + 1, next_at = :again WHERE id = :id AND tries + 1 < {TRIES} RETURNING tries
"""
_LATER = "UPDATE webhooks SET next_at = :again WHERE id = :id"
_GONE = "DELETE FROM webhooks WHERE id = :id RETURNING job, input_key, output_key"


def webhook_tried(conn: Conn, delivery: str, now: float, delivered: bool) -> None:
    """Delivered, or tried for the last time: it goes, and with it what only it named."""
    values = {"id": delivery, "again": now + AGAIN_S}
    if not delivered and conn.run(_AGAIN, values).fetchone() is not None:
        return
    row = conn.run(_GONE, values).fetchone()
    if row is not None:
        job, *keys = row
        release(conn, job, keys)


def webhook_later(conn: Conn, delivery: str, at: float) -> None:
    """It cannot be tried before then: others go first."""
    conn.run(_LATER, {"id": delivery, "again": at})


# ---- the secret ---------------------------------------------------------------------------------


def webhook_secret(conn: Conn, entropy: Entropy = os.urandom) -> str:
    """What deliveries are signed with; made when it is first asked for, which must be a transaction."""
    found = "SELECT value FROM meta WHERE name = 'webhook_secret'"
    row = conn.run(found, {}).fetchone()
    if row is None:
        made = "whsec_" + base64.b64encode(entropy(_SECRET_BYTES)).decode()
        insert = "INSERT INTO meta (name, value) VALUES ('webhook_secret', :value) ON CONFLICT DO NOTHING"
        conn.run(insert, {"value": conn.secrets.seal(made.encode())})
        row = conn.run(found, {}).fetchone()
    return conn.secrets.open(bytes(row[0])).decode()
