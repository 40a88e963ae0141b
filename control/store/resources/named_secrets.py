"""Named secrets in the store: values that environments refer to by name, each sealed."""

from __future__ import annotations

from msgspec import Struct
from sqlalchemy import delete, insert, select, update

from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.resources import secrets


class NamedSecret(Struct, frozen=True):
    """A secret as it is listed; times are seconds since the epoch."""

    name: str
    created_at: float
    changed_at: float


def put_secret(conn: Conn, account: str, name: str, value: str, now: float) -> NamedSecret:
    sealed = conn.secrets.seal(value.encode())
    mine = (secrets.c.account == account) & (secrets.c.name == name)
    known = conn.execute(select(secrets.c.created_at).where(mine)).scalar()
    if known is None:
        row = {"account": account, "name": name, "value": sealed, "created_at": now, "changed_at": now}
        conn.execute(insert(secrets), row)
        return NamedSecret(name, now, now)
    conn.execute(update(secrets).where(mine).values(value=sealed, changed_at=now))
    return NamedSecret(name, known, now)


def list_secrets(conn: Conn, account: str) -> tuple[NamedSecret, ...]:
    """Returns the account's secrets, without their values, by name."""
    columns = (secrets.c.name, secrets.c.created_at, secrets.c.changed_at)
    rows = conn.execute(select(*columns).where(secrets.c.account == account).order_by(secrets.c.name))
    return tuple(NamedSecret(row.name, row.created_at, row.changed_at) for row in rows)


def read_secrets(conn: Conn) -> dict[str, dict[str, str]]:
    """Returns all values in clear, by account and name."""
    found: dict[str, dict[str, str]] = {}
    for row in conn.execute(select(secrets.c.account, secrets.c.name, secrets.c.value)):
        found.setdefault(row.account, {})[row.name] = conn.secrets.open(row.value).decode()
    return found


def remove_secret(conn: Conn, account: str, name: str) -> bool:
    gone = delete(secrets).where(secrets.c.account == account, secrets.c.name == name)
    return conn.execute(gone).rowcount > 0
