"""A store, once in a file of its own and once in PostgreSQL, with one endpoint and one node; and short ways
to say what tests say often."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest

from stoker.control import store
from stoker.control.rules.types import (
    Changed,
    Claimed,
    Endpoint,
    EndpointVersion,
    JobView,
    NewJob,
    Reconciled,
    ReportsApplied,
    Slot,
)
from stoker.control.store.database.commits import run_batch
from stoker.control.store.database.secrets import random_secrets
from stoker.control.store.tables.schema import metadata
from stoker.wire.messages import AttemptKey, Outcome, Report, ReportBody
from tests.simulation.memory_store import memory_store

T = TypeVar("T")
E = "echo"
ACCOUNT = "default"


@dataclass
class Bench:
    """A store and the numbers of the sessions opened on it. Each call is a transaction of its own."""

    store: store.Store
    sessions: dict[str, int] = field(default_factory=dict)
    drawn: int = 0

    def do(self, fn: Callable[[store.Conn], T]) -> T:
        ((value, error),) = run_batch(self.store.writer, [fn])
        if error is not None:
            raise error
        return value

    def node(self, node: str, now: float, boot: str = "boot-1", lease_s: float = 60.0) -> int | str:
        opened = self.do(
            lambda conn: store.open_session(
                conn, node=node, boot=boot, name=node, devices=(), facts={}, now=now, lease_s=lease_s
            )
        )
        if isinstance(opened, int):
            self.sessions[node] = opened
        return opened

    def slot(self, node: str = "n1", free: int = 1, worker: str = "w1", endpoint: str = E) -> Slot:
        return Slot(endpoint, node, self.sessions[node], worker, free)

    def submit(self, now: float, *slots: Slot, **fields: Any) -> tuple[JobView, tuple[Claimed, ...]]:
        self.drawn += 1
        values = {
            "id": f"job-{self.drawn}",
            "account": ACCOUNT,
            "endpoint": E,
            "created_at": now,
            "expires_at": now + 86_400.0,
            "execution_timeout_ms": 600_000,
            "sync": False,
            "input": b'{"x":1}',
        } | fields
        new = NewJob(**values)
        submitted = self.do(lambda conn: store.submit(conn, new, slots, now))
        return submitted.view, submitted.claimed

    def claim(self, now: float, *slots: Slot) -> tuple[Claimed, ...]:
        return self.do(lambda conn: store.claim(conn, slots, now))

    def report(self, now: float, *bodies: ReportBody, node: str = "n1") -> ReportsApplied:
        reports = [Report(number, body) for number, body in enumerate(bodies, 1)]
        return self.do(
            lambda conn: store.apply_reports(
                conn, node=node, session=self.sessions[node], reports=reports, now=now
            )
        )

    def reconcile(self, now: float, held: Sequence[AttemptKey], node: str = "n1") -> Reconciled:
        return self.do(
            lambda conn: store.reconcile(conn, node=node, session=self.sessions[node], reported=held, now=now)
        )

    def requeue(
        self, now: float, node: str = "n1", why: str = "its stream broke", ahead: Sequence[AttemptKey] = ()
    ) -> tuple[Changed, ...]:
        session = self.sessions[node]
        return self.do(lambda conn: store.requeue_node(conn, node, session, now, why, ahead))

    def cancel(self, now: float, job: str) -> tuple[JobView | None, Changed | None]:
        return self.do(lambda conn: store.cancel(conn, ACCOUNT, E, job, now))

    def end_wait(self, now: float, job: str, why: str = "too slow") -> tuple[JobView | None, Changed | None]:
        return self.do(lambda conn: store.end_wait(conn, ACCOUNT, E, job, now, why))

    def retry(self, now: float, job: str) -> tuple[JobView | None, Changed | None]:
        return self.do(lambda conn: store.retry(conn, ACCOUNT, E, job, now))

    def newest(self) -> int:
        return store.newest(self.store.writer, E)

    def purge(self, now: float, upto: int, limit: int = 1_000) -> tuple[Changed, ...]:
        return self.do(lambda conn: store.purge(conn, ACCOUNT, E, upto, now, limit))

    def purge_ahead(self, now: float, upto: int, keys: list[AttemptKey]) -> tuple[Changed, ...]:
        return self.do(lambda conn: store.purge_ahead(conn, ACCOUNT, E, upto, now, keys))

    def shorten(self, now: float, job: str, until: float) -> JobView | None:
        return self.do(lambda conn: store.shorten(conn, ACCOUNT, E, job, until, now))

    def view(self, now: float, job: str) -> JobView | None:
        return store.view(self.store.writer, ACCOUNT, E, job, now)

    def expire(self, now: float, limit: int = 100) -> tuple[Changed, ...]:
        return self.do(lambda conn: store.expire(conn, now, limit))

    def due_orphans(self, now: float = 1e12) -> tuple[str, ...]:
        return store.due_orphans(self.store.writer, now, 10_000)

    def counters(self) -> dict[str, int]:
        return store.read_counters(self.store.writer, ACCOUNT, E)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.store.writer.raw.execute(sql).fetchall()

    def put_endpoint(self, endpoint: str = E, now: float = 0.0, **fields: Any) -> Endpoint:
        values: dict[str, Any] = {"account": ACCOUNT, "name": endpoint, "version": 0} | fields
        values.setdefault("run", EndpointVersion("handlers/echo.py:handler"))
        return self.do(lambda conn: store.put_endpoint(conn, Endpoint(endpoint, **values), now))

    def endpoint(self, endpoint: str) -> Endpoint:
        (found,) = [one for one in store.list_endpoints(self.store.writer) if one.id == endpoint]
        return found

    def running(self, now: float, **fields: Any) -> Claimed:
        """A job that was submitted and claimed by n1 in one transaction."""
        _, (claimed,) = self.submit(now, self.slot(), **fields)
        return claimed

    @staticmethod
    def done(claimed: Claimed, **fields: Any) -> Outcome:
        """The outcome of a claimed attempt: completed, unless said otherwise."""
        values: dict[str, Any] = {"worker": claimed.worker, "end": "completed", "execution_ms": 7} | fields
        return Outcome(claimed.job, claimed.attempt, **values)

    @classmethod
    def lost(cls, claimed: Claimed, error: str = "worker died: killed by SIGKILL") -> Outcome:
        return cls.done(claimed, end="lost", error=error)

    @staticmethod
    def key(claimed: Claimed) -> AttemptKey:
        return AttemptKey(claimed.job, claimed.attempt)


def make_bench(opened: store.Store) -> Bench:
    made = Bench(opened)
    made.put_endpoint()
    made.node("n1", 0.0)
    return made


# ---- databases --------------------------------------------------------------------------------------


class PostgresBenches:
    """Benches in PostgreSQL. To make a database takes 50 ms and to empty one takes 2: they are used again."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._secrets = random_secrets()
        self._idle: list[str] = []
        self._lent: dict[str, Bench] = {}

    def make(self) -> Bench:
        self.take_back()
        url = self._idle.pop() if self._idle else self._server.fresh()
        self._lent[url] = make_bench(store.open_store(url, secrets=self._secrets))
        return self._lent[url]

    def take_back(self) -> None:
        """Those whose store is closed."""
        for url, bench in list(self._lent.items()):
            if bench.store.writer.sql.closed:
                self._empty(url)
                del self._lent[url]
                self._idle.append(url)

    @staticmethod
    def _empty(url: str) -> None:
        """As it was when its store was opened first."""
        with psycopg.connect(url) as conn:
            for table in reversed(metadata.sorted_tables):
                kept = _KEPT.get(table.name, "")
                conn.execute(f"DELETE FROM {table.name} {kept}".encode())
                if "seq" in table.primary_key and table.autoincrement_column is not None:
                    name = f"pg_get_serial_sequence('{table.name}', 'seq')"
                    conn.execute(f"SELECT setval({name}, 1, false)".encode())


_KEPT = {
    "meta": "WHERE name NOT IN ('schema_version', 'schema_works_from', 'secret_check')",
    "accounts": f"WHERE id <> '{ACCOUNT}'",
}


@pytest.fixture(scope="session")
def postgres_benches(postgres: Any) -> PostgresBenches:
    return PostgresBenches(postgres)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    """Which one a test's benches lie in. Tests of one of them only say so with parametrize."""
    return str(request.param)


@pytest.fixture
def new_bench(database: str, request: pytest.FixtureRequest) -> Callable[[], Bench]:
    """For those that need many; close their store."""
    if database == "sqlite":
        return lambda: make_bench(memory_store())
    benches: PostgresBenches = request.getfixturevalue("postgres_benches")
    return benches.make


@pytest.fixture
def bench(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bench]:
    if database == "postgres":
        made = request.getfixturevalue("postgres_benches").make()
        yield made
        made.store.close()
        return
    made = make_bench(store.open_store(tmp_path / "data" / "stoker.db"))
    yield made
    # Whatever a test did, no row may hang in the air.
    assert made.rows("PRAGMA foreign_key_check") == []
    assert made.rows("PRAGMA integrity_check") == [("ok",)]
    made.store.close()
