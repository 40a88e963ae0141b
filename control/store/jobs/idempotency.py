"""Idempotency keys in the store: the same request, sent twice with the same key, is one job.

A key is kept for a day, whatever becomes of its job, and written in the transaction that stores the job. It
belongs to an account and an endpoint.
"""

from __future__ import annotations

from stoker.control.errors import KeyReused
from stoker.control.rules.limits import KEY_LIFE_S
from stoker.control.rules.submissions import Once
from stoker.control.rules.types import NewJob
from stoker.control.store.database.opening import Conn

_TAKE = """
INSERT INTO idempotency (account, endpoint, key, fingerprint, job, expires_at)
VALUES (:account, :endpoint, :key, :fingerprint, :job, :expires_at)
ON CONFLICT (account, endpoint, key) DO UPDATE
SET fingerprint = excluded.fingerprint, job = excluded.job, expires_at = excluded.expires_at
WHERE idempotency.expires_at <= :now
RETURNING 1
"""

_KNOWN = """
SELECT fingerprint, job, expires_at FROM idempotency
WHERE account = :account AND endpoint = :endpoint AND key = :key
"""

_SWEEP = """
DELETE FROM idempotency WHERE (account, endpoint, key) IN (
    SELECT account, endpoint, key FROM idempotency WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit)
"""


def first_use(conn: Conn, new: NewJob, once: Once, now: float) -> tuple[str, float] | None:
    """Returns the job of the key's first use, and when that was. None: this is the first use.

    Raises KeyReused where the key came with another request.
    """
    values = {
        "account": new.account,
        "endpoint": new.endpoint,
        "key": once.key,
        "fingerprint": once.fingerprint,
        "job": new.id,
        "expires_at": now + KEY_LIFE_S,
        "now": now,
    }
    if conn.run(_TAKE, values).fetchone() is not None:
        return None
    fingerprint, job, expires_at = conn.run(_KNOWN, values).fetchone()
    if bytes(fingerprint) != once.fingerprint:
        raise KeyReused(
            f"the Idempotency-Key {once.key!r} came with another request to this endpoint within the last "
            "24 hours; a key names one request: take a new key, or send the same body to the same operation"
        )
    return str(job), expires_at - KEY_LIFE_S


def seen(conn: Conn, new: NewJob) -> bool:
    """Returns whether the job's idempotency key, if it has one, stands for a job already."""
    if new.once is None:
        return False
    values = {"account": new.account, "endpoint": new.endpoint, "key": new.once.key}
    row = conn.run(_KNOWN, values).fetchone()
    return row is not None and row[2] > new.created_at


def sweep_keys(conn: Conn, now: float, limit: int) -> None:
    """Deletes at most `limit` keys whose day has passed."""
    conn.run(_SWEEP, {"now": now, "limit": limit})
