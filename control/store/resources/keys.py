"""API keys and join tokens: made, changed, listed, revoked, recognised.

A key reads `sk_<id>_<secret>`, a join token `jt_<id>_<secret>`. The secret half is 256 random bits, so one
round of SHA-256 is all that a stolen database must not reveal; the id half finds the row, and the hash is
compared in constant time. A key is shown once, when it is made. An operator may bring a token instead
(`adopt`); one of another form has an id that is made from its hash.

A join token's uses and its expiry bound which nodes join with it first. A node that joined comes back with
the same token for as long as that is not revoked: hosts restart, and must not need an operator for it.

    new node ── revoked, expired, no uses left ──> refused
             └─> one use less, the node's row names the token ──> comes back ── revoked ──> refused
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from sqlalchemy import insert, select, update

from stoker.control.access import ALL, Access, Caller
from stoker.control.store.opening import DEFAULT_ACCOUNT, Conn
from stoker.control.store.schema import keys, nodes
from stoker.control.types import KeyRecord

Kind = Literal["key", "join"]
_PREFIX: dict[Kind, str] = {"key": "sk", "join": "jt"}
_ID_BYTES = 6
_SECRET_BYTES = 32

Entropy = Callable[[int], bytes]


class JoinRefused(Exception):
    """An agent may not join with this token; the text says why."""


def create_key(
    conn: Conn,
    *,
    name: str,
    now: float,
    account: str = DEFAULT_ACCOUNT,
    access: Access = ALL,
    expires_at: float | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[KeyRecord, str]:
    """A new API key: its record, and the token that is shown once."""
    record = KeyRecord("", account, name, now, access=access, expires_at=expires_at)
    return _create(conn, record, entropy)


def create_join_token(
    conn: Conn,
    *,
    name: str,
    now: float,
    account: str = DEFAULT_ACCOUNT,
    uses: int | None = None,
    expires_at: float | None = None,
    entropy: Entropy = os.urandom,
) -> tuple[KeyRecord, str]:
    """A new token with which agents join; `uses`: how many nodes may."""
    record = KeyRecord("", account, name, now, kind="join", expires_at=expires_at, uses_left=uses)
    return _create(conn, record, entropy)


def _create(conn: Conn, wanted: KeyRecord, entropy: Entropy) -> tuple[KeyRecord, str]:
    key, secret = entropy(_ID_BYTES).hex(), entropy(_SECRET_BYTES).hex()
    record = replace(wanted, id=key)
    row = {
        "id": key,
        "account": record.account,
        "kind": record.kind,
        "name": record.name,
        "hash": _hash(secret),
        "created_at": record.created_at,
        "expires_at": record.expires_at,
        "access": record.access.stored(),
        "uses_left": record.uses_left,
    }
    conn.execute(insert(keys), row)
    return record, f"{_PREFIX[record.kind]}_{key}_{secret}"


def adopt(conn: Conn, kind: Kind, token: str, *, name: str, now: float) -> bool:
    """From now on this token is known, to the default account. False: it was revoked, has expired, or its id
    is taken."""
    known = _find(conn, kind, token)
    if known is not None:
        return not _expired(known, now)
    key, secret = _halves(kind, token)
    if conn.execute(select(keys.c.id).where(keys.c.id == key)).first() is not None:
        return False
    row = {"id": key, "account": DEFAULT_ACCOUNT, "kind": kind, "name": name}
    conn.execute(insert(keys), {**row, "hash": _hash(secret), "created_at": now, "expires_at": None})
    return True


def list_keys(
    conn: Conn, kind: Kind = "key", *, account: str | None = None, revoked: bool = True
) -> tuple[KeyRecord, ...]:
    """Oldest first; of every account where none is named."""
    wanted = select(keys).where(keys.c.kind == kind).order_by(keys.c.created_at, keys.c.id)
    if account is not None:
        wanted = wanted.where(keys.c.account == account)
    if not revoked:
        wanted = wanted.where(keys.c.revoked_at.is_(None))
    return tuple(_record(row) for row in conn.execute(wanted))


def get_key(conn: Conn, account: str, key: str) -> KeyRecord | None:
    """A key or join token that was not revoked."""
    found = select(keys).where(keys.c.id == key, keys.c.account == account, keys.c.revoked_at.is_(None))
    row = conn.execute(found).first()
    return None if row is None else _record(row)


def change_key(conn: Conn, account: str, key: str, changes: Mapping[str, Any]) -> bool:
    """`changes`: columns of the table, and their values. False: there is no such key, or it was revoked."""
    changed = update(keys).where(keys.c.id == key, keys.c.account == account, keys.c.revoked_at.is_(None))
    return conn.execute(changed.values(**changes)).rowcount > 0


def revoke_key(conn: Conn, key: str, now: float) -> bool:
    """By id, for keys and join tokens. False: there is none, or it was revoked before."""
    ended = update(keys).where(keys.c.id == key, keys.c.revoked_at.is_(None)).values(revoked_at=now)
    return conn.execute(ended).rowcount > 0


def note_use(conn: Conn, used: Mapping[str, float]) -> None:
    """When these keys were used last."""
    for key, at in used.items():
        conn.execute(update(keys).where(keys.c.id == key).values(last_used_at=at))


def find_caller(conn: Conn, token: str, now: float) -> tuple[Caller, float | None] | None:
    """Whose API key this is, and when it expires; None if it is none, or was revoked, or has expired."""
    row = _find(conn, "key", token)
    if row is None or _expired(row, now):
        return None
    return Caller(row.account, row.id, Access.parse(row.access)), row.expires_at


# ---- joining ------------------------------------------------------------------------------------


def refuses(conn: Conn, token: str, node: str, now: float) -> str | None:
    """Why this node may not join with this token; None when it may."""
    row = _find(conn, "join", token)
    if row is None:
        return "this join token is not known, or was revoked: make one with `stoker key create --join`"
    if row.id == _join_key(conn, node):
        return None
    another = "make another with `stoker key create --join`; nodes that joined with it may come back"
    if _expired(row, now):
        return f"join token {row.id} has expired: {another}"
    if row.uses_left == 0:
        return f"join token {row.id} has been used as often as it may be: {another}"
    return None


def join(conn: Conn, token: str, node: str, now: float) -> None:
    """The node joins, or comes back, with this token. Raises JoinRefused, where `refuses` says why.

    To be called when the node's row is there, in the transaction that made it: a token that may be used once
    is spent by whoever is first, and a refusal takes the row back.
    """
    why = refuses(conn, token, node, now)
    if why is not None:
        raise JoinRefused(why)
    row = _find(conn, "join", token)
    if row.id != _join_key(conn, node):
        spent = update(keys).where(keys.c.id == row.id, keys.c.uses_left > 0)
        conn.execute(spent.values(uses_left=keys.c.uses_left - 1))
        theirs = update(nodes).where(nodes.c.id == node)
        conn.execute(theirs.values(join_key=row.id, account=row.account))
    note_use(conn, {row.id: now})


def joined(conn: Conn, token: str, node: str) -> bool:
    """Whether this is the token that the node joined with, and was not revoked."""
    row = _find(conn, "join", token)
    return row is not None and row.id == _join_key(conn, node)


def _join_key(conn: Conn, node: str) -> str | None:
    return conn.execute(select(nodes.c.join_key).where(nodes.c.id == node)).scalar()


# ---- tokens -------------------------------------------------------------------------------------


def _find(conn: Conn, kind: Kind, token: str) -> Any:
    key, secret = _halves(kind, token)
    live = select(keys).where(keys.c.id == key, keys.c.kind == kind, keys.c.revoked_at.is_(None))
    row = conn.execute(live).first()
    if row is None or not hmac.compare_digest(row.hash, _hash(secret)):
        return None
    return row


def _expired(row: Any, now: float) -> bool:
    return row.expires_at is not None and row.expires_at <= now


def _record(row: Any) -> KeyRecord:
    return KeyRecord(
        id=row.id,
        account=row.account,
        name=row.name,
        created_at=row.created_at,
        revoked_at=row.revoked_at,
        kind=row.kind,
        access=Access.parse(row.access),
        expires_at=row.expires_at,
        last_used_at=row.last_used_at,
        uses_left=row.uses_left,
    )


def _halves(kind: Kind, token: str) -> tuple[str, str]:
    """What finds the row, and what is compared."""
    prefix, _, rest = token.partition("_")
    key, _, secret = rest.partition("_")
    if prefix == _PREFIX[kind] and key and secret:
        return key, secret
    return "own" + hashlib.sha256(_PREFIX[kind].encode() + _hash(token)).hexdigest()[:16], token


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
