"""The store in a file, or in memory: how SQLite is opened, and what its failures mean.

WAL mode with synchronous=FULL: what was committed survives a power cut. The file is its owner's only, since
it holds callers' inputs; its WAL gets the same mode from SQLite.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy.pool import NullPool

from stoker.control.store.database.statements import SQLITE

MEMORY = ":memory:"
_BUSY_MS = 5_000

_PRAGMAS = (
    f"busy_timeout = {_BUSY_MS}",
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "cache_size = -16000",
    "temp_store = MEMORY",
)

UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "the disk of the data folder is full",
    sqlite3.SQLITE_IOERR: "the disk of the data folder does not answer as it should",
    sqlite3.SQLITE_BUSY: "the database is locked by another process",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_READONLY: "the database may not be written",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_CORRUPT: "the database file is damaged, or was replaced",
    sqlite3.SQLITE_NOTADB: "the database file was replaced by another one",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}


class SqliteFile:
    """The database at a path."""

    dialect = SQLITE

    def __init__(self, path: str) -> None:
        self.name = path
        self.instead = "give another --data-dir"
        self.shared = path == MEMORY
        self._opened: os.stat_result | None = None
        if not self.shared:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._opened = os.fstat(file)
            os.close(file)
        self._engine = sqlalchemy.create_engine(
            f"sqlite:///{path}",
            poolclass=NullPool,
            isolation_level="AUTOCOMMIT",
            connect_args={"check_same_thread": False, "cached_statements": 256},
        )
        sqlalchemy.event.listen(self._engine, "connect", _prepare)

    def connect(self, *, reads_only: bool) -> sqlalchemy.Connection:
        sql = self._engine.connect()
        if reads_only:
            sql.exec_driver_sql("PRAGMA query_only = ON")
        return sql

    def executor(self, raw: Any) -> Any:
        """Returns the function that runs one statement."""
        return raw.execute

    def run_all(self, raw: Any, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        for statement in statements:
            raw.execute(*statement)

    def lock_tables(self, raw: Any) -> None:
        """Does nothing: BEGIN IMMEDIATE has locked the whole file."""

    def is_broken(self, sql: sqlalchemy.Connection, raw: Any) -> bool:
        """Returns False: a file has no line that could break."""
        return False

    def size(self, raw: Any) -> int:
        """Returns the bytes of the file and of its WAL."""
        files = [Path(self.name), Path(f"{self.name}-wal")]
        return sum(file.stat().st_size for file in files if file.exists())

    def has_control(self, raw: Any) -> bool:
        """Returns False: a file knows of nobody; the data folder has a lock."""
        return False

    def roll_back(self, raw: Any) -> None:
        """Ends the transaction, which a full disk may have ended before."""
        if raw.in_transaction:
            raw.execute("ROLLBACK")

    def lead(self, raw: sqlite3.Connection) -> None:
        """Does nothing: the lock of the data folder is the lead, and its holder cannot be ended from here."""

    async def keep_lead(self) -> None:
        """Returns at once."""

    def lost(self) -> str | None:
        """Returns that the file was deleted or replaced: SQLite goes on writing to one without a name."""
        if self._opened is None:
            return None
        try:
            found = os.stat(self.name)
        except FileNotFoundError:
            return f"the database file {self.name} was deleted"
        except OSError:  # of a disk that may come back
            return None
        same = os.path.samestat(found, self._opened)
        return None if same else f"the database file {self.name} was replaced by another file"

    def message(self, error: Exception) -> str:
        return str(error)

    def answers(self) -> bool:
        """Returns True: a file has no server."""
        return True

    def close(self) -> None:
        self._engine.dispose()


def _prepare(driver: sqlite3.Connection, _record: object) -> None:
    for pragma in _PRAGMAS:
        driver.execute(f"PRAGMA {pragma}")


def code(error: sqlite3.Error) -> int | None:
    """Returns SQLite's primary result code."""
    found = getattr(error, "sqlite_errorcode", None)
    return None if found is None else int(found) & 0xFF
