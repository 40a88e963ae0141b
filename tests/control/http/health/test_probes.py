"""`/healthz` and `/ready`: each outage is told by its name, once in the log, and is over when it is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from stoker.control.errors import DatabaseDown
from stoker.control.http.calls.app import make_app
from stoker.control.http.health import checks
from stoker.control.http.health.checks import FREE_LEAST, Readiness, checks_of, warnings_of
from stoker.control.http.health.probes import probes
from stoker.control.store.database import outages
from stoker.control.store.database.commits import Committer
from stoker.control.store.database.opening import open_store
from stoker.testing.memory_artifacts import MemoryArtifacts
from stoker.wire.tls_files import PemFile, read_authority, read_certificate
from tests.certificates import make_certificate
from tests.control.http.calls.fake_plane import FakePlane


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class World:
    """Control's checks over a real store, with what can break them."""

    def __init__(self, folder: Path, database: str = "") -> None:
        self.now, self.looks, self.free = 0.0, 0, FREE_LEAST
        self.warned: tuple[str, ...] = ()
        self.folder, self.artifacts = folder, MemoryArtifacts()
        self.store = open_store(database or folder / "stoker.db", folder=folder)
        self.commits = Committer(self.store)
        self.certificate = read_certificate(make_certificate(folder).files.cert)
        self.date = datetime.now(UTC)
        self.readiness = Readiness(
            checks_of(self.commits, self.artifacts, folder, lambda: self.certificate, lambda: self.date),
            self._warnings,
            lambda: self.now,
        )
        app = make_app(FakePlane(), probes=probes(self.readiness))
        self.http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://stoker")

    def _warnings(self) -> tuple[str, ...]:
        self.looks += 1
        return self.warned

    async def ready(self) -> tuple[int, dict[str, Any]]:
        self.now += checks.FRESH_S
        answer = await self.http.get("/ready")
        return answer.status_code, answer.json()

    async def failing(self) -> set[str]:
        """Returns the names of the checks that fail."""
        status, body = await self.ready()
        names = {name for name, said in body["checks"].items() if said != "ok"}
        assert status == (503 if names else 200)
        return names

    async def close(self) -> None:
        await self.http.aclose()
        await self.commits.close()
        self.store.close()


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: Usage(1, 1, made.free))
    monkeypatch.setattr(outages, "CALM_S", 0.0)
    yield made
    await made.close()


async def test_it_is_alive_and_ready_without_a_key(world: World) -> None:
    answer = await world.http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    status, body = await world.ready()
    assert status == 200
    assert body["status"] == "ready"
    assert set(body["checks"]) == {"database", "writes", "migrations", "objectStore", "disk", "certificate"}
    assert set(body["checks"].values()) == {"ok"}
    assert (await world.http.head("/ready")).status_code == 200


async def test_the_address_itself_says_what_this_is(world: World) -> None:
    answer = await world.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert 'href="/docs"' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def broken_database(world: World) -> Any:
    async def fails(fn: Any) -> Any:
        raise RuntimeError("the database at db.example.com went away")

    world.commits.read = fails  # type: ignore[method-assign]
    return lambda: delattr(world.commits, "read")


async def no_writes(world: World) -> Any:
    writer = world.store.writer.raw  # its thread waits for work now
    writer.execute("PRAGMA query_only = 1")
    return lambda: writer.execute("PRAGMA query_only = 0")


async def other_schema(world: World) -> Any:
    def set_to(value: bytes) -> Any:
        def write(conn: Any) -> None:
            conn.run("UPDATE meta SET value = :value WHERE name = 'schema_version'", {"value": value})

        return world.commits.commit(write)

    stored = await world.commits.read(
        lambda conn: conn.run("SELECT value FROM meta WHERE name = 'schema_version'", {}).fetchone()[0]
    )
    await set_to(b"1")
    return lambda: set_to(stored)


async def store_away(world: World) -> Any:
    world.artifacts.down = True
    return lambda: setattr(world.artifacts, "down", False)


async def full_disk(world: World) -> Any:
    world.free = FREE_LEAST - 1
    return lambda: setattr(world, "free", FREE_LEAST)


async def expired_certificate(world: World) -> Any:
    """The date goes back, since a renewed file is served after a SIGHUP."""
    today, world.date = world.date, world.date + timedelta(days=31)
    return lambda: setattr(world, "date", today)


@pytest.mark.parametrize(
    ("breaks", "names"),
    [
        (broken_database, {"database", "migrations"}),
        (no_writes, {"writes"}),
        (other_schema, {"migrations"}),
        (store_away, {"objectStore"}),
        (full_disk, {"disk"}),
        (expired_certificate, {"certificate"}),
    ],
)
async def test_each_outage_is_told_and_is_over_when_it_is(
    world: World, breaks: Any, names: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "stoker.control.http.health.checks")
    assert (await world.ready())[0] == 200
    mend = await breaks(world)
    for _ in range(3):
        status, body = await world.ready()
        assert status == 503
        assert body["status"] == "not ready"
        assert {name for name, said in body["checks"].items() if said != "ok"} == names
        assert "example.com" not in str(body), "addresses are for the log"
        assert str(world.folder) not in str(body)
    mended = mend()
    if asyncio.iscoroutine(mended):
        await mended
    assert (await world.ready())[0] == 200
    lines = [record.getMessage() for record in caplog.records]
    assert len([line for line in lines if line.startswith("not ready: ")]) == len(names), lines
    assert sorted(line for line in lines if line.startswith("ready again: ")) == [
        f"ready again: {name}" for name in sorted(names)
    ]
    assert (await world.http.get("/healthz")).status_code == 200


async def test_large_writes_that_do_not_fit_are_told_while_small_ones_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outages, "CALM_S", 60.0)
    await world.commits.commit(
        lambda conn: conn.raw.execute("PRAGMA max_page_count = 1")
    )  # no more than it has

    def large(conn: Any) -> None:
        conn.run("INSERT INTO meta (name, value) VALUES ('large', :value)", {"value": bytes(1 << 20)})

    assert await world.failing() == set()
    with pytest.raises(DatabaseDown, match="full"):
        await world.commits.commit(large)
    for _ in range(2):
        assert await world.failing() == {"writes"}
    monkeypatch.setattr(outages, "CALM_S", 0.0)
    assert await world.failing() == set()


async def test_a_server_that_takes_no_writes_is_not_ready_until_it_does(
    tmp_path: Path, postgres: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a service sets it whose disk is nearly full. What runs is ended, since it holds for new sessions."""
    monkeypatch.setattr(outages, "CALM_S", 0.0)
    url = postgres.fresh()
    name = url.rpartition("/")[2]
    ended = f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{name}'"
    world = World(tmp_path, url)
    try:
        assert await world.failing() == set()
        postgres.say(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        postgres.say(ended)
        for _ in range(2):
            assert await world.failing() == {"writes"}
        with pytest.raises(DatabaseDown, match="may not be written"):
            await world.commits.commit(lambda conn: conn.run("DELETE FROM keys", {}))
        postgres.say(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        postgres.say(ended)
        assert await world.failing() == set()
    finally:
        await world.close()
        postgres.drop(url)


async def test_callers_without_a_key_cause_one_look_in_a_time(world: World) -> None:
    world.now = 100.0
    await asyncio.gather(*(world.http.get("/ready") for _ in range(20)))
    assert world.looks == 1
    world.now += checks.FRESH_S
    await world.http.get("/ready")
    assert world.looks == 2


async def test_a_check_without_an_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "WITHIN_S", 0.01)

    async def hangs() -> str:
        await asyncio.Event().wait()
        return ""

    [outcome], _ = await Readiness({"database": hangs}, tuple, lambda: 0.0).look()
    assert not outcome.passed


async def test_warnings_are_told_and_fail_nothing(world: World) -> None:
    world.warned = ("the TLS certificate expires soon",)
    status, body = await world.ready()
    assert (status, body["warnings"]) == (200, ["the TLS certificate expires soon"])


def test_what_is_warned_of(tmp_path: Path) -> None:
    path, now = make_certificate(tmp_path, timedelta(days=20)).files.cert, datetime.now(UTC)
    served, agents = read_certificate(path), read_authority(path)

    def said(days: int, authority: PemFile | None = None) -> list[str]:
        at = now + timedelta(days=days)
        return list(warnings_of(served, authority, lambda: at, embedded_beyond=False))

    assert said(0, agents) == []
    [soon] = said(10)
    assert soon.startswith("the TLS certificate ends on ")
    assert str(tmp_path) not in soon
    assert said(30) == [], "that is a failure"
    assert checks.certificate_problem(served, now + timedelta(days=30)).startswith("it ended on ")
    assert checks.certificate_problem(served, now) == ""
    assert [one.split(" ends")[0] for one in said(10, agents)] == ["the TLS certificate", "the TLS authority"]
    [ended] = said(30, agents)
    assert "authority" in ended, "control goes on; no agent with such a certificate comes in"
    [embedded] = warnings_of(None, None, lambda: now, embedded_beyond=True)
    assert "[s3]" in embedded
