"""API keys and join tokens: made, changed, listed, revoked, recognised.

A key reads `sk_<id>_<secret>`, a join token `jt_<id>_<secret>`. The secret half is 256 random bits, so one
round of SHA-256 is all that a stolen database must not reveal; the id half finds the row, and the hash is
compared in constant time. A key is shown once, when it is made. An operator may bring a token instead
(`adopt`); one of another form has an id that is made from its hash.

What nodes do with join tokens, and with the credentials (`nk_<id>_<secret>`) that they get for them, is
described in `joining`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from msgspec.structs import replace
from sqlalchemy import insert, select, update

from stoker.control.rules.access import ALL, Access, Caller
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota
from stoker.control.rules.types import KeyRecord
from stoker.control.store.database.opening import DEFAULT_ACCOUNT, Conn
from stoker.control.store.tables.accounts import keys

Kind = Literal["key", "join", "node"]
_PREFIX: dict[Kind, str] = {"key": "sk", "join": "jt", "node": "nk"}
_ID_BYTES = 6
_SECRET_BYTES = 32


def create_key(
    conn: Conn,
    *,
    name: str,
    now: float,
    account: str = DEFAULT_ACCOUNT,
    access: Access = ALL,
    expires_at: float | None = None,
    quota: Quota = UNBOUNDED,
    priority: Priority | None = None,
) -> tuple[KeyRecord, str]:
    """Creates an API key. Returns its record, and the token that is shown once."""
    bounds: dict[str, Any] = {
        "access": access,
        "expires_at": expires_at,
        "quota": quota,
        "priority": priority,
    }
    return _create(conn, KeyRecord("", account, name, now, **bounds))


def create_join_token(
    conn: Conn,
    *,
    name: str,
    now: float,
    account: str = DEFAULT_ACCOUNT,
    uses: int | None = None,
    expires_at: float | None = None,
) -> tuple[KeyRecord, str]:
    """Creates a token with which agents join; `uses`: how many nodes may."""
    record = KeyRecord("", account, name, now, kind="join", expires_at=expires_at, uses_left=uses)
    return _create(conn, record)


def create_credential(conn: Conn, *, node: str, now: float, account: str) -> tuple[KeyRecord, str]:
    """Creates a credential, with which this node reconnects."""
    return _create(conn, KeyRecord("", account, node, now, kind="node"))


def _create(conn: Conn, wanted: KeyRecord) -> tuple[KeyRecord, str]:
    key, secret = secrets.token_hex(_ID_BYTES), secrets.token_hex(_SECRET_BYTES)
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
        "quota": record.quota.stored(),
        "priority": record.priority,
    }
    conn.execute(insert(keys), row)
    return record, f"{_PREFIX[record.kind]}_{key}_{secret}"


def known(conn: Conn, kind: Kind, token: str) -> bool:
    """Returns whether there is this token, whatever it may still do."""
    return find(conn, kind, token) is not None


def adopt(conn: Conn, kind: Kind, token: str, *, name: str, now: float) -> bool:
    """Makes this token known from now on, to the default account. Returns False if it was revoked, has
    expired, or its id is taken."""
    found = find(conn, kind, token)
    if found is not None:
        return not _expired(found, now)
    key, secret = _halves(kind, token)
    if conn.execute(select(keys.c.id).where(keys.c.id == key)).first() is not None:
        return False
    row = {"id": key, "account": DEFAULT_ACCOUNT, "kind": kind, "name": name}
    conn.execute(insert(keys), {**row, "hash": _hash(secret), "created_at": now, "expires_at": None})
    return True


def list_keys(
    conn: Conn, kind: Kind = "key", *, account: str | None = None, revoked: bool = True
) -> tuple[KeyRecord, ...]:
    """Returns the keys of a kind, oldest first; of every account where none is named."""
    wanted = select(keys).where(keys.c.kind == kind).order_by(keys.c.created_at, keys.c.id)
    if account is not None:
        wanted = wanted.where(keys.c.account == account)
    if not revoked:
        wanted = wanted.where(keys.c.revoked_at.is_(None))
    return tuple(_record(row) for row in conn.execute(wanted))


def get_key(conn: Conn, account: str, key: str) -> KeyRecord | None:
    """Returns a key or join token that was not revoked."""
    found = select(keys).where(keys.c.id == key, keys.c.account == account, keys.c.revoked_at.is_(None))
    row = conn.execute(found).first()
    return None if row is None else _record(row)


def change_key(conn: Conn, account: str, key: str, changes: Mapping[str, Any]) -> bool:
    """Changes a key. `changes`: columns of the table, and their values. Returns False if there is no such
    key, or it was revoked."""
    changed = update(keys).where(keys.c.id == key, keys.c.account == account, keys.c.revoked_at.is_(None))
    return conn.execute(changed.values(**changes)).rowcount > 0


def revoke_key(conn: Conn, key: str, now: float) -> bool:
    """Revokes a key or join token by id. Returns False if there is none, or it was revoked before."""
    ended = update(keys).where(keys.c.id == key, keys.c.revoked_at.is_(None)).values(revoked_at=now)
    return conn.execute(ended).rowcount > 0


def key_id(token: str) -> str:
    """Returns the id of an API key of ours."""
    return _halves("key", token)[0]


def credential_id(token: str) -> str | None:
    """Returns the id of a node's credential; None for any other token."""
    return _halves("node", token)[0] if token.startswith("nk_") else None


def note_use(conn: Conn, used: Mapping[str, float]) -> None:
    """Stores when these keys were used last."""
    for key, at in used.items():
        conn.execute(update(keys).where(keys.c.id == key).values(last_used_at=at))


def find_caller(conn: Conn, token: str, now: float) -> tuple[Caller, float | None] | None:
    """Returns whose API key this is, and when it expires; None if it is not an API key, was revoked, or has
    expired."""
    row = find(conn, "key", token)
    if row is None or _expired(row, now):
        return None
    access = Access.parse(row.access)
    highest = _priority(row) or access.highest
    return Caller(row.account, row.id, access, Quota.parse(row.quota), highest), row.expires_at


# ---- tokens -------------------------------------------------------------------------------------


def find(conn: Conn, kind: Kind, token: str) -> Any:
    """Returns the row of a token that was not revoked; None for any other."""
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
        quota=Quota.parse(row.quota),
        priority=_priority(row),
    )


def _priority(row: Any) -> Priority | None:
    return None if row.priority is None else Priority(row.priority)


def _halves(kind: Kind, token: str) -> tuple[str, str]:
    """Returns the part of a token that finds the row, and the part that is compared. Callers whom nobody
    knows yet send any text, of which a database takes what can be printed."""
    prefix, _, rest = token.partition("_")
    key, _, secret = rest.partition("_")
    if prefix == _PREFIX[kind] and key and secret and key.isprintable():
        return key, secret
    return "own" + hashlib.sha256(_PREFIX[kind].encode() + _hash(token)).hexdigest()[:16], token


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
