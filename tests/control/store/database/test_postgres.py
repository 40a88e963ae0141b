"""What only a server can do to the store: be away, be killed, be shared, refuse; and what is made of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stoker.control import store
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.store import Conn
from stoker.control.store.database import postgres as store_postgres
from stoker.control.store.database.commits import Committer, run_batch
from stoker.control.store.database.secrets import FILE, SecretKeyError, random_secrets
from stoker.control.store.resources.keys import create_key, list_keys

HIDDEN = "hidden-password"


@pytest.fixture
def database() -> str:
    return "postgres"


@pytest.fixture
async def committer(bench: Any) -> AsyncIterator[Committer]:
    made = Committer(bench.store)
    yield made
    await made.close()


@pytest.fixture
def url(postgres: Any) -> Iterator[str]:
    made = postgres.fresh()
    yield made
    postgres.drop(made)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_postgres, "PATIENCE_S", 0.01)


def named(name: str) -> Callable[[Conn], str]:
    return lambda conn: create_key(conn, name=name, now=1.0)[0].name


def names(conn: Conn) -> list[str]:
    return sorted(record.name for record in list_keys(conn))


def raising(code: str) -> Callable[[Conn], None]:
    """A statement that the server refuses with this SQLSTATE."""
    block = f"DO $$ BEGIN RAISE EXCEPTION 'because' USING ERRCODE = '{code}'; END $$"
    return lambda conn: conn.raw.execute(block)


def url_of(bench: Any, postgres: Any) -> str:
    return str(postgres.url(bench.store.writer.raw.info.dbname))


def other(bench: Any, postgres: Any, **options: Any) -> store.Store:
    """The same database, opened once more."""
    return store.open_store(url_of(bench, postgres), secrets=bench.store.secrets, **options)


def break_lines(bench: Any, postgres: Any) -> None:
    """The server ends every connection to the bench's database."""
    name = bench.store.writer.raw.info.dbname
    ended = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
    assert postgres.say(ended)


# ---- two writers ------------------------------------------------------------------------------------


def test_two_writers_never_claim_the_same_job(bench: Any, postgres: Any) -> None:
    first, second = (bench.submit(1.0)[0].id for _ in range(2))
    another = other(bench, postgres, alone=False)
    mine, theirs = bench.store.writer, another.writer
    mine.begin()
    (one,) = store.claim(mine, [bench.slot()], 2.0)
    theirs.begin()
    theirs.raw.execute("SET LOCAL lock_timeout = '10ms'")
    (two,) = store.claim(theirs, [bench.slot()], 2.0)
    assert (one.job, two.job) == (first, second)
    assert store.claim(theirs, [bench.slot()], 2.0) == ()
    mine.commit()
    theirs.commit()
    another.close()


def test_many_claims_at_once_give_each_job_once(bench: Any, postgres: Any) -> None:
    jobs = {bench.submit(1.0)[0].id for _ in range(120)}
    opened = [other(bench, postgres, alone=False) for _ in range(3)]
    found: list[list[str]] = [[] for _ in opened]

    def work(conn: Conn, mine: list[str]) -> None:
        while True:
            ((claimed, error),) = run_batch(conn, [lambda conn: store.claim(conn, [bench.slot(free=3)], 2.0)])
            assert error is None
            assert len(claimed) <= 3
            mine += [one.job for one in claimed]
            if not claimed and not bench.rows("SELECT 1 FROM jobs WHERE state = 'IN_QUEUE' LIMIT 1"):
                return

    threads = [
        threading.Thread(target=work, args=(one.writer, mine))
        for one, mine in zip(opened, found, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for one in opened:
        one.close()
    claimed = [job for mine in found for job in mine]
    assert len(claimed) == len(jobs)
    assert set(claimed) == jobs


def test_a_second_control_is_refused(bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as hurried:
        hurried.setattr(store_postgres, "PATIENCE_S", 0.01)
        with pytest.raises(store.StoreError, match=r"database test_\d+ at 127.0.0.1:\d+ .*another control"):
            other(bench, postgres)
    second = other(bench, postgres, alone=False)  # as `stoker key` does
    assert store.list_endpoints(second.writer)
    second.close()
    url = url_of(bench, postgres)
    bench.store.close()
    store.open_store(url, secrets=bench.store.secrets).close()  # once the server sees that the first has gone


def test_the_next_control_waits_for_one_that_is_just_ending(bench: Any, postgres: Any) -> None:
    opened: list[store.Store] = []
    waiting = threading.Thread(target=lambda: opened.append(other(bench, postgres)))
    waiting.start()
    query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    while postgres.say(query) != [(1,)]:
        pass
    bench.store.close()
    waiting.join(60)
    assert store.list_endpoints(opened[0].writer)
    opened[0].close()


# ---- a server that goes away ------------------------------------------------------------------------


async def test_a_server_killed_between_batches_loses_nothing(
    committer: Committer, bench: Any, postgres: Any
) -> None:
    assert await committer.commit(named("before")) == "before"
    postgres.kill()
    for _ in range(2):
        with pytest.raises(
            Unavailable, match=r"^nothing was stored: the database went away; try again later$"
        ):
            await committer.commit(named("during"))
        with pytest.raises(Unavailable):
            await committer.read(names)
    postgres.start()
    assert await committer.commit(named("after")) == "after"
    assert await committer.read(names) == ["after", "before"]
    assert bench.counters() == {}


async def test_a_server_killed_in_a_batch_spoils_that_batch(committer: Committer, postgres: Any) -> None:
    def killer(conn: Conn) -> str:
        postgres.kill()
        return named("killer")(conn)

    answers = await asyncio.gather(
        *(committer.commit(fn) for fn in (named("a"), killer, named("b"))), return_exceptions=True
    )
    postgres.start()
    assert isinstance(answers[1], Unavailable)
    stored = [name for name in ("a", "b") if name in answers]
    assert await committer.commit(named("after")) == "after"
    assert await committer.read(names) == sorted([*stored, "after"])


async def test_a_commit_that_got_no_answer_is_uncertain(committer: Committer, postgres: Any) -> None:
    def killer(conn: Conn) -> None:
        named("a")(conn)
        postgres.kill()

    with pytest.raises(UncertainCommit, match="may be stored, or not"):
        await committer.commit(killer)
    postgres.start()
    assert await committer.read(names) == []


async def test_a_broken_line_is_mended_before_anything_is_lost(
    committer: Committer, bench: Any, postgres: Any, impatient: None
) -> None:
    bench.report(1.0)
    assert bench.store.writer.renewed
    break_lines(bench, postgres)
    assert await committer.commit(named("a")) == "a"
    assert await committer.read(names) == ["a"]
    assert not bench.store.writer.renewed
    with pytest.raises(store.StoreError, match="another control"):  # the lock is held again
        other(bench, postgres)


async def test_a_line_that_breaks_in_a_batch_is_mended_for_the_next(
    committer: Committer, bench: Any, postgres: Any
) -> None:
    def breaker(conn: Conn) -> None:
        named("a")(conn)
        break_lines(bench, postgres)
        named("b")(conn)

    with pytest.raises(Unavailable, match="nothing was stored: the database is shutting down"):
        await committer.commit(breaker)
    assert await committer.commit(named("c")) == "c"
    assert await committer.read(names) == ["c"]


async def test_who_lost_the_lock_to_another_writes_nothing(
    committer: Committer, bench: Any, postgres: Any, impatient: None
) -> None:
    url = url_of(bench, postgres)
    break_lines(bench, postgres)
    thief = psycopg.connect(url, autocommit=True)
    thief.execute("SELECT pg_advisory_lock(%s)", (store_postgres.WRITER,))
    with pytest.raises(Unavailable, match="another control works on it"):
        await committer.commit(named("a"))
    assert await committer.read(names) == []
    thief.execute("SELECT pg_advisory_unlock(%s)", (store_postgres.WRITER,))
    thief.close()
    assert await committer.commit(named("b")) == "b"
    assert await committer.read(names) == ["b"]


# ---- a server that cannot ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("53100", "the disk of the database is full"),
        ("53200", "no memory left"),
        ("53300", "too many connections"),
        ("25006", "may not be written"),
        ("57014", "took too long"),
        ("57P01", "shutting down"),
        ("58030", "does not answer as it should"),
        ("40P01", "other transactions were in the way"),
    ],
)
async def test_trouble_of_the_server_is_reported(committer: Committer, code: str, message: str) -> None:
    with pytest.raises(Unavailable, match=f"^nothing was stored: .*{message}; try again later$"):
        await committer.commit(raising(code))
    assert await committer.commit(named("a")) == "a"


async def test_a_mistake_stays_the_error_that_it_is(committer: Committer) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await committer.commit(lambda conn: conn.run("SELECT 1 / :zero", {"zero": 0}))
    with pytest.raises(psycopg.errors.CheckViolation):
        await committer.commit(raising("23514"))


async def test_a_small_one_fits_where_a_big_one_does_not(bench: Any) -> None:
    results = run_batch(bench.store.writer, [named("a"), raising("53100"), named("b")])
    assert [value for value, _ in results] == ["a", None, "b"]
    assert isinstance(results[1][1], Unavailable)
    assert names(bench.store.writer) == ["a", "b"]


@pytest.mark.parametrize("code", ["40001", "40P01"])
@pytest.mark.parametrize(("clashes", "stored"), [(3, True), (4, False)])
def test_a_clash_is_tried_again_three_times(bench: Any, code: str, clashes: int, stored: bool) -> None:
    tries: list[int] = []

    def clashing(conn: Conn) -> None:
        named(str(len(tries)))(conn)
        tries.append(1)
        if len(tries) <= clashes:
            raising(code)(conn)

    ((_, error),) = run_batch(bench.store.writer, [clashing])
    assert (error is None, len(tries)) == (stored, 4)
    assert names(bench.store.writer) == (["3"] if stored else [])


async def test_a_locked_row_is_reported(committer: Committer, bench: Any, postgres: Any) -> None:
    bench.store.writer.raw.execute("SET lock_timeout = '10ms'")
    with psycopg.connect(url_of(bench, postgres)) as holder:
        holder.execute("LOCK TABLE keys IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="locked by another process"):
            await committer.commit(named("a"))
    assert await committer.commit(named("a")) == "a"


# ---- opening ----------------------------------------------------------------------------------------


def refused(where: str) -> str:
    with pytest.raises(store.StoreError) as raised:
        store.open_store(where, secrets=random_secrets())
    error: BaseException | None = raised.value
    while error is not None:
        assert HIDDEN not in f"{error} {error!r}"
        error = None if error.__suppress_context__ else error.__context__
    return str(raised.value)


def test_what_does_not_open_is_reported_without_the_password(
    postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = postgres.port
    assert refused(postgres.url(password=HIDDEN + "2")) == (
        f"the database postgres at 127.0.0.1:{port} cannot be opened: "
        'password authentication failed for user "stoker"'
    )
    assert refused(postgres.url("nothing")) == (
        f'the database nothing at 127.0.0.1:{port} cannot be opened: database "nothing" does not exist'
    )
    assert refused(f"postgresql://stoker:{HIDDEN}@127.0.0.1:1/db") == (
        "the database db at 127.0.0.1:1 cannot be opened: Connection refused"
    )
    assert refused(f"postgresql://stoker:{HIDDEN}@127.0.0.1:port/db").startswith(
        "the database db at 127.0.0.1:port"
    )
    for unreadable in (f"stoker:%zz{HIDDEN}@h/db", f"h/db?x={HIDDEN}"):
        error = refused(f"postgresql://{unreadable}")
        assert "postgresql://USER:PASSWORD@HOST:PORT/NAME" in error
    assert HIDDEN not in caplog.text


def test_the_key_lies_in_the_folder(url: str, tmp_path: Path) -> None:
    for _ in range(2):
        store.open_store(url, folder=tmp_path / "here").close()
    assert (tmp_path / "here" / FILE).stat().st_mode & 0o777 == 0o600
    with pytest.raises(SecretKeyError, match="written with another key"):
        store.open_store(url, folder=tmp_path / "there")
    with pytest.raises(ValueError, match="name it"):
        store.open_store(url)


def test_tables_of_another_version_or_of_others_are_refused(url: str) -> None:
    secrets = random_secrets()
    store.open_store(url, secrets=secrets).close()
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE meta SET value = '99' WHERE name LIKE 'schema_%'")
    with pytest.raises(
        store.StoreError, match=r"test_\d+ at .* has schema version 99.*give another --database"
    ):
        store.open_store(url, secrets=secrets)
    with psycopg.connect(url) as conn:
        conn.execute("DROP SCHEMA public CASCADE")
        conn.execute("CREATE SCHEMA public")
        conn.execute("CREATE TABLE things (x int)")
    with pytest.raises(store.StoreError, match="not Stoker's"):
        store.open_store(url, secrets=secrets)


def test_what_was_answered_waits_for_the_disk_whatever_the_server_likes(url: str) -> None:
    name = url.rpartition("/")[2]
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
    opened = store.open_store(url, secrets=random_secrets())
    assert opened.writer.raw.execute("SHOW synchronous_commit").fetchone() == ("on",)
    opened.close()


# ---- values -----------------------------------------------------------------------------------------


def test_a_character_that_postgres_does_not_know_is_replaced(bench: Any) -> None:
    claimed = bench.running(1.0)
    bench.report(2.0, bench.done(claimed, end="failed", error="a\0b"))
    assert bench.view(3.0, claimed.job).error == "a\ufffdb"
    assert bench.view(3.0, "\0") is None


def test_bytes_come_back_as_bytes(bench: Any) -> None:
    every = bytes(range(256))
    claimed = bench.running(1.0, input=every)
    bench.report(2.0, bench.done(claimed, output=every))
    output = bench.view(3.0, claimed.job).output
    assert (type(output), output) == (bytes, every)
    (stored,) = bench.store.writer.run("input", {"seq": 1}).fetchall()
    assert (type(stored[0]), stored[0]) == (bytes, every)
