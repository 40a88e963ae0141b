"""Registry auths in the store: what images are pulled with. Username and password are sealed together."""

from __future__ import annotations

import json

from msgspec import Struct
from sqlalchemy import delete, insert, select

from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.resources import registries
from stoker.wire.messages import RegistryAuth


class Registry(Struct, frozen=True):
    """A registry auth as it is listed, without what it holds, which is for pulls only."""

    id: str
    name: str


def add_registry(conn: Conn, account: str, registry: Registry, login: RegistryAuth, now: float) -> None:
    sealed = conn.secrets.seal(json.dumps([login.username, login.password]).encode())
    row = {"id": registry.id, "account": account, "name": registry.name, "login": sealed, "created_at": now}
    conn.execute(insert(registries), row)


def list_registries(conn: Conn, account: str) -> tuple[Registry, ...]:
    """Returns the account's registry auths, oldest first."""
    rows = conn.execute(
        select(registries.c.id, registries.c.name)
        .where(registries.c.account == account)
        .order_by(registries.c.created_at, registries.c.id)
    )
    return tuple(Registry(row.id, row.name) for row in rows)


def registry_login(conn: Conn, account: str, registry: str) -> RegistryAuth | None:
    row = conn.execute(
        select(registries.c.login).where(registries.c.account == account, registries.c.id == registry)
    ).first()
    return None if row is None else RegistryAuth(*json.loads(conn.secrets.open(row.login)))


def remove_registry(conn: Conn, account: str, registry: str) -> bool:
    gone = delete(registries).where(registries.c.account == account, registries.c.id == registry)
    return conn.execute(gone).rowcount > 0
