"""Buckets that never answer, on loopback: what they hold up, and what they do not."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest

from stoker.agent.jobs.uploads import store_calls
from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.agent.jobs.uploads.store_calls import AT_ONCE
from stoker.control.jobs.artifacts import sign
from stoker.outbound.errors import ObjectStoreDown
from stoker.outbound.s3.objects import ObjectStore, ObjectStoreConfig
from stoker.wire.messages import Grant, Signed, Wanted

PREFIX = "echo/job-1/1/"


@asynccontextmanager
async def silent_store() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """Takes connections and requests, and never says a word. The event: it has been asked."""
    requested, ended = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            requested.set()
            await ended.wait()
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


def own_bucket(url: str, account: str) -> Grant:
    return Grant(url, url, "", "own", PREFIX, "id", "secret", account=account)


async def hanging(objects: S3Objects, grant: Grant) -> list[asyncio.Task[object]]:
    fd = os.memfd_create("test")
    os.write(fd, b"data")
    files = [objects.put_file(grant, f"{PREFIX}{n}-a", fd, "text/plain", "a") for n in range(2 * AT_ONCE)]
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
            own = dataclasses.replace(grant, account=account)
            ref = await objects.put_bytes(own, f"{PREFIX}output.json", b"[1]", "application/json")
            assert await objects.get(own, ref) == b"[1]"
        assert not any(task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_a_bucket_that_never_answers_holds_up_no_end(
    objects: S3Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_calls, "CLOSE_S", 0.05)
    fd = os.memfd_create("test")
    async with silent_store() as (url, requested):
        put = objects.put_file(own_bucket(url, "bad"), f"{PREFIX}0-a", fd, "text/plain", "a")
        waiting = asyncio.create_task(put)
        await requested.wait()
        await objects.close()
        assert not waiting.done()
        hung = [thread for thread in threading.enumerate() if thread.name == "object store"]
        assert [thread.daemon for thread in hung] == [True]
    with pytest.raises(ObjectStoreDown):
        await waiting
    os.close(fd)
    for thread in hung:
        thread.join()
