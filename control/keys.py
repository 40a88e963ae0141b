"""API keys and join tokens: made, listed, revoked, recognised.

A key reads `sk_<id>_<secret>`, a join token `jt_<id>_<secret>`. The secret half is 256 random bits, so one
round of SHA-256 is all that a stolen database must not reveal; the id half finds the row, and the hash is
compared in constant time. A key is shown once, when it is made. An operator may bring a token instead
(`adopt`); one of another form has an id that is made from its hash.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Any, Literal

from sqlalchemy import insert, select, update

from stoker.control.store.opening import DEFAULT_ACCOUNT, Conn
from stoker.control.store.schema import keys
from stoker.control.types import KeyRecord

Kind = Literal["key", "join"]
_PREFIX: dict[Kind, str] = {"key": "sk", "join": "jt"}
_ID_BYTES = 6
_SECRET_BYTES = 32

Entropy = Callable[[int], bytes]


def create_key(
    conn: Conn, *, name: str, now: float, account: str = DEFAULT_ACCOUNT, entropy: Entropy = os.urandom
) -> tuple[KeyRecord, str]:
    """A new API key: its record, and the token that is shown once."""
    return _create(conn, "key", name, account, now, None, entropy)


def create_join_token(
    conn: Conn,
    *,
    name: str,
    now: float,
    account: str = DEFAULT_ACCOUNT,
    expires_at: float | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[KeyRecord, str]:
    """A new token with which agents join."""
    return _create(conn, "join", name, account, now, expires_at, entropy)


def _create(
    conn: Conn, kind: Kind, name: str, account: str, now: float, expires_at: float | None, entropy: Entropy
) -> tuple[KeyRecord, str]:
    key, secret = entropy(_ID_BYTES).hex(), entropy(_SECRET_BYTES).hex()
    row = {
        "id": key,
        "account": account,
        "kind": kind,
        "name": name,
        "hash": _hash(secret),
        "created_at": now,
        "expires_at": expires_at,
    }
    conn.execute(insert(keys), row)
    return KeyRecord(key, account, name, now), f"{_PREFIX[kind]}_{key}_{secret}"


def adopt(conn: Conn, kind: Kind, token: str, *, name: str, now: float) -> bool:
    """From now on this token is known, to the default account. False: it was revoked, or its id is taken."""
    known = find_key(conn, token) if kind == "key" else accept_join(conn, token, now)
    if known is not None:
        return True
    key, secret = _halves(kind, token)
    if conn.execute(select(keys.c.id).where(keys.c.id == key)).first() is not None:
        return False
    row = {"id": key, "account": DEFAULT_ACCOUNT, "kind": kind, "name": name}
    conn.execute(insert(keys), {**row, "hash": _hash(secret), "created_at": now, "expires_at": None})
    return True


def list_keys(conn: Conn, kind: Kind = "key") -> tuple[KeyRecord, ...]:
    """Oldest first, revoked ones too."""
    rows = conn.execute(select(keys).where(keys.c.kind == kind).order_by(keys.c.created_at, keys.c.id))
    return tuple(KeyRecord(row.id, row.account, row.name, row.created_at, row.revoked_at) for row in rows)


def revoke_key(conn: Conn, key: str, now: float) -> bool:
    """By id, for keys and join tokens. False: there is none, or it was revoked before."""
    ended = update(keys).where(keys.c.id == key, keys.c.revoked_at.is_(None)).values(revoked_at=now)
    return conn.execute(ended).rowcount > 0


def find_key(conn: Conn, token: str) -> tuple[str, str] | None:
    """The account and the key's id, if `token` is an API key that was not revoked."""
    row = _find(conn, "key", token)
    return None if row is None else (row.account, row.id)


def accept_join(conn: Conn, token: str, now: float) -> str | None:
    """The account that an agent with this join token works for."""
    row = _find(conn, "join", token)
    if row is None or (row.expires_at is not None and row.expires_at <= now):
        return None
    return str(row.account)


def _find(conn: Conn, kind: Kind, token: str) -> Any:
    key, secret = _halves(kind, token)
    live = select(keys).where(keys.c.id == key, keys.c.kind == kind, keys.c.revoked_at.is_(None))
    row = conn.execute(live).first()
    if row is None or not hmac.compare_digest(row.hash, _hash(secret)):
        return None
    return row


def _halves(kind: Kind, token: str) -> tuple[str, str]:
    """What finds the row, and what is compared."""
    prefix, _, rest = token.partition("_")
    key, _, secret = rest.partition("_")
    if prefix == _PREFIX[kind] and key and secret:
        return key, secret
    return "own" + hashlib.sha256(_PREFIX[kind].encode() + _hash(token)).hexdigest()[:16], token


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
