"""The outbox of webhooks: the ends of jobs that are still to be delivered, and to whom.

A row is written by the transaction that ended the job, as a copy of the record, its input and its output: it
outlives the job, and a retry changes nothing in it. It goes when it was delivered, or was tried often enough
(`control.rules.retries`).
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select, tuple_

from stoker.control.rules.job_states import JobState
from stoker.control.rules.retries import webhook_again_at
from stoker.control.rules.types import Delivery, JobView
from stoker.control.store.database.opening import Conn
from stoker.control.store.jobs.orphan_objects import release
from stoker.control.store.tables.jobs import webhooks
from stoker.outbound.wait_limits import Group, Waiter
from stoker.wire.messages import Ref

_SECRET_BYTES = 24

_INSERT = """
INSERT INTO webhooks (id, job, account, api_key, endpoint, url, receiver, state, tries, next_at, created_at,
                      retries, worker, delay_ms, execution_ms, error, reason,
                      input, input_key, input_size, input_sha256,
                      output, output_key, output_size, output_sha256)
SELECT :id, j.id, j.account, j.api_key, j.endpoint, j.webhook, :receiver, j.state, 0, :now, j.created_at,
       :retries, j.worker, j.delay_ms, j.execution_ms, r.error, j.reason,
       i.body, i.ref_key, i.ref_size, i.ref_sha256,
       r.output, r.ref_key, r.ref_size, r.ref_sha256
FROM jobs j LEFT JOIN inputs i ON i.seq = j.seq LEFT JOIN results r ON r.seq = j.seq
WHERE j.seq = :seq
"""


def delivery_id(job: str, attempt: int, state: JobState, ended_at: float) -> str:
    """Returns the id of a delivery. Every try of a delivery has the same id; no other end of the job has it:
    a job that is tried again may end a second time before its first end was given out."""
    digest = hashlib.sha256(f"{job}/{attempt}/{state.value}/{round(ended_at * 1000)}".encode()).hexdigest()
    return f"msg_{digest[:24]}"


def note_end(conn: Conn, seq: int, view: JobView, webhook: str, now: float) -> None:
    """Stores that the job has just ended so, and that its webhook is to be delivered. Its result must be
    stored already."""
    values = {"id": delivery_id(view.id, view.attempt, view.state, now), "seq": seq, "now": now}
    conn.run(_INSERT, values | {"receiver": receiver_of(webhook), "retries": view.retries})


def receiver_of(url: str) -> str:
    """Returns the receiver: deliveries to one host share its slots."""
    return urlsplit(url).netloc.lower()


# ---- delivery -----------------------------------------------------------------------------------

_ACCOUNTS = "SELECT id FROM accounts"
_ANY_DUE = "SELECT 1 FROM webhooks WHERE account = :account AND next_at <= :now LIMIT 1"
_ROW = """
SELECT id, job, account, url, receiver, state, tries, created_at, retries, worker, delay_ms, execution_ms,
       error, reason, input, input_key, input_size, input_sha256,
       output, output_key, output_size, output_sha256, api_key, endpoint
FROM webhooks WHERE id = :id
"""


def due_webhook(
    conn: Conn,
    now: float,
    under_way: Collection[str] = (),
    full: Callable[[str], Collection[Group] | None] = lambda account: (),
) -> Delivery | None:
    """Returns the oldest delivery that is due and not under way (a delivery stays due until it was tried);
    None where there is none. `full` says for which keys of an account, endpoints of those keys and receivers
    of those endpoints nothing is wanted; None: the account is left out as a whole.

    Each account has a query of its own, so that what waits for one is not read again and again for another.
    """
    oldest: tuple[float, str] | None = None
    for (account,) in conn.run(_ACCOUNTS, {}).fetchall():
        if (left_out := full(account)) is not None:
            found = _oldest(conn, account, now, under_way, left_out)
            oldest = min(filter(None, (oldest, found)), default=None)
    return None if oldest is None else _delivery(conn.run(_ROW, {"id": oldest[1]}).fetchone())


def _oldest(
    conn: Conn, account: str, now: float, under_way: Collection[str], left_out: Collection[Group]
) -> tuple[float, str] | None:
    """Returns when the account's oldest due delivery is due, and its id: without the row, which may hold 2
    MB."""
    if conn.run(_ANY_DUE, {"account": account, "now": now}).fetchone() is None:
        return None
    which = [webhooks.c.account == account, webhooks.c.next_at <= now]
    columns = (webhooks.c.api_key, webhooks.c.endpoint, webhooks.c.receiver)
    by_size = [[group for group in left_out if len(group) == size] for size in (1, 2, 3)]
    which += [
        tuple_(*columns[: len(groups[0])]).not_in(groups)  # a group leaves out those that are in it
        for groups in by_size
        if groups
    ]
    due = select(webhooks.c.next_at, webhooks.c.id).where(*which).order_by(webhooks.c.next_at)
    rows = conn.execute(due.limit(len(under_way) + 1)).all()
    return next(((at, one) for at, one in rows if one not in under_way), None)


def _delivery(row: tuple[Any, ...]) -> Delivery:
    view = JobView(
        id=row[1],
        endpoint="",
        state=JobState(row[5]),
        created_at=row[7],
        retries=row[8],
        worker=row[9],
        delay_ms=None if row[10] is None else max(row[10], 0),
        execution_ms=row[11],
        error=row[12],
        reason=row[13],
        webhook=row[3],
        output=row[18],
        output_ref=_ref(*row[19:22]),
    )
    whose, input_ref = Waiter(row[2], row[22], row[23], row[4]), _ref(*row[15:18])
    return Delivery(row[0], row[3], whose, row[6], view, input=row[14], input_ref=input_ref)


def _ref(key: str | None, size: int | None, sha256: str | None) -> Ref | None:
    return None if key is None else Ref(key, size or 0, sha256 or "")


def next_webhook_at(conn: Conn) -> float | None:
    """Returns when the next delivery is due; in the past where one is due already."""
    earliest = "SELECT MIN(next_at) FROM webhooks WHERE account = :account"
    accounts = conn.run(_ACCOUNTS, {}).fetchall()
    times = [conn.run(earliest, {"account": account}).fetchone()[0] for (account,) in accounts]
    return min((float(at) for at in times if at is not None), default=None)


_FAILED = "UPDATE webhooks SET tries = tries + 1 WHERE id = :id RETURNING tries"
_LATER = "UPDATE webhooks SET next_at = :again WHERE id = :id"
_GONE = "DELETE FROM webhooks WHERE id = :id RETURNING job, input_key, output_key"


def webhook_tried(conn: Conn, delivery: str, now: float, delivered: bool) -> None:
    """Stores the result of a try. Where the webhook was delivered, or tried for the last time, the row is
    deleted, and with it what only the row named."""
    if not delivered and (failed := conn.run(_FAILED, {"id": delivery}).fetchone()) is not None:
        again = webhook_again_at(failed[0], now)
        if again is not None:
            webhook_later(conn, delivery, again)
            return
    row = conn.run(_GONE, {"id": delivery}).fetchone()
    if row is not None:
        job, *keys = row
        release(conn, job, keys)


def webhook_later(conn: Conn, delivery: str, at: float) -> None:
    """Puts off a delivery that cannot be tried before `at`: others go first."""
    conn.run(_LATER, {"id": delivery, "again": at})


# ---- the secret ---------------------------------------------------------------------------------


_SECRET, _BEFORE = "webhook_secret", "webhook_secret_before"


def webhook_secret(conn: Conn) -> str:
    """Returns the secret that deliveries are signed with; made by the first call, which must be in a
    transaction."""
    found = _meta(conn, _SECRET)
    if found is None:
        _put(conn, _SECRET, _new_secret())
        found = _meta(conn, _SECRET)
    return found or ""


def webhook_secrets(conn: Conn) -> tuple[str, ...]:
    """Returns the secrets that deliveries are signed with, the newest first; none before one was made."""
    return tuple(found for name in (_SECRET, _BEFORE) if (found := _meta(conn, name)) is not None)


def rotate_webhook_secret(conn: Conn) -> str | None:
    """Makes a new secret, beside which deliveries are signed with the one before as well. Returns None where
    there is one before already: its receivers would be cut off."""
    before = webhook_secret(conn)
    if _meta(conn, _BEFORE) is not None:
        return None
    _put(conn, _BEFORE, before)
    conn.run("DELETE FROM meta WHERE name = :name", {"name": _SECRET})
    return webhook_secret(conn)


def drop_webhook_secret(conn: Conn) -> bool:
    """Ends the signatures with the secret before. Returns False where there is none."""
    return conn.run("DELETE FROM meta WHERE name = :name", {"name": _BEFORE}).rowcount == 1


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(os.urandom(_SECRET_BYTES)).decode()


def _meta(conn: Conn, name: str) -> str | None:
    row = conn.run("SELECT value FROM meta WHERE name = :name", {"name": name}).fetchone()
    return None if row is None else conn.secrets.open(bytes(row[0])).decode()


def _put(conn: Conn, name: str, secret: str) -> None:
    values = {"name": name, "value": conn.secrets.seal(secret.encode())}
    conn.run("INSERT INTO meta (name, value) VALUES (:name, :value) ON CONFLICT DO NOTHING", values)
