"""Network volumes in the store. What is in them lies on the nodes; a row is a name, a size, and what is
reported.

A deleted one stays for a while, marked: nodes that were away are to remove its folder, too, and its last
hours are still to be billed.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict
from sqlalchemy import delete, insert, select, update

from stoker.control.rules.volumes import Volume
from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.resources import volumes

REMEMBERED_S = 30 * 86_400.0
"""How long nodes are sent the removal of a volume's folder."""

_COLUMNS = tuple(volumes.c[name] for name in Volume.__struct_fields__)


def add_volume(conn: Conn, volume: Volume) -> None:
    row: dict[str, Any] = asdict(volume)
    conn.execute(insert(volumes), row | {"billed_to": volume.created_at})


def list_volumes(conn: Conn) -> tuple[Volume, ...]:
    """Returns the volumes of all accounts, also deleted ones that are remembered; oldest first."""
    rows = conn.execute(select(*_COLUMNS).order_by(volumes.c.created_at, volumes.c.id))
    return tuple(Volume(*row) for row in rows)


def get_volume(conn: Conn, account: str, volume: str) -> Volume | None:
    """Returns a volume that was not deleted."""
    there = (volumes.c.id == volume) & (volumes.c.account == account) & volumes.c.deleted_at.is_(None)
    row = conn.execute(select(*_COLUMNS).where(there)).first()
    return None if row is None else Volume(*row)


def put_volume(conn: Conn, volume: Volume) -> None:
    """Stores a volume's name and size, which are all that may change."""
    changed = update(volumes).where(volumes.c.id == volume.id)
    conn.execute(changed.values(name=volume.name, size_gb=volume.size_gb))


def delete_volume(conn: Conn, volume: str, now: float) -> None:
    conn.execute(update(volumes).where(volumes.c.id == volume).values(deleted_at=now))


def forget_volumes(conn: Conn, now: float) -> None:
    """Forgets the volumes that were deleted long ago, and are billed to their end."""
    past = (volumes.c.deleted_at <= now - REMEMBERED_S) & (volumes.c.billed_to >= volumes.c.deleted_at)
    conn.execute(delete(volumes).where(past))


_MEASURED = """
UPDATE volumes SET used_bytes = :used_bytes, measured_at = :now WHERE id = :volume AND deleted_at IS NULL
"""


def note_used(conn: Conn, volume: str, used_bytes: int, now: float) -> None:
    conn.run(_MEASURED, {"volume": volume, "used_bytes": used_bytes, "now": now})
