"""Opens the store: its file, its tables, its version, the key to its secrets; and the connections to it.

SQLite is opened in WAL mode with synchronous=FULL: what was committed survives a power cut. Transactions
are explicit: whoever holds a `Conn` begins and ends them (control.commit does). SQLAlchemy serves the cold
statements and the raw driver the hot ones, on the same connection and in the same transaction.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import sqlalchemy
from sqlalchemy import Executable, insert, select
from sqlalchemy.pool import NullPool

from stoker.control import schema
from stoker.control.secrets import SecretKeyError, Secrets, load_secrets, random_secrets
from stoker.control.statements import SQLITE, Dialect, Written

DEFAULT_ACCOUNT = "default"
_CHECK = b"stoker"
_BUSY_MS = 5_000


class StoreError(Exception):
    """The store cannot be opened; the text says why."""


class Rows(Protocol):
    """What a statement gives, from either driver."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Conn:
    """One connection. `run` takes a hot statement: its name in statements.sql, or its text in the same
    dress (a constant: each text is kept). `execute` takes SQLAlchemy's."""

    def __init__(self, sql: sqlalchemy.Connection, secrets: Secrets, dialect: Dialect = SQLITE) -> None:
        self.sql = sql
        self.secrets = secrets
        self.renewed: dict[str, tuple[int, float]] = {}
        """When a node's lease was last renewed here, and for which session."""
        self.raw = cast(sqlite3.Connection, sql.connection.dbapi_connection)
        self._dialect = dialect
        self._written = Written(dialect)

    def run(self, statement: str, values: Mapping[str, Any]) -> Rows:
        return self.raw.execute(self._written[statement], values)

    def run_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        self.raw.executemany(self._written[statement], rows)

    def execute(
        self, statement: Executable, *rows: Mapping[str, Any]
    ) -> sqlalchemy.CursorResult[*tuple[Any, ...]]:
        return self.sql.execute(statement, list(rows) if rows else None)

    def begin(self) -> None:
        """A transaction that will write."""
        self.raw.execute(self._dialect.begin)

    def begin_read(self) -> None:
        """One snapshot for several reads."""
        self.raw.execute(self._dialect.begin_read)

    def commit(self) -> None:
        self.raw.execute("COMMIT")

    def rollback(self) -> None:
        # A full disk may have ended the transaction already.
        if self.raw.in_transaction:
            self.raw.execute("ROLLBACK")

    def close(self) -> None:
        self.sql.close()


class Store:
    """An open store: one writer; readers of their own where it is a file."""

    def __init__(self, path: str, secrets: Secrets) -> None:
        self.path = path
        self.secrets = secrets
        self.shared = path == ":memory:"
        """One connection serves all: a database in memory has no other."""
        self._engine = sqlalchemy.create_engine(
            f"sqlite:///{path}",
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"check_same_thread": False, "cached_statements": 256},
        )
        sqlalchemy.event.listen(self._engine, "connect", _prepare)
        self.writer = self._connect()
        self._readers: list[Conn] = []

    def _connect(self) -> Conn:
        return Conn(self._engine.connect(), self.secrets)

    def reader(self) -> Conn:
        """A connection for reads; it is closed with the store."""
        if self.shared:
            return self.writer
        conn = self._connect()
        conn.raw.execute("PRAGMA query_only = ON")
        self._readers.append(conn)
        return conn

    def close(self) -> None:
        for conn in (*self._readers, self.writer):
            conn.close()
        self._engine.dispose()


def _prepare(driver: sqlite3.Connection, _record: object) -> None:
    for pragma in (
        f"busy_timeout = {_BUSY_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "cache_size = -16000",
        "temp_store = MEMORY",
    ):
        driver.execute(f"PRAGMA {pragma}")


def open_store(path: Path | str, *, secrets: Secrets | None = None, now: float = 0.0) -> Store:
    """The store at `path` (or ":memory:"), made when there is none. Raises StoreError, SecretKeyError."""
    name = str(path)
    if secrets is None:
        secrets = random_secrets() if name == ":memory:" else load_secrets(Path(name).parent, os.environ)
    store = None
    try:
        store = _open_private(name, secrets)
        _check(store, now)
    except (sqlite3.Error, sqlalchemy.exc.DBAPIError) as error:
        if store is not None:
            store.close()
        raise StoreError(f"the database {name} cannot be opened: {getattr(error, 'orig', error)}") from error
    except BaseException:
        if store is not None:
            store.close()
        raise
    return store


def _open_private(name: str, secrets: Secrets) -> Store:
    """The file is the owner's only: it holds callers' inputs. Its WAL gets the same mode from SQLite."""
    if name != ":memory:":
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))
    return Store(name, secrets)


def _check(store: Store, now: float) -> None:
    conn = store.writer
    conn.begin()
    try:
        names = sqlalchemy.inspect(conn.sql).get_table_names()
        if not names:
            _create(conn, now)
        elif "meta" not in names:
            raise StoreError(f"the database {store.path} holds tables that are not Stoker's")
        _check_version(conn, store.path)
        _check_key(conn)
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


def _create(conn: Conn, now: float) -> None:
    schema.metadata.create_all(conn.sql)
    conn.execute(
        insert(schema.meta),
        {"name": "schema_version", "value": str(schema.SCHEMA_VERSION).encode()},
        {"name": "secret_check", "value": conn.secrets.seal(_CHECK)},
    )
    conn.execute(insert(schema.accounts), {"id": DEFAULT_ACCOUNT, "created_at": now})


def _check_version(conn: Conn, path: str) -> None:
    found = _meta(conn, "schema_version").decode()
    if found != str(schema.SCHEMA_VERSION):
        raise StoreError(
            f"the database {path} has schema version {found}, and this Stoker works with version "
            f"{schema.SCHEMA_VERSION}: start the Stoker that wrote it, or give another --data-dir"
        )


def _check_key(conn: Conn) -> None:
    if conn.secrets.open(_meta(conn, "secret_check")) != _CHECK:
        raise SecretKeyError(f"{conn.secrets.origin} does not open the secrets in the database")


def _meta(conn: Conn, name: str) -> bytes:
    value = conn.execute(select(schema.meta.c.value).where(schema.meta.c.name == name)).scalar()
    return bytes(value or b"")
