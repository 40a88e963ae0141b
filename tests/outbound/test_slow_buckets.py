"""Buckets that never answer, or drip, on loopback: what they hold up, and what they do not."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from msgspec import structs

from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.control.jobs.artifacts import sign
from stoker.outbound.errors import ObjectStoreDown, ObjectStoreRefused
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.wait_limits import UPLOADS, WaitRule
from stoker.wire.messages import Grant, Signed, Wanted

PREFIX = "echo/job-1/1/"
PORTS = 8


@asynccontextmanager
async def silent_store(drip: asyncio.Event | None = None) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Takes connections and requests, and never answers; with `drip`, sends one byte more of an answer
    without end as long as that is set. The event: it has been asked."""
    requested, ended = asyncio.Event(), asyncio.Event()

    async def send_bytes(writer: asyncio.StreamWriter) -> None:
        assert drip is not None
        writer.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not writer.is_closing():
            await drip.wait()
            writer.write(b"x")
            await asyncio.sleep(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dripping = None
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            requested.set()
            dripping = None if drip is None else asyncio.create_task(send_bytes(writer))
            if dripping is None:
                await ended.wait()
            else:
                await asyncio.wait(
                    [dripping, over := asyncio.create_task(ended.wait())], return_when=asyncio.FIRST_COMPLETED
                )
                over.cancel()
        if dripping is not None:
            dripping.cancel()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requested
        finally:
            ended.set()


class Signs:
    """For the real store, whatever it is asked."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store

    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        return tuple(sign(self.store, one) for one in wanted)


@pytest.fixture
async def objects(store: ObjectStore) -> AsyncIterator[S3Objects]:
    opened = S3Objects(Signs(store))
    yield opened
    await opened.close()


@pytest.fixture
def grant(config: ObjectStoreConfig) -> Grant:
    """To the platform's real store, for the account `good`."""
    return Grant(config.endpoint_url, "", config.region, config.bucket, PREFIX, "", account="good")


def own_bucket(url: str, account: str, key: str = "", endpoint: str = "") -> Grant:
    return Grant(url, url, "", "own", PREFIX, "id", "secret", account=account, key=key, endpoint=endpoint)


async def hanging(objects: S3Objects, grant: Grant, count: int = UPLOADS.slots) -> list[asyncio.Task[object]]:
    fd = os.memfd_create("test")
    os.write(fd, b"data")
    files = [objects.put_file(grant, f"{PREFIX}{n}-a", fd, "text/plain", "a") for n in range(count)]
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(one) for one in files]
    await asyncio.sleep(0)
    os.close(fd)
    return tasks


async def test_a_bucket_that_never_answers_holds_neither_another_account_nor_the_platforms_store_up(
    objects: S3Objects, grant: Grant
) -> None:
    async with silent_store() as (url, requested), silent_store() as (other_url, other_requested):
        waiting = await hanging(objects, own_bucket(url, "bad"))
        await requested.wait()
        waiting += await hanging(objects, own_bucket(other_url, "worse"))
        await other_requested.wait()
        for account in ("good", "bad"):  # also where the bucket of its own is the one that hangs
            own = structs.replace(grant, account=account)
            ref = await objects.put_bytes(own, f"{PREFIX}output.json", b"[1]", "application/json")
            assert await objects.get(own, ref) == b"[1]"
        assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def silent(stack: AsyncExitStack, drip: asyncio.Event) -> list[tuple[str, asyncio.Event]]:
    return [await stack.enter_async_context(silent_store(drip)) for _ in range(PORTS)]


async def hang_on(
    objects: S3Objects, stores: list[tuple[str, asyncio.Event]], files: int = 1
) -> list[asyncio.Task[object]]:
    """Eight jobs of one key, each with so many files and its bucket at another port."""
    waiting = list[asyncio.Task[object]]()
    for url, _ in stores:
        waiting += await hanging(objects, own_bucket(url, "bad", "their-key", "theirs"), files)
    for _, requested in stores[: PORTS // files]:
        await requested.wait()
    return waiting


async def put_somewhere(objects: S3Objects, config: ObjectStoreConfig, caller: Grant) -> None:
    """To a bucket of the caller's own, which works: the platform's, with its keys."""
    good = structs.replace(
        caller,
        endpoint_url=config.endpoint_url,
        public_endpoint=config.endpoint_url,
        bucket=config.bucket,
        region=config.region,
        access_id=config.access_id,
        access_secret=config.access_secret,
    )
    fd = os.memfd_create("test")
    os.write(fd, b"data")
    assert (await objects.put_file(good, f"{PREFIX}0-good", fd, "text/plain", "a")).size == 4
    os.close(fd)


@pytest.mark.parametrize("files", [1, 4])
async def test_eight_ports_that_drip_hold_no_other_key_or_endpoint_up_nor_the_platforms_store(
    objects: S3Objects, config: ObjectStoreConfig, grant: Grant, files: int
) -> None:
    others = [("other-key", "theirs"), ("their-key", "others")]
    if files == 1:  # then their own other buckets, too
        others.append(("their-key", "theirs"))
    drip = asyncio.Event()
    async with AsyncExitStack() as stack:
        waiting = await hang_on(objects, await silent(stack, drip), files)
        for key, name in others:
            await put_somewhere(objects, config, own_bucket("", "bad", key, name))
        own = structs.replace(grant, account="bad", key="their-key", endpoint="theirs")
        ref = await objects.put_bytes(own, f"{PREFIX}output.json", b"[1]", "application/json")
        assert await objects.get(own, ref) == b"[1]"
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


async def test_cancelled_jobs_give_their_slots_back_while_their_buckets_drip(
    config: ObjectStoreConfig, grant: Grant
) -> None:
    """With room for one upload of a bucket at all: the next one runs once the first was cancelled."""
    objects, drip = S3Objects(Signs(ObjectStore(config)), WaitRule(slots=1)), asyncio.Event()
    async with silent_store(drip) as (url, requested):
        (waiting,) = await hanging(objects, own_bucket(url, "bad"), 1)
        await requested.wait()
        drip.set()
        waiting.cancel()
        await asyncio.wait([waiting])
        await put_somewhere(objects, config, own_bucket("", "good"))
    await objects.close()


async def test_an_upload_ends_at_its_deadline_however_its_bucket_drips(
    config: ObjectStoreConfig, grant: Grant
) -> None:
    rule = WaitRule(slots=1, first_s=0.2)
    objects, drip = S3Objects(Signs(ObjectStore(config)), rule), asyncio.Event()
    async with silent_store(drip) as (url, requested):
        drip.set()
        (waiting,) = await hanging(objects, own_bucket(url, "bad"), 1)
        with pytest.raises(ObjectStoreDown, match="did not finish within 0 s"):
            await waiting
        assert requested.is_set()
    await objects.close()


async def test_the_end_waits_for_no_bucket_that_drips(objects: S3Objects) -> None:
    drip = asyncio.Event()
    async with AsyncExitStack() as stack:
        waiting = await hang_on(objects, await silent(stack, drip))
        began = [thread for thread in threading.enumerate() if thread.name == "object store"]
        assert len(began) >= PORTS
        drip.set()
        await objects.close()
        for thread in began:
            thread.join(10)
            assert not thread.is_alive()
        waiting_for = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(end) for end in waiting_for} <= {ObjectStoreDown, ObjectStoreRefused}
