"""The lead of a database: when another control stands still, and what a control that was replaced may do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control import store
from stoker.control.store.database import leadership, writer_lock
from stoker.control.store.database.leadership import GAP_S, STILL_S, Lead, Watch, read
from stoker.control.store.database.writer_lock import wait_until_free


@given(st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 2), st.booleans()), max_size=60))
def test_a_lead_stands_still_only_where_close_looks_saw_one_count_for_long(
    looks: list[tuple[float, int, bool]],
) -> None:
    watch, now, count, since, looked = Watch(), 0.0, 0, None, -GAP_S
    for pause, step, has_term in looks:
        now, count = now + pause, count + step
        lead = Lead(1, count) if has_term else Lead()
        if since is None or since[0] != lead or now - looked > GAP_S:
            since = lead, now
        looked = now
        assert watch.stands_still(lead, now) == (has_term and now - since[1] >= STILL_S)


def test_a_server_or_a_standby_that_stood_still_says_nothing_of_the_control() -> None:
    watch, lead = Watch(), Lead(3, 7)
    assert not any(watch.stands_still(lead, at) for at in range(10))
    assert not watch.stands_still(lead, 80.0), "the first look after 70 s"
    assert not watch.stands_still(lead, 84.0)
    assert not watch.stands_still(lead, 88.0)
    assert watch.stands_still(lead, 90.0)


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**63))
def test_a_lead_is_read_as_it_was_stored(term: int, count: int) -> None:
    assert read(Lead(term, count).text()) == Lead(term, count)
    assert read(None) == Lead()


@pytest.fixture
def database() -> str:
    return "postgres"


def url_of(bench: Any, postgres: Any) -> str:
    return str(postgres.url(bench.store.writer.raw.info.dbname))


def term_of(opened: Any) -> int:
    return leadership.found_term(opened.writer.raw)


async def test_each_control_raises_the_term_and_counts(
    bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "BEAT_S", 0.0)
    url = url_of(bench, postgres)
    first = term_of(bench.store)
    bench.store.close()
    second = store.open_store(url, secrets=bench.store.secrets)
    assert term_of(second) == first + 1
    counting = asyncio.create_task(second.database.keep_lead())
    reader = second.reader()
    find = "SELECT value FROM meta WHERE name = 'lead'"
    while (await asyncio.to_thread(lambda: read(reader.raw.execute(find).fetchone()[0]).count)) < 3:
        pass
    counting.cancel()
    assert second.database.lost() is None
    second.close()


async def test_a_control_that_stands_still_is_replaced_and_writes_nothing_more(
    bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It does not count here, so it stands still; then its loop goes on."""
    monkeypatch.setattr(leadership, "STILL_S", 0.05)
    monkeypatch.setattr(writer_lock, "_ROUND", "SET lock_timeout = '1ms'")
    url = url_of(bench, postgres)
    assert await wait_until_free(url)
    assert "has stood still for 0 s; taking over" in caplog.text
    successor = store.open_store(url, secrets=bench.store.secrets)
    old = bench.store.writer
    with pytest.raises(Exception, match="another control"):
        old.begin()
    assert bench.store.database.lost() is None, "the successor lives, and holds the lock"
    successor.close()
    with pytest.raises(Exception, match="another control has taken it over"):
        old.begin()
    assert "another control has taken over the database test_" in bench.store.database.lost()


async def test_a_control_of_an_earlier_version_does_not_count_and_is_left_alone(
    bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A control of this version had the database before, so there is a term, which nobody holds now."""
    monkeypatch.setattr(leadership, "STILL_S", 0.0)
    monkeypatch.setattr(writer_lock, "_ROUND", "SET lock_timeout = '1ms'")
    old = bench.store.writer.raw
    old.execute("SELECT pg_advisory_unlock(%s::int4, %s::int4)", (leadership._TERMS, term_of(bench.store)))
    looks = asyncio.Event()
    real = leadership.end_session

    async def end_session(*lead: Any) -> bool:
        looks.set()
        return await real(*lead)

    monkeypatch.setattr(leadership, "end_session", end_session)
    waiting = asyncio.create_task(wait_until_free(url_of(bench, postgres)))
    await looks.wait()
    old.execute("SELECT 1")
    assert "taking over" not in caplog.text
    bench.store.close()
    assert await waiting


async def test_nobody_is_replaced_where_nobody_can_count(
    bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The successor could not store its term either."""
    monkeypatch.setattr(leadership, "STILL_S", 0.0)
    monkeypatch.setattr(writer_lock, "_ROUND", "SET lock_timeout = '1ms'")
    looks = asyncio.Semaphore(0)
    real = leadership.takes_writes

    async def takes_writes(raw: Any) -> bool:
        looks.release()
        return await real(raw)

    monkeypatch.setattr(leadership, "takes_writes", takes_writes)
    database = f"ALTER DATABASE {bench.store.writer.raw.info.dbname}"
    postgres.say(f"{database} SET default_transaction_read_only = on")
    try:
        waiting = asyncio.create_task(wait_until_free(url_of(bench, postgres)))
        for _ in range(3):
            await looks.acquire()
        bench.store.close()
        assert await waiting
        assert "taking over" not in caplog.text
    finally:
        postgres.say(f"{database} RESET default_transaction_read_only")


async def test_the_count_of_a_control_that_was_replaced_ends_its_lead(
    bench: Any, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "BEAT_S", 0.0)
    lost = asyncio.Event()
    conninfo = bench.store.database.conninfo
    counting = asyncio.create_task(leadership.count(conninfo, term_of(bench.store), lost.set))
    bench.store.writer.raw.execute("UPDATE meta SET value = %s WHERE name = 'lead'", (Lead(99).text(),))
    await asyncio.gather(lost.wait(), counting)


async def test_a_control_that_lost_its_session_and_was_not_replaced_goes_on(bench: Any) -> None:
    old = bench.store.writer
    pid = old.raw.info.backend_pid
    bench.store.reader().raw.execute("SELECT pg_terminate_backend(%s::int)", (pid,))
    with pytest.raises(Exception, match=r"terminating connection|closed"):
        old.raw.execute("SELECT 1")
    old.begin()
    old.commit()
    assert bench.store.database.lost() is None
