"""Group commit: shared transactions, isolated failures, and a store that is down but not out."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.errors import DatabaseDown, Unavailable, level_of
from stoker.control.store import Conn, view
from stoker.control.store.database import commits, outages
from stoker.control.store.database.commits import Committer, run_batch
from stoker.control.store.resources.keys import create_key, list_keys
from stoker.testing.inline_committer import InlineCommitter

SQLITE_ONLY = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""Tests of what only a file does; test_postgres.py has the likes of them for a server."""


@pytest.fixture
async def committer(bench: Any) -> AsyncIterator[Committer]:
    made = Committer(bench.store)
    yield made
    await made.close()
    assert [one.name for one in threading.enumerate() if one.name.startswith("store-")] == []


def named(name: str) -> Callable[[Conn], str]:
    return lambda conn: create_key(conn, name=name, now=1.0)[0].name


def names(conn: Conn) -> list[str]:
    return sorted(record.name for record in list_keys(conn))


class Gate:
    """Holds the writer inside a transaction until it is opened, so that others must wait and group."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, conn: Conn) -> None:
        self.entered.set()
        self.open.wait(30)


async def held(committer: Committer) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.create_task(committer.commit(gate))
    await asyncio.get_running_loop().run_in_executor(None, gate.entered.wait, 30)
    return gate, task


async def start(*commits: Any) -> list[asyncio.Task[Any]]:
    """All of these stand in line when this returns."""
    tasks = [asyncio.create_task(commit) for commit in commits]
    await asyncio.sleep(0)
    return tasks


async def test_what_was_committed_is_read(committer: Committer) -> None:
    assert await committer.commit(named("a")) == "a"
    assert await committer.read(names) == ["a"]


async def test_whatever_waits_shares_one_commit(
    committer: Committer, bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[Conn] = []
    commit = Conn.commit
    monkeypatch.setattr(Conn, "commit", lambda conn: (committed.append(conn), commit(conn)))
    gate, task = await held(committer)
    tasks = await start(*[committer.commit(named(str(n))) for n in range(20)])
    gate.open.set()
    assert await asyncio.gather(task, *tasks) == [None, *map(str, range(20))]
    assert len(committed) == 2  # the gate's own, and one for all twenty


async def test_a_slow_disk_holds_up_neither_the_loop_nor_reads(
    committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, disk = threading.Event(), threading.Event()
    commit = Conn.commit

    def slow(conn: Conn) -> None:
        begun.set()
        assert disk.wait(10), "the loop waited for the disk"
        commit(conn)

    monkeypatch.setattr(Conn, "commit", slow)
    task = asyncio.create_task(committer.commit(named("a")))
    await asyncio.get_running_loop().run_in_executor(None, begun.wait, 10)
    assert await committer.read(names) == []
    assert not task.done(), "it was answered before it was on the disk"
    disk.set()
    assert await task == "a"
    assert await committer.read(names) == ["a"]


async def test_behind_a_batch_without_an_answer_nobody_waits_who_comes_later(
    committer: Committer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As with a server that stands still: its connections stay open, and say nothing."""
    caplog.set_level(logging.WARNING, "stoker.control.store.database.commits")
    begun, answers = threading.Event(), threading.Event()

    def stands_still(conn: Conn) -> str:
        begun.set()
        assert answers.wait(60)
        return named("a")(conn)

    first = asyncio.create_task(committer.commit(stands_still))
    await asyncio.to_thread(begun.wait, 60)
    behind = asyncio.create_task(committer.commit(named("b")))
    await asyncio.sleep(0)
    monkeypatch.setattr(commits, "STUCK_S", 0.0)
    for _ in range(2):
        with pytest.raises(DatabaseDown, match="nothing was stored: the database has not answered for 0 s"):
            await committer.commit(named("c"))
    assert committer.outage.startswith("nothing was stored: the database has not answered")
    assert len(caplog.records) == 1
    answers.set()
    assert [await first, await behind] == ["a", "b"], "who waited before is answered"
    monkeypatch.setattr(commits, "STUCK_S", 60.0)
    assert await committer.commit(named("d")) == "d"
    assert await committer.read(names) == ["a", "b", "d"]


async def test_an_outage_is_logged_when_it_begins_and_when_it_is_over(
    committer: Committer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with pytest.raises(DatabaseDown) as refused:
            await committer.read(named("a"))
        assert level_of(refused.value) == logging.DEBUG, "others leave the log to the committer"
        await committer.commit(named("b"))
    monkeypatch.setattr(outages, "CALM_S", 0.0)
    for _ in range(3):
        await committer.read(names)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", f"an outage of the database begins: {refused.value}"),
        ("WARNING", "the outage of the database is over; it took 0 s"),
    ]


async def test_one_culprit_spoils_nobody_elses_work(committer: Committer) -> None:
    def culprit(conn: Conn) -> None:
        named("culprit")(conn)
        raise ValueError("poison")

    gate, task = await held(committer)
    tasks = await start(committer.commit(named("a")), committer.commit(culprit), committer.commit(named("b")))
    gate.open.set()
    await task
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert (results[0], results[2]) == ("a", "b")
    assert isinstance(results[1], ValueError)
    assert await committer.read(names) == ["a", "b"]


async def test_who_gives_up_waiting_does_not_stop_the_others(committer: Committer) -> None:
    gate, task = await held(committer)
    tasks = await start(committer.commit(named("a")), committer.commit(named("b")))
    tasks[0].cancel()
    gate.open.set()
    await task
    assert await tasks[1] == "b"
    assert await committer.read(names) == ["a", "b"]


async def test_a_reader_sees_one_snapshot_and_may_not_write(committer: Committer) -> None:
    with pytest.raises(Unavailable, match="may not be written"):
        await committer.read(named("a"))
    with pytest.raises(ZeroDivisionError):
        await committer.read(lambda conn: 1 // 0)
    assert await committer.read(names) == []


async def test_a_read_whose_connection_breaks_at_its_very_end_fails_and_the_next_one_is_answered(
    committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server ends the session of a control that stood still in the middle of a read."""
    rollback, broken = Conn.rollback, [True]

    def breaks(conn: Conn) -> None:
        rollback(conn)
        if broken and threading.current_thread().name == "store-reader":
            broken.pop()
            raise psycopg.OperationalError("the connection is lost")

    await committer.commit(named("a"))
    with monkeypatch.context() as patched:
        patched.setattr(Conn, "rollback", breaks)
        with pytest.raises(Unavailable, match="nothing was stored"):
            await committer.read(names)
        assert await committer.read(names) == ["a"]


@SQLITE_ONLY
async def test_a_full_disk_is_reported_and_survived(committer: Committer, bench: Any) -> None:
    raw = bench.store.writer.raw
    (pages,) = raw.execute("PRAGMA page_count").fetchone()
    raw.execute(f"PRAGMA max_page_count = {pages + 1}")
    big = [committer.commit(named(str(n) * 50_000)) for n in range(4)]
    results = await asyncio.gather(*big, return_exceptions=True)
    assert all(isinstance(one, Unavailable) for one in results)
    assert "disk of the data folder is full" in str(results[0])
    raw.execute("PRAGMA max_page_count = 1000000")
    assert await committer.commit(named("a")) == "a"
    assert await committer.read(names) == ["a"]


@SQLITE_ONLY
async def test_a_small_one_fits_where_a_big_one_does_not(committer: Committer, bench: Any) -> None:
    gate, task = await held(committer)
    tasks = await start(committer.commit(named("x" * 5_000_000)), committer.commit(named("small")))
    (pages,) = bench.rows("PRAGMA page_count")[0]
    bench.store.writer.raw.execute(f"PRAGMA max_page_count = {pages + 20}")
    gate.open.set()
    await task
    with pytest.raises(Unavailable):
        await tasks[0]
    assert await tasks[1] == "small"


@SQLITE_ONLY
async def test_a_locked_database_is_reported(committer: Committer, bench: Any) -> None:
    bench.store.writer.raw.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(bench.store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="locked by another process"):
        await committer.commit(named("a"))
    other.execute("ROLLBACK")
    other.close()
    assert await committer.commit(named("a")) == "a"


# ---- early ------------------------------------------------------------------------------------------


async def test_what_a_function_returns_is_known_before_it_is_on_the_disk(
    committer: Committer, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, early = threading.Event(), asyncio.Queue[str]()
    commit = Conn.commit
    monkeypatch.setattr(Conn, "commit", lambda conn: (disk.wait(30), commit(conn)))
    task = asyncio.create_task(committer.commit(named("a"), early.put_nowait))
    assert await early.get() == "a"
    assert await committer.read(names) == []
    assert not task.done()
    disk.set()
    assert await task == "a"
    assert early.empty()


async def test_what_shares_its_transaction_is_not_early(committer: Committer) -> None:
    early: list[str] = []
    gate, task = await held(committer)
    tasks = await start(*(committer.commit(named(name), early.append) for name in "ab"))
    gate.open.set()
    await asyncio.gather(task, *tasks)
    assert early == []


class Broken(Exception):
    """What the connection raises."""


@dataclass
class ScriptedConn:
    """Each transaction ends as `ends` says: it is stored, breaks, or another was in the way. `sends` says so
    of the writes that wait."""

    ends: list[str]
    sends: list[str] = field(default_factory=list)
    stored: int = 0

    def begin(self) -> None:
        self.open = True

    def send_waiting(self) -> None:
        self._go_on(self.sends)

    def commit(self) -> None:
        self._go_on(self.ends)
        self.open = False
        self.stored += 1

    def _go_on(self, script: list[str]) -> None:
        end = script.pop(0) if script else "stored"
        if end == "clash":
            raise psycopg.errors.SerializationFailure
        if end == "broken":
            raise Broken

    def rollback(self) -> None:
        self.open = False


ENDS = st.lists(st.sampled_from(["stored", "clash", "broken"]), max_size=5)


@pytest.mark.parametrize(("clashes", "stored"), [(3, True), (4, False)])
def test_a_clash_of_the_writes_that_wait_is_tried_again_and_comes_before_early(
    clashes: int, stored: bool
) -> None:
    conn, ran, early = ScriptedConn([], ["clash"] * clashes), list[int](), list[int]()

    def function(_: Any) -> int:
        ran.append(len(ran))
        return len(ran)

    ((_, error),) = run_batch(conn, [function], early.append)  # type: ignore[arg-type]
    assert (error is None, conn.stored, len(ran)) == (stored, int(stored), 4)
    assert early == ([4] if stored else [])


@given(ENDS, ENDS, st.lists(st.sampled_from(["returns", "clash", "broken"]), max_size=5))
def test_a_function_that_was_early_is_not_run_again(
    ends: list[str], sends: list[str], runs: list[str]
) -> None:
    conn, ran, early = ScriptedConn(list(ends), list(sends)), 0, list[int]()
    left = list(runs)

    def function(_: Any) -> int:
        nonlocal ran
        ran += 1
        match left.pop(0) if left else "returns":
            case "clash":
                raise psycopg.errors.SerializationFailure
            case "broken":
                raise Broken
        return ran

    ((value, error),) = run_batch(conn, [function], early.append)  # type: ignore[arg-type]
    assert not conn.open
    assert len(early) <= 1
    assert (error is None) == (conn.stored == 1)
    if early:
        assert early == [ran], "it ran once more, and may have returned something else"
    if error is None:
        assert early == [value]


async def test_close_does_what_was_requested_before_and_nothing_after(bench: Any) -> None:
    committer = Committer(bench.store)
    gate, task = await held(committer)
    tasks = await start(committer.commit(named("a")))
    closing = asyncio.create_task(committer.close())
    await asyncio.sleep(0)
    gate.open.set()
    await closing
    assert await asyncio.gather(task, *tasks) == [None, "a"]
    with pytest.raises(Unavailable, match="closed"):
        await committer.commit(named("b"))
    await committer.close()


# ---- inline -----------------------------------------------------------------------------------------


class SimulatedCrash(Exception):
    """The process is killed between the commit and the reply."""


async def test_inline_does_the_same_without_a_thread(new_bench: Callable[[], Any]) -> None:
    bench = new_bench()
    committer = InlineCommitter(bench.store)
    assert await committer.commit(named("a")) == "a"
    with pytest.raises(ZeroDivisionError):
        await committer.commit(lambda conn: (named("b")(conn), 1 // 0))
    assert await committer.read(names) == ["a"]
    await committer.close()
    bench.store.close()


async def test_a_crash_after_the_commit_loses_the_reply_only(new_bench: Callable[[], Any]) -> None:
    bench = new_bench()

    def crash() -> None:
        raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        await InlineCommitter(bench.store, crash).commit(named("a"))
    assert names(bench.store.writer) == ["a"]
    assert view(bench.store.writer, "default", "echo", "none", 0.0) is None
    bench.store.close()
