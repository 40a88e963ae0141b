"""Templates in the store. What one holds is sealed as a whole, since its environment may hold secrets."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import insert, select, update

from stoker.control.rules.types import Template
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.resources import templates


def put_template(conn: Conn, template: Template, now: float) -> None:
    """Stores it under its id, new or changed."""
    body = conn.secrets.seal(json.dumps(dict(template.fields)).encode())
    row = {"account": template.account, "name": template.name, "body": body, "changed_at": now}
    changed = update(templates).where(templates.c.id == template.id).values(**row)
    if conn.execute(changed).rowcount == 0:
        conn.execute(insert(templates), {"id": template.id, "created_at": template.created_at, **row})


def get_template(conn: Conn, template: str) -> Template | None:
    """Returns a template of any account."""
    row = conn.execute(_there().where(templates.c.id == template)).first()
    return None if row is None else _template(conn, row)


def named_template(conn: Conn, account: str, name: str) -> Template | None:
    row = conn.execute(_there().where(templates.c.account == account, templates.c.name == name)).first()
    return None if row is None else _template(conn, row)


def list_templates(conn: Conn) -> tuple[Template, ...]:
    """Returns the templates of every account, the oldest first."""
    rows = conn.execute(_there().order_by(templates.c.created_at, templates.c.id))
    return tuple(_template(conn, row) for row in rows)


def remove_template(conn: Conn, template: str, now: float) -> None:
    """Removes a template. Its row stays, for the bills that name it; its contents do not."""
    empty = conn.secrets.seal(b"{}")
    gone = update(templates).where(templates.c.id == template).values(deleted_at=now, body=empty)
    conn.execute(gone)


def _there() -> Any:
    return select(templates).where(templates.c.deleted_at.is_(None))


def _template(conn: Conn, row: Any) -> Template:
    return Template(
        id=row.id,
        account=row.account,
        name=row.name,
        fields=json.loads(conn.secrets.open(row.body)),
        created_at=row.created_at,
    )
