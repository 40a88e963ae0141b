"""The lead of a store, and a standby that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from stoker.cli import data_folder
from stoker.cli.control import process, standby
from stoker.cli.control.database import check_chosen
from stoker.cli.control.standby import before_stop, listening, once_there, take_lead
from stoker.cli.daemons.options import ControlOptions
from stoker.cli.data_folder import DataFolder, locked
from stoker.cli.errors import CliError
from stoker.control.http.server.listener import CannotListen
from stoker.control.store import Store, StoreError, open_store
from stoker.control.store.database import writer_lock
from stoker.control.store.database.opening import StoreAway, StoreInUse
from stoker.control.store.database.secrets import SecretKeyError


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder.make(tmp_path / "data")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_folder, "RETRY_S", 0.0)
    monkeypatch.setattr(standby, "RETRY_S", 0.0)


def opening(folder: DataFolder, opened: list[Store]) -> Callable[[], Store]:
    def open_it() -> Store:
        opened.append(open_store(folder.store))
        return opened[-1]

    return open_it


async def test_a_standby_opens_the_store_when_the_control_before_it_has_ended(
    folder: DataFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    opened: list[Store] = []
    async with AsyncExitStack() as stack:
        with locked(folder.control_lock, "held"):
            waiting = asyncio.create_task(
                take_lead(stack, folder, None, opening(folder, opened), standby=True)
            )
            while not caplog.messages:
                await asyncio.to_thread(lambda: None)
            assert opened == []
        store = await waiting
        assert opened == [store]
        store.close()
        with pytest.raises(CliError, match="held now"), locked(folder.control_lock, "held now"):
            pass
    assert caplog.messages == [
        f"another control is running on {folder.root}; waiting for it to end",
        "this standby takes over",
    ]


async def test_a_standby_beside_no_control_leads_at_once_and_says_nothing(
    folder: DataFolder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with AsyncExitStack() as stack:
        (await take_lead(stack, folder, None, opening(folder, []), standby=True)).close()
    assert caplog.messages == []


async def test_a_standby_that_was_second_to_open_waits_again_and_a_control_gives_up(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def free(url: str) -> bool:
        return True

    monkeypatch.setattr(writer_lock, "wait_until_free", free)
    opened: list[Store] = []
    tries = [StoreInUse("another was first"), StoreInUse("another was first"), None]
    left = iter(tries)

    def open_it() -> Store:
        if (error := next(left)) is not None:
            raise error
        return opening(folder, opened)()

    async with AsyncExitStack() as stack:
        (await take_lead(stack, folder, "postgresql://h/d", open_it, standby=True)).close()
    assert next(left, "none") == "none"
    left = iter(tries)
    async with AsyncExitStack() as stack:
        with pytest.raises(StoreInUse):
            await take_lead(stack, folder, "postgresql://h/d", open_it, standby=False)


async def test_a_standby_waits_for_a_server_that_does_not_answer_and_says_so_once(
    folder: DataFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for one that went away after it was found free."""
    caplog.set_level("INFO")
    tries = iter([StoreAway("the database d is away"), StoreAway("the database d is away"), None])
    told: list[str] = []
    monkeypatch.setattr(standby.MANAGER, "ready", told.append)

    async def free(url: str) -> bool:
        return False

    def open_it() -> Store:
        if (error := next(tries)) is not None:
            raise error
        return opening(folder, [])()

    monkeypatch.setattr(writer_lock, "wait_until_free", free)
    async with AsyncExitStack() as stack:
        (await take_lead(stack, folder, "postgresql://h/d", open_it, standby=True)).close()
    assert caplog.messages == ["the database d is away; waiting for it", "the database answers"]
    assert told[1:] == ["waits for its database"]


async def test_what_no_wait_mends_ends_a_standby() -> None:
    async def refused() -> None:
        raise StoreError("another password is needed")

    with pytest.raises(StoreError, match="another password"):
        await once_there(refused)


async def test_a_signal_ends_the_wait(folder: DataFolder) -> None:
    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        with locked(folder.control_lock, "held"):
            waiting = take_lead(stack, folder, None, opening(folder, []), standby=True)
            asyncio.get_running_loop().call_soon(stop.set)
            assert await before_stop(waiting, stop) is None


async def test_a_standby_tries_again_where_the_address_is_still_in_use() -> None:
    tries = 0

    async def serve() -> str:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise CannotListen("in use")
        return "server"

    assert await listening(serve, standby=True) == "server"
    tries = 0
    with pytest.raises(CannotListen):
        await listening(serve, standby=False)


def test_a_standby_without_the_stores_key_is_refused_before_it_is_needed(
    folder: DataFolder, tmp_path: Path
) -> None:
    check_chosen(folder, None, {})  # there is no store yet
    open_store(folder.store).close()
    check_chosen(folder, None, {})
    key = (folder.root / "secret.key").read_text()
    (folder.root / "secret.key").unlink()
    with pytest.raises(SecretKeyError, match="is missing"):
        check_chosen(folder, None, {})
    other = DataFolder.make(tmp_path / "other")
    open_store(other.store).close()
    another = (other.root / "secret.key").read_text()
    with pytest.raises(SecretKeyError, match="does not open the secrets in the database"):
        check_chosen(folder, None, {"STOKER_SECRET_KEY": another.strip()})
    check_chosen(folder, None, {"STOKER_SECRET_KEY": key.strip()})


def test_a_standby_is_refused_beside_a_store_of_a_later_version(folder: DataFolder) -> None:
    store = open_store(folder.store)
    store.writer.raw.execute("UPDATE meta SET value = CAST('99' AS BLOB) WHERE name LIKE 'schema_%'")
    store.close()
    with pytest.raises(StoreError, match=r"has schema version 99, and this Stoker works with version \d+"):
        check_chosen(folder, None, {})


async def test_a_standby_loads_its_object_stores_library_before_it_waits_for_the_lead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control that was no standby loads it with its first file."""
    order: list[str] = []

    async def take_lead(*_: object, **options: object) -> Store:
        order.append("waits")
        raise StoreError("no lead in this test")

    monkeypatch.setattr("stoker.outbound.s3.client.load", lambda: order.append("loads"))
    monkeypatch.setattr(process, "take_lead", take_lead)
    for waits in (True, False):
        options = ControlOptions(tmp_path, None, "127.0.0.1", 0, "127.0.0.1", 0, standby=waits)
        with pytest.raises(StoreError, match="no lead in this test"):
            await process.run_control(options, {})
    assert order == ["loads", "waits", "waits"]


async def test_a_control_counts_its_lead_from_the_opening_of_the_store_to_its_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start and its end may take long: an object store that does not answer takes a minute."""
    order: list[str] = []

    async def keep_lead(_: object) -> None:
        order.append("counts")
        try:
            await asyncio.Event().wait()
        finally:
            order.append("counts no more")

    async def lead(stack: AsyncExitStack, *_: object) -> None:
        await asyncio.sleep(0)
        order.append("starts")
        stack.callback(order.append, "last commit")

    real = Store.close
    monkeypatch.setattr("stoker.control.store.database.sqlite.SqliteFile.keep_lead", keep_lead)
    monkeypatch.setattr(process, "_lead", lead)
    monkeypatch.setattr(Store, "close", lambda opened: (order.append("closed"), real(opened)))
    options = ControlOptions(tmp_path, None, "127.0.0.1", 0, "127.0.0.1", 0)
    await process.run_control(options, {})
    assert order == ["counts", "starts", "last commit", "counts no more", "closed"]
