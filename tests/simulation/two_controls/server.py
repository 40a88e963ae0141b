"""The PostgreSQL server of a story with two controls, as far as their lead goes: sessions, locks, one row.

`control.store.database` speaks to it with its own statements. The tables themselves lie in one SQLite
database, whose transactions belong to the session that began them: they end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psycopg

from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.store.database import leadership, writer_lock
from stoker.control.store.database.opening import StoreAway, StoreInUse
from stoker.control.store.database.postgres import PostgresDatabase
from stoker.control.store.database.postgres_failures import DatabaseInUse
from tests.simulation.virtual_loop import Process, current_process

LOOK_S = 0.2
SHARED = "SELECT pg_advisory_lock_shared(%s)"
TRY_SHARED = "SELECT pg_try_advisory_lock_shared(%s)"
WRITER = "SELECT pg_advisory_lock(%s)"
TERM = "SELECT pg_advisory_lock(%s::int4, %s::int4)"


@dataclass
class Found:
    """The result of a statement."""

    row: tuple[Any, ...] | None = None
    rowcount: int = 0

    def fetchone(self) -> tuple[Any, ...] | None:
        return self.row


@dataclass(eq=False)
class Session:
    """A connection of a process, as the driver shows it to code without asyncio."""

    server: DatabaseServer
    process: Process | None
    ended: bool = False
    writes: bool = False
    terms: set[int] = field(default_factory=set)

    def execute(self, text: str, values: tuple[Any, ...] = ()) -> Found:
        if self.ended or self.server.is_away_from(self.process):
            raise psycopg.OperationalError("the connection was lost")
        return self.server.execute(self, text, values)


class AsyncSession:
    """The same for asyncio."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @classmethod
    def of(cls, server: DatabaseServer) -> Any:
        async def connect(_conninfo: str, *, autocommit: bool) -> AsyncSession:
            await asyncio.sleep(0.001)
            return cls(server.connect())

        return connect

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._session.server.end(self._session)

    async def execute(self, text: str, values: tuple[Any, ...] = ()) -> Any:
        await asyncio.sleep(0.001)
        if text == SHARED:
            await self._wait()
        found = self._session.execute(text, values)

        async def fetchone() -> tuple[Any, ...] | None:
            return found.row

        return SimpleNamespace(fetchone=fetchone, rowcount=found.rowcount)

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + writer_lock.ROUND_S
        while self._session.server.writer() is not None and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)


class DatabaseServer:
    """`conn` is the connection to the tables; `lost` hears that a transaction was ended with its session."""

    def __init__(self, conn: Any, lost: Callable[[], None]) -> None:
        self.conn, self._lost = conn, lost
        self.lead: bytes | None = None
        self.down = False
        self.cut_off: set[Process] = set()
        self.sessions: list[Session] = []
        self.begun_by: Session | None = None
        self.back_at = float("-inf")

    def restarts(self) -> None:
        self.down = True
        self.end_all()

    def is_back(self) -> None:
        self.down, self.back_at = False, asyncio.get_running_loop().time()

    def connect(self) -> Session:
        process = current_process()
        if self.is_away_from(process):
            raise psycopg.OperationalError("the server does not answer")
        session = Session(self, process)
        self.sessions.append(session)
        return session

    def is_away_from(self, process: Process | None) -> bool:
        return self.down or process in self.cut_off

    def writer(self) -> Session | None:
        return next((session for session in self.sessions if session.writes), None)

    def term(self) -> int:
        return leadership.read(self.lead).term

    def end(self, session: Session) -> None:
        session.ended = True
        if session in self.sessions:
            self.sessions.remove(session)
        self.roll_back(session)

    def roll_back(self, session: Session) -> None:
        if self.begun_by is session:
            self.begun_by = None
            self.conn.rollback()
            self._lost()

    def end_all(self, process: Process | None = None) -> None:
        for session in [one for one in self.sessions if process in (None, one.process)]:
            self.end(session)

    def execute(self, session: Session, text: str, values: tuple[Any, ...]) -> Found:
        if text.startswith("SET "):
            return Found()
        if text == leadership._FIND:
            return Found(None if self.lead is None else (self.lead,))
        if text == leadership._READ_ONLY:
            return Found(("off",))
        if text == leadership._RAISE:
            self.lead = values[0]
            return Found(rowcount=1)
        if text == leadership._COUNT:
            same = self.lead == values[1]
            self.lead = values[0] if same else self.lead
            return Found(rowcount=int(same))
        if text == leadership._END:
            return self._end_holder(values[-1])
        return self._lock(session, text, values)

    def _end_holder(self, term: int) -> Found:
        holder = self.writer()
        if holder is None or term not in holder.terms:
            return Found()
        self.end(holder)
        return Found(rowcount=1)

    def _lock(self, session: Session, text: str, values: tuple[Any, ...]) -> Found:
        free = self.writer() in (None, session)
        if text == TRY_SHARED:
            return Found((free,))
        if text in (SHARED, WRITER) and not free:
            raise psycopg.errors.LockNotAvailable
        if text == WRITER:
            session.writes = True
        elif text == TERM:
            session.terms.add(values[1])
        elif text != SHARED:
            raise AssertionError(f"the server of the simulation does not know {text!r}")
        return Found()


class LedConn:
    """The connection of one control, which has the lead. Its transactions are those of its session: each
    begins under its lock and its term, or not at all. `broken_rule` is told of a commit that was neither."""

    def __init__(
        self, server: DatabaseServer, database: PostgresDatabase, broken_rule: Callable[[str], object]
    ) -> None:
        self._server, self._database, self._broken_rule = server, database, broken_rule
        self._session = server.connect()
        try:
            database._lock(self._session)  # type: ignore[arg-type]
            database.lead(self._session)  # type: ignore[arg-type]
        except DatabaseInUse as error:
            server.end(self._session)
            raise StoreInUse(str(error)) from None
        except psycopg.Error as error:
            server.end(self._session)
            raise StoreAway(str(error)) from None
        self._own_term = server.term()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server.conn, name)

    def begin(self, *, to_read: bool = False) -> None:
        try:
            self._renew()
        except (psycopg.Error, DatabaseInUse) as error:
            raise Unavailable(f"nothing was stored: {error}; try again later") from None
        self._server.conn.begin(to_read=to_read)
        self._server.begun_by = self._session

    def _renew(self) -> None:
        if self._server.is_away_from(self._session.process):
            raise psycopg.OperationalError("the server does not answer")
        if not self._session.ended:
            return
        session = self._server.connect()
        try:
            self._database._lock(session)  # type: ignore[arg-type]
        except BaseException:
            self._server.end(session)
            raise
        self._session = session

    def commit(self) -> None:
        if self._session.ended or self._server.is_away_from(self._session.process):
            self.rollback()
            raise UncertainCommit("the database went away in the very moment of storing")
        if self._server.term() != self._own_term:
            self._broken_rule(f"a control of term {self._own_term} stores in term {self._server.term()}")
        self._server.begun_by = None
        self._server.conn.commit()

    def rollback(self) -> None:
        self._server.roll_back(self._session)
