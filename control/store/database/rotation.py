"""Values that are sealed with the secret key, sealed again with the first key while control runs.

Batches are read outside of the transaction that writes: no writer waits for the reading. A value that changed
in between was sealed by control, with its first key, and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from sqlalchemy import Column, select, tuple_, update

from stoker.control.store.database.opening import Conn
from stoker.control.store.tables.accounts import meta
from stoker.control.store.tables.schema import metadata

BATCH = 200
META = ("secret_check", "webhook_secret", "webhook_secret_before")
"""The rows of `meta` that are sealed: its others are not."""

SEALED: tuple[Column[Any], ...] = (
    *(column for table in metadata.sorted_tables for column in table.columns if column.info.get("sealed")),
    meta.c.value,
)


class _Stale(Struct, frozen=True):
    """Values of a column that are not sealed with the first key, by their rows' primary keys."""

    column: Column[Any]
    values: tuple[tuple[tuple[Any, ...], bytes, bytes], ...]


def count_stale(conn: Conn) -> int:
    """Returns how many values are not sealed with the first key."""
    return sum(len(batch.values) for batch in _stale(conn))


def reseal(conn: Conn) -> int:
    """Seals them with it, a batch to a transaction. Returns how many they were."""
    done = 0
    for batch in _stale(conn):
        conn.begin()
        try:
            done += sum(_reseal(conn, batch.column, *value) for value in batch.values)
        except BaseException:
            conn.rollback()
            raise
        conn.commit()
    return done


def _reseal(conn: Conn, column: Column[Any], key: tuple[Any, ...], old: bytes, new: bytes) -> int:
    keys = column.table.primary_key.columns
    row = [one == value for one, value in zip(keys, key, strict=True)]
    table = metadata.tables[column.table.name]
    return conn.execute(update(table).where(*row, column == old).values({column.name: new})).rowcount


def _stale(conn: Conn) -> Iterator[_Stale]:
    for column in SEALED:
        after: tuple[Any, ...] | None = None
        while rows := _read(conn, column, after):
            after = rows[-1][0]
            changed = ((key, old, conn.secrets.resealed(old)) for key, old in rows)
            found = tuple((key, old, new) for key, old, new in changed if new is not None)
            if found:
                yield _Stale(column, found)


def _read(
    conn: Conn, column: Column[Any], after: tuple[Any, ...] | None
) -> list[tuple[tuple[Any, ...], bytes]]:
    keys = tuple(column.table.primary_key.columns)
    query = select(*keys, column).where(column.is_not(None)).order_by(*keys).limit(BATCH)
    if column.table is meta:
        query = query.where(meta.c.name.in_(META))
    if after is not None:
        query = query.where(tuple_(*keys) > after)
    return [(tuple(row[:-1]), bytes(row[-1])) for row in conn.execute(query)]
