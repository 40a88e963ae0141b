"""The queues that queue_depth.py measures: a store with one endpoint, one node and a queue of any depth, with
32 concurrent callers; and procrastinate's, for comparison.

procrastinate stores jobs in PostgreSQL, too, and fetches one by calling a function of its schema. That call
is timed here with its commit, on the same server and at the same depths, without procrastinate's worker,
which is slower. It must be installed in an environment of its own:

    python3 -m venv .peers/procrastinate
    .peers/procrastinate/bin/pip install procrastinate==3.10.0 'psycopg[binary]'
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from stoker.control import store
from stoker.control.rules.queueing.order import RETRY, Place, place
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.types import Claimed, Endpoint, EndpointVersion, NewJob, Slot
from stoker.control.store import Conn, Store
from stoker.control.store.database.commits import Committer
from stoker.wire.messages import Outcome, Report, Span

ACCOUNT, ENDPOINT, NODE = "default", "echo", "node-1"
CALLERS = 32
INPUT = b'{"prompt": "a lighthouse in a storm", "seed": 7}'
OUTPUT = b'{"image_url": "https://example.com/a-name-as-long-as-most", "seed": 7}'
TTL_S = 86_400.0


@dataclass(frozen=True)
class Amounts:
    """How much is measured per round: `jobs` by 32 callers, `single` claims, `looks` at the counts."""

    rounds: int = 5
    jobs: int = 2_000
    single: int = 300
    looks: int = 5


QUICK = Amounts(rounds=1, jobs=640, single=100, looks=3)


class Bench:
    """An open store with one endpoint, one node and a filled queue."""

    def __init__(self, opened: Store, amounts: Amounts) -> None:
        self.store = opened
        self.amounts = amounts
        self.commits = Committer(opened)
        self.session = 0
        self._drawn = 0

    async def prepare(self) -> None:
        declared = Endpoint(ENDPOINT, ACCOUNT, ENDPOINT, 0, EndpointVersion("handlers/echo.py:handler"))
        await self.commits.commit(lambda conn: store.put_endpoint(conn, declared, time.time()))
        opened = await self.commits.commit(
            lambda conn: store.open_session(
                conn,
                node=NODE,
                boot="boot",
                name=NODE,
                devices=(),
                facts={},
                now=time.time(),
                lease_s=45.0,
            )
        )
        assert isinstance(opened, int), opened
        self.session = opened

    async def fill(
        self, number: int, *, backs_off: bool = False, priority: Priority = Priority.NORMAL
    ) -> None:
        """Fills the queue with one statement per table, then runs the database's maintenance."""
        now = time.time()
        at = Place(RETRY, now + 3_600.0) if backs_off else place(priority, now)
        row = {
            "account": ACCOUNT,
            "endpoint": ENDPOINT,
            "state": "IN_QUEUE",
            "rank": at.lane,
            "not_before": at.since,
            "created_at": now,
            "expires_at": now + TTL_S,
            "ttl_at": now + TTL_S,
            "retention_s": 1800.0,
            "sync": 0,
            "low": int(priority is Priority.LOW),
            "urgent": int(priority is Priority.URGENT),
            "execution_timeout_ms": 600_000,
        }
        await self.commits.commit(lambda conn: _fill(conn, number, row))
        await asyncio.to_thread(self._settle)

    async def leave_classes_out(self) -> None:
        """Makes the queue as it was without classes: scaling counted in the queue's own index."""
        await self.commits.commit(lambda conn: conn.run("DROP INDEX jobs_demand", {}))

    def _settle(self) -> None:
        raw = self.store.writer.raw
        postgres = self.store.writer.sql.dialect.name == "postgresql"
        for statement in (
            ("VACUUM ANALYZE", "CHECKPOINT") if postgres else ("PRAGMA wal_checkpoint(TRUNCATE)",)
        ):
            raw.execute(statement)

    # -- one call each

    def new_job(self) -> NewJob:
        now = time.time()
        self._drawn += 1
        return NewJob(
            f"{self._drawn:08d}-0000-4000-8000-000000000000-u1",
            ACCOUNT,
            ENDPOINT,
            created_at=now,
            expires_at=now + TTL_S,
            execution_timeout_ms=600_000,
            sync=False,
            input=INPUT,
        )

    async def enqueue(self) -> None:
        new = self.new_job()
        await self.commits.commit(lambda conn: store.submit(conn, new, (), new.created_at))

    @property
    def slot(self) -> Slot:
        return Slot(ENDPOINT, NODE, self.session, "worker-1", 1)

    async def claim(self) -> Claimed:
        slot, now = self.slot, time.time()
        (claimed,) = await self.commits.commit(lambda conn: store.claim(conn, (slot,), now))
        return claimed

    async def complete(self, claimed: Claimed) -> None:
        outcome = Outcome(
            claimed.job,
            claimed.attempt,
            claimed.worker,
            "completed",
            output=OUTPUT,
            execution_ms=7,
            spans=(Span("execution", "device_ms", 7, 0),),
        )
        now = time.time()
        reported = await self.commits.commit(
            lambda conn: store.apply_reports(
                conn, node=NODE, session=self.session, reports=[Report(1, outcome)], now=now
            )
        )
        assert len(reported.changed) == 1, reported

    async def close(self) -> None:
        await self.commits.close()
        self.store.close()


_NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :number)"


def _fill(conn: Conn, number: int, row: dict[str, Any]) -> None:
    columns = ", ".join(row)
    values = ", ".join(_literal(value) for value in row.values())
    kind = f"{row['rank']}-{row['not_before']:.6f}"
    conn.run(
        f"INSERT INTO jobs (id, {columns}) {_NUMBERS} SELECT 'filled-{kind}-' || i, {values} FROM n",
        {"number": number},
    )
    body = "CAST('" + INPUT.decode() + "' AS BLOB)"
    if conn.sql.dialect.name == "postgresql":
        body = "CAST('" + INPUT.decode() + "' AS BYTEA)"
    conn.run(
        f"INSERT INTO inputs (seq, body) SELECT seq, {body} FROM jobs WHERE id LIKE 'filled-{kind}-' || :all",
        {"all": "%"},
    )


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else repr(value)


async def together(calls: list[Callable[[], Awaitable[Any]]]) -> tuple[float, list[Any]]:
    """Runs the calls with 32 concurrent callers. Returns the seconds and the results."""
    waiting = iter(calls)
    answers: list[Any] = []

    async def caller() -> None:
        for call in waiting:
            answers.append(await call())  # noqa: PERF401  # the callers share one iterator

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began, answers


# ---- procrastinate -------------------------------------------------------------------------------

PROCRASTINATE = Path(__file__).resolve().parent.parent / ".peers" / "procrastinate" / "bin" / "procrastinate"

_PEER_FILL = """
ALTER TABLE procrastinate_jobs DISABLE TRIGGER USER;
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
    SELECT 'echo', 'echo', '{"prompt": "a lighthouse in a storm", "seed": 7}' FROM generate_series(1, %d);
ALTER TABLE procrastinate_jobs ENABLE TRIGGER USER;
"""
_PEER_FETCH = "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['echo'], %s)"
_PEER_FINISH = "SELECT procrastinate_finish_job_v1(%s, 'succeeded', false)"
_PEER_DEFER = """
INSERT INTO procrastinate_jobs (queue_name, task_name, args)
VALUES ('echo', 'echo', '{"prompt": "a lighthouse in a storm", "seed": 7}')
"""


def peer_schema() -> str | None:
    """The SQL of procrastinate's schema; None if it is not installed."""
    if not PROCRASTINATE.exists():
        return None
    command = [str(PROCRASTINATE), "schema", "--read"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def peer_claims(url: str, installs: str, depth: int, number: int) -> list[float]:
    """The seconds of each of `number` claims by one worker; the queue has `depth` jobs before each."""
    with psycopg.connect(url, autocommit=True) as conn:
        _execute(conn, installs)
        _execute(conn, _PEER_FILL % depth)
        _execute(conn, "VACUUM ANALYZE procrastinate_jobs")
        _execute(conn, "CHECKPOINT")
        row = conn.execute("INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id").fetchone()
        assert row is not None
        return [_peer_claim(conn, row[0]) for _ in range(number)]


def _execute(conn: psycopg.Connection[Any], statements: str) -> None:
    conn.execute(statements.encode())


def _peer_claim(conn: psycopg.Connection[Any], worker: int) -> float:
    began = time.perf_counter()
    row = conn.execute(_PEER_FETCH, (worker,)).fetchone()
    took = time.perf_counter() - began
    assert row is not None
    assert row[0] is not None
    conn.execute(_PEER_FINISH, (row[0],))
    conn.execute(_PEER_DEFER)
    return took
