"""The wait of a standby for the lock of the control that writes."""

from __future__ import annotations

import asyncio
import socketserver
import struct
from typing import Any

import pytest

from stoker.control import store
from stoker.control.store.database import writer_lock
from stoker.control.store.database.opening import StoreAway, check_store
from stoker.control.store.database.writer_lock import wait_until_free
from tests.servers.loopback_server import served

WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def database() -> str:
    return "postgres"


def url_of(bench: Any, postgres: Any) -> str:
    return str(postgres.url(bench.store.writer.raw.info.dbname))


async def checked(bench: Any, url: str) -> None:
    await asyncio.to_thread(check_store, url, bench.store.secrets)


async def all_wait(postgres: Any, count: int) -> None:
    while await asyncio.to_thread(postgres.say, WAITING) != [(count,)]:
        pass


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == writer_lock.__name__]


async def test_a_database_that_nobody_holds_is_not_waited_for(
    bench: Any, postgres: Any, caplog: pytest.LogCaptureFixture
) -> None:
    url = url_of(bench, postgres)
    bench.store.close()
    assert not await wait_until_free(url)
    assert logged(caplog) == []


async def test_every_standby_sees_the_end_of_the_control_and_the_first_to_open_has_the_database(
    bench: Any, postgres: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait in rounds, the first of which are over before that."""
    monkeypatch.setattr(writer_lock, "_ROUND", "SET lock_timeout = '1ms'")
    url = url_of(bench, postgres)
    waiting = [asyncio.create_task(wait_until_free(url)) for _ in range(2)]
    await all_wait(postgres, 2)
    assert not any(task.done() for task in waiting)
    bench.store.close()
    assert await asyncio.gather(*waiting) == [True, True]
    (line, again) = logged(caplog)
    assert line == again
    assert line.startswith("another control works on the database test_")
    opened = store.open_store(url, secrets=bench.store.secrets)
    with pytest.raises(store.StoreInUse, match="another control works on it"):
        store.open_store(url, secrets=bench.store.secrets)
    opened.close()


async def test_a_server_that_goes_away_is_waited_for(
    bench: Any, postgres: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(writer_lock, "RETRY_S", 0.0)
    waiting = asyncio.create_task(wait_until_free(url_of(bench, postgres)))
    await all_wait(postgres, 1)
    postgres.kill()
    while len(logged(caplog)) < 2:
        await asyncio.to_thread(lambda: None)
    postgres.start()
    assert await waiting
    held, away, back = logged(caplog)
    assert held.endswith("waiting for it to end")
    assert "went away: " in away
    assert back.endswith("answers again; waiting on")


async def test_a_server_that_does_not_answer_at_first_is_away(bench: Any, postgres: Any) -> None:
    url = url_of(bench, postgres)
    postgres.kill()
    try:
        for use in (wait_until_free(url), checked(bench, url)):
            with pytest.raises(StoreAway, match=r"^the database test_\d+ at .* cannot be opened: "):
                await use
    finally:
        postgres.start()


class Starting(socketserver.StreamRequestHandler):
    """A PostgreSQL that has not read its log yet: it answers, and refuses everybody."""

    def handle(self) -> None:
        self.rfile.read(struct.unpack("!I", self.rfile.read(4))[0] - 4)
        fields = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
        self.wfile.write(b"E" + struct.pack("!I", 4 + len(fields)) + fields)


@pytest.mark.slow
async def test_a_server_that_starts_is_away() -> None:
    server = socketserver.TCPServer(("127.0.0.1", 0), Starting)
    with served(server):
        url = f"postgresql://stoker:x@127.0.0.1:{server.server_address[1]}/d?sslmode=disable"
        with pytest.raises(StoreAway, match="cannot be opened: the database system is starting up"):
            await wait_until_free(url)


@pytest.mark.parametrize("named", [{"password": "wrong"}, {"database": "no_such_database"}])
async def test_a_server_that_refuses_this_control_is_an_error(
    bench: Any, postgres: Any, named: dict[str, str]
) -> None:
    """Waiting would mend nothing."""
    url = postgres.url(**named)
    for use in (wait_until_free(url), checked(bench, url)):
        with pytest.raises(store.StoreError, match="cannot be opened: ") as raised:
            await use
        assert not isinstance(raised.value, StoreAway)
