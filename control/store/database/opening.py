"""Opens the store: its database, its tables, their version, the key to its secrets; and connections to it.

Where the tables lie is a `Database`: a file of SQLite's (`sqlite`) or a PostgreSQL database
(`postgres`). Transactions are explicit: the holder of a `Conn` begins and ends them
(`commits` does). SQLAlchemy serves the cold statements and the raw driver the hot ones, on the same
connection and in the same transaction.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

import sqlalchemy
from sqlalchemy import Executable, delete, insert, select

from stoker.control.errors import UncertainCommit
from stoker.control.store.database.failures import driver_error
from stoker.control.store.database.postgres_failures import DatabaseInUse, is_url
from stoker.control.store.database.secrets import Encryption, SecretKeyError, load_secrets, random_secrets
from stoker.control.store.database.sqlite import MEMORY, SqliteFile
from stoker.control.store.database.statements import Dialect, Written
from stoker.control.store.database.upgrades import ADDED, Upgrade, upgrade
from stoker.control.store.database.versions import Tables, suit
from stoker.control.store.tables import schema
from stoker.control.store.tables.accounts import accounts, meta

log = logging.getLogger(__name__)

DEFAULT_ACCOUNT = "default"
_CHECK = b"stoker"

Use = Literal["make", "use", "look"]
"""What may be done to the tables: `make` makes them where there are none, and upgrades earlier ones; `use`
takes those of this version only, and of later ones that suit it; `look` takes those of any version."""


class StoreError(Exception):
    """The store cannot be opened; the text says why."""


class StoreInUse(StoreError):
    """Another control holds the database."""


class StoreAway(StoreError):
    """The server of the database does not answer, or is not ready yet."""


class Database(Protocol):
    """The place of the tables."""

    name: str
    """As sentences call it."""
    instead: str
    """What an operator may do who meant another one."""
    shared: bool
    """One connection serves all: a database in memory has no other."""

    @property
    def dialect(self) -> Dialect: ...

    def connect(self, *, reads_only: bool) -> sqlalchemy.Connection: ...

    def executor(self, raw: Any) -> Callable[[str, Mapping[str, Any]], Rows]: ...

    def run_all(self, raw: Any, statements: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Runs many statements in order, in one round trip where there are any."""

    def lock_tables(self, raw: Any) -> None: ...

    def is_broken(self, sql: sqlalchemy.Connection, raw: Any) -> bool: ...

    def size(self, raw: Any) -> int:
        """Returns the bytes that the database has on its disk."""

    def has_control(self, raw: Any) -> bool:
        """Returns whether the database itself knows of a control that has it open."""

    def roll_back(self, raw: Any) -> None:
        """Ends the transaction, if it has not been ended by what went wrong."""

    def lead(self, raw: Any) -> None:
        """Takes the lead of the database, for the control whose writing connection this is."""

    async def keep_lead(self) -> None:
        """Shows that this control is alive, until cancelled or until the lead is lost."""

    def lost(self) -> str | None:
        """Returns why what is stored now would not be found at the next start, if so."""

    def message(self, error: Exception) -> str: ...

    def answers(self) -> bool:
        """Returns whether the server takes connections now. Blocks while it is asked."""

    def close(self) -> None: ...


class Rows(Protocol):
    """The result of a statement, from either driver."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


FEW = 3
"""To begin and end a round trip for several statements takes as long as these, one by one."""

UNAWARE = frozenset({"insert_job", "claim", "finish", "renew"})
"""Hot statements that do not notice whether a `Conn.write` has been run: they touch none of its tables."""


class Conn:
    """A connection to the database. `run` takes a hot statement: its name in statements.sql, or its text in
    the same dress (a constant: each text is kept). `write` takes a hot statement whose result nobody reads:
    it waits for others, at most until the next statement that could notice, or COMMIT, where its error is
    raised then. `execute` takes SQLAlchemy's.

    A transaction that begins finds a connection that works, or raises what the driver says: a broken one is
    opened again.
    """

    def __init__(self, database: Database, secrets: Encryption, *, reads_only: bool = False) -> None:
        self.secrets = secrets
        self.renewed: dict[str, tuple[int, float]] = {}
        """When a node's lease was last renewed here, and for which session."""
        self._database = database
        self._reads_only = reads_only
        self._begin = database.dialect.begin
        self._begin_read = database.dialect.begin_read
        self._written = Written(database.dialect)
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        """The statements of `write` that were not sent yet."""
        self._open()

    def _open(self) -> None:
        self.sql = self._database.connect(reads_only=self._reads_only)
        self.raw: Any = self.sql.connection.dbapi_connection
        self._execute = self._database.executor(self.raw)
        self.renewed.clear()

    @property
    def broken(self) -> bool:
        return self._database.is_broken(self.sql, self.raw)

    def run(self, statement: str, values: Mapping[str, Any]) -> Rows:
        if self._waiting and statement not in UNAWARE:
            self.send_waiting()
        return self._execute(self._written[statement], values)

    def write(self, statement: str, values: Mapping[str, Any]) -> None:
        self._waiting.append((self._written[statement], values))

    def send_waiting(self) -> None:
        """Runs the statements of `write` that wait. Raises what the driver says of any of them."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) > FEW:
            self._database.run_all(self.raw, waiting)
            return
        for statement in waiting:
            self._execute(*statement)

    def run_many(self, statement: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Runs the statement for each of the rows; its results are not read."""
        self.send_waiting()
        self.raw.cursor().executemany(self._written[statement], rows)

    def execute(
        self, statement: Executable, *rows: Mapping[str, Any]
    ) -> sqlalchemy.CursorResult[*tuple[Any, ...]]:
        self.send_waiting()
        return self.sql.execute(statement, list(rows) if rows else None)

    def begin(self, *, to_read: bool = False) -> None:
        """Begins a transaction that will write, or one snapshot for several reads. Nothing is lost with a
        connection that turns out to be broken here."""
        begin = self._begin_read if to_read else self._begin
        try:
            self.raw.execute(begin)
        except Exception:
            if not self.broken:
                raise
            self.close()
            self._open()
            self.raw.execute(begin)

    def commit(self) -> None:
        """Raises UncertainCommit where the connection breaks meanwhile."""
        if self._waiting:
            self.send_waiting()
        try:
            self.raw.execute("COMMIT")
        except Exception as error:
            if not self.broken:
                raise
            raise UncertainCommit(
                "the database went away in the very moment of storing: this may be stored, or not; try again"
            ) from error

    def rollback(self) -> None:
        """Ends the transaction, if it has not been ended by what went wrong."""
        self._waiting.clear()
        self._database.roll_back(self.raw)

    def close(self) -> None:
        try:
            self.sql.close()
        except Exception as error:
            if driver_error(error) is None:
                raise


class Store:
    """An open store: one writer; readers of their own where it is not in memory."""

    def __init__(self, database: Database, secrets: Encryption) -> None:
        self.database = database
        self.path = database.name
        self.shared = database.shared
        self.secrets = secrets
        self.writer = Conn(database, secrets)
        self.made = False
        """Its tables were made when it was opened: there were none."""
        self._readers: list[Conn] = []

    def reader(self) -> Conn:
        """Returns a connection for reads; it is closed with the store."""
        if self.shared:
            return self.writer
        conn = Conn(self.database, self.secrets, reads_only=True)
        self._readers.append(conn)
        return conn

    def close(self) -> None:
        for conn in (*self._readers, self.writer):
            conn.close()
        self.database.close()


def open_store(
    where: Path | str,
    *,
    folder: Path | None = None,
    secrets: Encryption | None = None,
    alone: bool = True,
    tables: Use = "make",
    now: float = 0.0,
) -> Store:
    """Opens the store at a path, in ":memory:" or at a postgresql:// URL.

    `folder` is where the key to its secrets lies; by default the file's. `alone`: no second process may
    open a PostgreSQL database so, which is how control opens it. Raises StoreError (StoreAway where the
    server does not answer) and SecretKeyError.
    """
    name = str(where)
    if secrets is None:
        secrets = _secrets(name, folder)
    database = _database(name, alone=alone)
    store = None
    try:
        store = Store(database, secrets)
        _check(store, now, tables)
        if alone:
            database.lead(store.writer.raw)
    except BaseException as error:
        if store is not None:
            store.close()
        else:
            database.close()
        if (refused := refusal(error, database)) is not None:
            raise refused from None
        raise
    return store


def check_store(where: Path | str, secrets: Encryption) -> None:
    """Checks, and changes nothing, that this process could open the store that is there: a standby must know
    that before the control that works on the store is gone. Raises as `open_store` does."""
    database = _database(str(where), alone=False)
    try:
        conn = Conn(database, secrets, reads_only=True)
        try:
            if "meta" in sqlalchemy.inspect(conn.sql).get_table_names():
                _check_key(conn)
                found = tables_of(conn)
                if found.version > schema.SCHEMA_VERSION and not suit(found, schema.SCHEMA_VERSION):
                    raise _another_version(database, found)
        finally:
            conn.close()
    except Exception as error:
        if (refused := refusal(error, database)) is not None:
            raise refused from None
        raise
    finally:
        database.close()


def _secrets(name: str, folder: Path | None) -> Encryption:
    if name == MEMORY:
        return random_secrets()
    if folder is None and is_url(name):
        raise ValueError("the key to the secrets of a PostgreSQL database lies in a folder: name it")
    return load_secrets(folder or Path(name).parent, os.environ)


def _database(name: str, *, alone: bool) -> Database:
    if not is_url(name):
        return SqliteFile(name)
    from stoker.control.store.database.postgres import PostgresDatabase

    try:
        return PostgresDatabase(name, alone=alone)
    except ValueError as error:
        raise StoreError(f"the URL of the database cannot be used: {error}") from None


def refusal(error: BaseException, database: Database) -> StoreError | None:
    """Returns what is raised for an error of the database; None for any other one. Blocks as `answers`
    does."""
    cannot = f"the database {database.name} cannot be opened"
    if isinstance(error, DatabaseInUse):
        return StoreInUse(f"{cannot}: {error}")
    found = driver_error(error)
    if found is None:
        return None
    kind = StoreError if database.answers() else StoreAway
    return kind(f"{cannot}: {database.message(found)}")


def _check(store: Store, now: float, tables: Use = "make") -> None:
    conn = store.writer
    with _locked(store):
        names = sqlalchemy.inspect(conn.sql).get_table_names()
        if not names and tables != "make":
            raise StoreError(f"the database {store.path} has no tables: no control was started with it")
        if not names:
            _create(conn, now)
            store.made = True
        elif "meta" not in names:
            raise StoreError(f"the database {store.path} holds tables that are not Stoker's")
        done = None if tables == "look" else _check_version(conn, store.database, tables)
        _check_key(conn)
    if done is not None:
        log.info("the database %s was upgraded %s", store.path, done)


@contextmanager
def _locked(store: Store) -> Iterator[None]:
    """Runs the block in a transaction in which nobody else makes or changes tables."""
    conn = store.writer
    conn.begin()
    try:
        store.database.lock_tables(conn.raw)
        yield
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


def _create(conn: Conn, now: float) -> None:
    schema.metadata.create_all(conn.sql, checkfirst=False)
    conn.execute(insert(meta), {"name": "secret_check", "value": conn.secrets.seal(_CHECK)})
    note_version(conn)
    conn.execute(insert(accounts), {"id": DEFAULT_ACCOUNT, "created_at": now})


def note_version(conn: Conn) -> None:
    """Stores that the tables are of this version."""
    conn.execute(delete(meta).where(meta.c.name.in_(("schema_version", "schema_works_from"))))
    conn.execute(
        insert(meta),
        {"name": "schema_version", "value": str(schema.SCHEMA_VERSION).encode()},
        {"name": "schema_works_from", "value": str(schema.WORKS_FROM).encode()},
    )


def tables_of(conn: Conn) -> Tables:
    """Returns the version of the tables; 0 where they name none."""
    version, works_from = _meta(conn, "schema_version"), _meta(conn, "schema_works_from")
    found = int(version) if version.isdigit() else 0
    return Tables(found, int(works_from) if works_from.isdigit() else found)


def _check_version(conn: Conn, database: Database, tables: Use) -> Upgrade | None:
    found = tables_of(conn)
    if suit(found, schema.SCHEMA_VERSION):
        return None
    if tables == "use" and found.version in ADDED:
        raise StoreError(
            f"the database {database.name} has schema version {found.version}, and this Stoker works with"
            f" version {schema.SCHEMA_VERSION}: start its control, or run stoker database upgrade"
        )
    done = _upgrade(conn, found)
    if done is None:
        raise _another_version(database, found)
    return done


def _upgrade(conn: Conn, found: Tables) -> Upgrade | None:
    done = upgrade(conn.sql, found.version)
    if done is not None:
        note_version(conn)
    return done


def upgrade_tables(store: Store) -> Upgrade | None:
    """Upgrades the tables of a store that was opened to `look`, and returns what was done: None where they
    suit this version. Raises StoreError where no way leads to it."""
    with _locked(store):
        return _check_version(store.writer, store.database, "make")


def _another_version(database: Database, found: Tables) -> StoreError:
    return StoreError(
        f"the database {database.name} has schema version {found.version}, and this Stoker works with"
        f" version {schema.SCHEMA_VERSION}: start the Stoker that wrote it, or {database.instead}"
    )


def schema_problem(conn: Conn) -> str:
    """Returns why this version does not work with the tables, or an empty text."""
    found, wanted = tables_of(conn), schema.SCHEMA_VERSION
    return "" if suit(found, wanted) else f"the schema has version {found.version}, and not {wanted}"


def _check_key(conn: Conn) -> None:
    if conn.secrets.open(_meta(conn, "secret_check")) != _CHECK:
        raise SecretKeyError(f"{conn.secrets.origin} does not open the secrets in the database")


def _meta(conn: Conn, name: str) -> bytes:
    value = conn.execute(select(meta.c.value).where(meta.c.name == name)).scalar()
    return bytes(value or b"")
