"""The store in PostgreSQL: how it is reached, who may write it, and what its failures mean.

One control per database for now: the connection that writes holds an advisory lock for as long as it lives,
and a second control is refused, or waits for the lock as a standby (`writer_lock`), which takes it from a
control that stands still (`leadership`). The lock belongs to the session, so this must be PostgreSQL itself,
or a pooler that gives whole sessions.

A dead server must not hold anybody up: connecting, waiting for a lock and a single statement are bounded
here, a silent peer is given up by TCP on both sides. What the URL itself says (`connect_timeout`, `sslmode`,
...) goes before. The password is never part of a sentence: not even the driver's own words about a URL that
it cannot read are repeated, since they quote it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import psycopg
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import StrDumperUnknown
from sqlalchemy.pool import NullPool

from stoker.control.store.database import leadership
from stoker.control.store.database.postgres_failures import WRITER, DatabaseInUse
from stoker.control.store.database.statements import POSTGRESQL
from stoker.control.store.tables import schema

log = logging.getLogger(__name__)

PATIENCE_S = 5.0
"""How long a new control waits for the lock: the server may not have noticed yet that the last one died."""

_TABLES = WRITER + 1
_DEFAULTS = {
    "application_name": "stoker",
    "client_encoding": "utf8",
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
_SESSION = """
SET statement_timeout = '30s';
SET lock_timeout = '5s';
SET idle_in_transaction_session_timeout = '60s';
SET tcp_keepalives_idle = 10;
SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3;
SET tcp_user_timeout = 25000;
"""

_HELD = """
SELECT EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND classid = %s::bigint::oid AND objid = %s::bigint::oid AND objsubid = 1
)
"""


def _limit_indexes() -> None:
    """Gives each index of some rows its condition for PostgreSQL, too. To name the dialect where the tables
    are declared would load it for SQLite's stores."""
    for table in schema.metadata.tables.values():
        for index in table.indexes:
            condition = index.dialect_options["sqlite"]["where"]
            index.dialect_options["postgresql"]["where"] = condition


_limit_indexes()


class _Text(StrDumperUnknown):
    """PostgreSQL knows no NUL in a text, and no caller's text may be refused for one."""

    def dump(self, obj: str) -> Any:
        return super().dump(obj.replace("\x00", "\ufffd"))


class _Int(Int8BinaryDumper):
    """The dumper of integers, with one width for all numbers, so that a statement is prepared once and not
    once for each."""


class PostgresDatabase:
    """The database of a URL. Raises ValueError, whose text does not repeat the URL."""

    dialect = POSTGRESQL
    shared = False
    instead = "give another --database"

    def __init__(self, url: str, *, alone: bool) -> None:
        parameters = _parameters(url)
        self.name = _named(parameters)
        self._password = str(parameters.get("password") or "")
        self._alone = alone
        self.conninfo = make_conninfo("", **{**_DEFAULTS, **parameters})
        self._patience_s = PATIENCE_S
        self._warned = False
        self._failures = 0
        self._term: int | None = None
        self._lost: str | None = None
        self._engine = sqlalchemy.create_engine(
            "postgresql+psycopg://",
            creator=self._connected,
            poolclass=NullPool,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
            use_native_hstore=False,
        )

    def connect(self, *, reads_only: bool) -> sqlalchemy.Connection:
        """Raises the driver's errors, and Taken."""
        sql = self._engine.connect()
        try:
            raw: Any = sql.connection.dbapi_connection
            if reads_only:
                raw.execute("SET default_transaction_read_only = on")
            elif self._alone:
                self._lock(raw)
        except BaseException:
            sql.close()
            raise
        return sql

    def _connected(self) -> psycopg.Connection[Any]:
        raw = psycopg.connect(self.conninfo, autocommit=True)
        raw.adapters.register_dumper(str, _Text)
        raw.adapters.register_dumper(int, _Int)
        try:
            raw.execute(_SESSION)
            self._keep_promises(raw)
        except BaseException:
            raw.close()
            raise
        return raw

    def _keep_promises(self, raw: psycopg.Connection[Any]) -> None:
        """Ensures that what was answered is on the disk, whatever the server's settings are for others."""
        row = raw.execute("SELECT current_setting('synchronous_commit'), current_setting('fsync')").fetchone()
        commit, fsync = row or ("", "")
        if commit == "off":
            raw.execute("SET synchronous_commit = on")
        if fsync == "off" and not self._warned:
            self._warned = True
            log.warning("the database %s runs with fsync = off: a power cut may lose jobs", self.name)

    def _lock(self, raw: psycopg.Connection[Any]) -> None:
        """Waits only the first time: later on, no other process should hold it."""
        patience_ms = max(int(self._patience_s * 1000), 1)
        raw.execute(f"SET lock_timeout = {patience_ms}")
        try:
            raw.execute("SELECT pg_advisory_lock(%s)", (WRITER,))
        except psycopg.errors.LockNotAvailable:
            raise DatabaseInUse("another control works on it") from None
        self._patience_s = 0.5
        raw.execute("SET lock_timeout = '5s'")
        if self._term is not None:
            if leadership.found_term(raw) != self._term:
                self._lose()
                raise DatabaseInUse("another control has taken it over")
            leadership.hold(raw, self._term)

    def lead(self, raw: psycopg.Connection[Any]) -> None:
        self._term = leadership.take(raw)

    async def keep_lead(self) -> None:
        if self._term is not None:
            await leadership.count(self.conninfo, self._term, self._lose)

    def _lose(self) -> None:
        self._lost = f"another control has taken over the database {self.name}"

    def executor(self, raw: Any) -> Any:
        """Returns the function that runs one statement. Its bytes come as they are, not as hexadecimal
        text."""
        return partial(raw.execute, binary=True)

    def run_all(self, raw: Any, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Runs the statements in one round trip. An error of any ends all after it."""
        cursor = raw.cursor()
        with raw.pipeline():
            for statement in statements:
                cursor.execute(*statement, binary=True)

    def lock_tables(self, raw: Any) -> None:
        """Keeps any other process from making the tables until the end of this transaction."""
        raw.execute("SELECT pg_advisory_xact_lock(%s)", (_TABLES,))

    def is_broken(self, sql: sqlalchemy.Connection, raw: Any) -> bool:
        return bool(raw.closed) or sql.closed or sql.invalidated

    def size(self, raw: Any) -> int:
        return int(raw.execute("SELECT pg_database_size(current_database())").fetchone()[0])

    def has_control(self, raw: Any) -> bool:
        """Returns whether another session holds the lock of a control."""
        return bool(raw.execute(_HELD, (WRITER >> 32, WRITER & 0xFFFFFFFF)).fetchone()[0])

    def roll_back(self, raw: Any) -> None:
        """Ends the transaction. The driver takes a statement for prepared though a round trip that failed
        ended before: it forgets all prepared ones at a DEALLOCATE ALL whose text it does not know yet."""
        status = raw.pgconn.transaction_status
        if status in {psycopg.pq.TransactionStatus.INTRANS, psycopg.pq.TransactionStatus.INERROR}:
            raw.execute("ROLLBACK")
        if status == psycopg.pq.TransactionStatus.INERROR:
            self._failures += 1
            raw.execute(f"DEALLOCATE ALL -- after failure {self._failures}".encode())

    def lost(self) -> str | None:
        """Returns that another control has taken the lead, which ends this one's."""
        return self._lost

    def message(self, error: Exception) -> str:
        """Returns the server's message, on one line."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        line = next((line for line in reversed(lines) if "failed: " in line), lines[0])
        message = line.rpartition("failed: ")[2].removeprefix("FATAL:").strip()
        return message.replace(self._password, "***") if self._password else message

    def answers(self) -> bool:
        """Returns whether the server takes connections, of whomever: not one that is away, starts or stops.
        Blocks for `connect_timeout` at most."""
        return psycopg.pq.PGconn.ping(self.conninfo.encode()) == psycopg.pq.Ping.OK

    def close(self) -> None:
        self._engine.dispose()


def shown(url: str) -> str:
    """Returns what may be shown of a URL, such as `stoker at db.example:5432`. Raises ValueError."""
    return _named(_parameters(url))


def _parameters(url: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(url))
    except psycopg.Error:
        raise ValueError("it must read postgresql://USER:PASSWORD@HOST:PORT/NAME") from None


def _named(parameters: dict[str, Any]) -> str:
    host, port = (
        parameters.get("host") or parameters.get("hostaddr") or "localhost",
        parameters.get("port") or "5432",
    )
    name = parameters.get("dbname") or parameters.get("user") or "postgres"
    return f"{name} at {host}:{port}"
