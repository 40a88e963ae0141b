"""A snapshot of the store in a SQLite file of its own, while control runs; and its rows in another store.

    SQLite       the online backup of SQLite: the pages as they are, of whichever version the tables are
    PostgreSQL   the rows of one REPEATABLE READ transaction, in tables of this version

The rows are read through SQLAlchemy, and not by pg_dump: that program is not where control is, must be as new
as the server, and makes a file that only PostgreSQL reads. So a backup of either can be restored into either.
An upgrade adds columns with defaults only, so rows of an earlier version fit this version's tables.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from sqlalchemy import delete, func, inspect, select, text

from stoker.control.store.database.opening import Conn, Store, note_version, open_store
from stoker.control.store.database.statements import SQLITE
from stoker.control.store.tables.jobs import artifacts, chunks, inputs, results, webhooks
from stoker.control.store.tables.schema import metadata

ROWS = 50
"""Rows in memory at a time: each may hold a payload of 1 MB."""

_OBJECTS = (
    inputs.c.ref_key,
    results.c.ref_key,
    chunks.c.ref_key,
    webhooks.c.input_key,
    webhooks.c.output_key,
    artifacts.c.key,
)
"""The columns that name an object of the object store."""


def write_snapshot(store: Store, path: Path) -> None:
    """Writes all that is committed at one moment into a new file, its owner's only, which needs no WAL."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    if store.database.dialect is SQLITE:
        with closing(sqlite3.connect(path)) as file:
            store.writer.raw.backup(file)
            file.execute("PRAGMA journal_mode = DELETE")
        return
    with closing(open_store(path, secrets=store.secrets)) as made:
        _as_one(store.reader(), made.writer)
        made.writer.raw.execute("PRAGMA journal_mode = DELETE")


def _as_one(source: Conn, target: Conn) -> None:
    source.begin(to_read=True)
    try:
        if source.sql.dialect.name == "postgresql":
            source.execute(text("SET LOCAL statement_timeout = 0"))
            source.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        replace_rows(source, target)
    finally:
        source.rollback()


def replace_rows(source: Conn, target: Conn) -> None:
    """Replaces all rows of `target` by those of `source`, in one transaction of `target`; the version of the
    tables stays this one's. The caller has begun a transaction of `source`, if it changes meanwhile."""
    target.begin()
    try:
        for table in reversed(metadata.sorted_tables):
            target.execute(delete(table))
        seen = inspect(source.sql)
        names = set(seen.get_table_names())
        for table in metadata.sorted_tables:
            if table.name in names:
                known = [one["name"] for one in seen.get_columns(table.name) if one["name"] in table.c]
                _copy(source, target, table.name, known)
        note_version(target)
    except BaseException:
        target.rollback()
        raise
    target.commit()


def _copy(source: Conn, target: Conn, name: str, columns: list[str]) -> None:
    table = metadata.tables[name]
    found = source.sql.execute(
        select(*(table.c[column] for column in columns)), execution_options={"yield_per": ROWS}
    )
    for rows in found.mappings().partitions(ROWS):
        target.execute(table.insert(), *map(dict, rows))
    counted = table.autoincrement_column
    if counted is not None and target.sql.dialect.name == "postgresql":
        target.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{name}', '{counted.name}'),"
                f" (SELECT COALESCE(MAX({counted.name}), 0) + 1 FROM {name}), false)"
            )
        )


def count_rows(conn: Conn) -> Mapping[str, int]:
    """Returns the number of rows by table, of those that the database has."""
    names = set(inspect(conn.sql).get_table_names())
    return {
        table.name: conn.execute(select(func.count()).select_from(table)).scalar_one()
        for table in metadata.sorted_tables
        if table.name in names
    }


def count_objects(conn: Conn) -> int:
    """Returns how often rows name an object of the object store."""
    return sum(conn.execute(select(func.count(column))).scalar_one() for column in _OBJECTS)
