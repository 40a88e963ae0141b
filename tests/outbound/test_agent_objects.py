"""What each object store of the agent does, the real one and the one in memory; then each alone."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from stoker.agent.fake_objects import FakeObjects
from stoker.agent.objects import S3Objects, config_of
from stoker.agent.seams import Objects
from stoker.outbound.errors import (
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
)
from stoker.outbound.objects import ObjectStore, ObjectStoreConfig
from stoker.wire.messages import Artifact, Grant, Ref

PREFIX = "echo/job-1/2/"


@pytest.fixture
def grant(config: ObjectStoreConfig) -> Grant:
    return Grant(
        config.endpoint_url,
        "https://files.example.test",
        config.region,
        config.bucket,
        PREFIX,
        config.access_id,
        config.access_secret,
    )


@pytest.fixture(params=["s3", "memory"])
async def objects(request: pytest.FixtureRequest) -> AsyncIterator[Objects]:
    opened: S3Objects | FakeObjects = S3Objects() if request.param == "s3" else FakeObjects()
    yield opened
    await opened.close()


def memory(data: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


async def test_a_file_is_stored_whole_and_described(objects: Objects, grant: Grant) -> None:
    data = os.urandom(100_000)
    fd = memory(data)
    os.lseek(fd, 5, os.SEEK_SET)
    key = f"{PREFIX}0-a.png"
    artifact = await objects.put_file(grant, key, fd, "image/png", "a.png")
    os.close(fd)
    digest = hashlib.sha256(data).hexdigest()
    assert artifact == Artifact(key, 100_000, digest, "image/png")
    assert await objects.get(grant, Ref(key, 100_000, digest)) == data


async def test_the_descriptor_may_be_closed_while_the_upload_waits(objects: Objects, grant: Grant) -> None:
    fd = memory(b"data")
    uploading = asyncio.ensure_future(objects.put_file(grant, f"{PREFIX}0-a", fd, "text/plain", "a"))
    await asyncio.sleep(0)  # one turn of the loop: it has begun
    os.close(fd)
    artifact = await uploading
    assert artifact.size == 4


async def test_bytes_come_back(objects: Objects, grant: Grant) -> None:
    ref = await objects.put_bytes(grant, f"{PREFIX}output.json", b'{"a":1}', "application/json")
    assert ref == Ref(f"{PREFIX}output.json", 7, hashlib.sha256(b'{"a":1}').hexdigest())
    assert await objects.get(grant, ref) == b'{"a":1}'


@pytest.mark.parametrize("key", ["echo/job-1/1/0-a", "echo/job-1/20/0-a", "0-a", "", PREFIX, f"/{PREFIX}a"])
async def test_nothing_is_written_outside_the_prefix(objects: Objects, grant: Grant, key: str) -> None:
    fd = memory(b"x")
    with pytest.raises(ObjectStoreRefused, match="outside the prefix"):
        await objects.put_bytes(grant, key, b"x", "text/plain")
    with pytest.raises(ObjectStoreRefused, match="outside the prefix"):
        await objects.put_file(grant, key, fd, "text/plain", "a")
    os.close(fd)


async def test_a_grant_without_a_prefix_grants_nothing(objects: Objects, grant: Grant) -> None:
    with pytest.raises(ObjectStoreRefused, match="outside the prefix"):
        await objects.put_bytes(dataclasses.replace(grant, prefix=""), "anything", b"x", "text/plain")


async def test_reading_outside_the_prefix_is_allowed(objects: Objects, grant: Grant) -> None:
    """A spilled input lies beside the attempts' prefixes."""
    wider = dataclasses.replace(grant, prefix="echo/")
    ref = await objects.put_bytes(wider, "echo/job-1/input.json", b"{}", "application/json")
    assert await objects.get(grant, ref) == b"{}"


async def test_what_is_missing_or_altered_is_told(objects: Objects, grant: Grant) -> None:
    with pytest.raises(ObjectMissing):
        await objects.get(grant, Ref(f"{PREFIX}never", 1, ""))
    ref = await objects.put_bytes(grant, f"{PREFIX}a", b"12345", "text/plain")
    with pytest.raises(ObjectDamaged):
        await objects.get(grant, dataclasses.replace(ref, sha256="0" * 64))


async def test_urls_name_the_public_endpoint(objects: Objects, grant: Grant) -> None:
    url = objects.url(grant, f"{PREFIX}0-a.png")
    assert url.startswith(f"https://files.example.test/{grant.bucket}/{PREFIX}0-a.png?")
    assert "X-Amz-Expires=604800" in url
    inner = objects.url(dataclasses.replace(grant, public_endpoint=""), f"{PREFIX}0-a.png")
    assert inner.startswith(f"{grant.endpoint_url}/{grant.bucket}/")


async def test_the_fake_fails_as_scripted(grant: Grant) -> None:
    fake = FakeObjects()
    fake.fail(2)
    fake.fail(1, ObjectStoreFull("full"))
    for error in (ObjectStoreDown, ObjectStoreDown, ObjectStoreFull):
        with pytest.raises(error):
            await fake.put_bytes(grant, f"{PREFIX}a", b"x", "text/plain")
    assert fake.blobs == {}
    await fake.put_bytes(grant, f"{PREFIX}a", b"x", "text/plain")
    fake.down = True
    with pytest.raises(ObjectStoreDown):
        await fake.get(grant, Ref(f"{PREFIX}a", 1, ""))
    assert fake.calls == [f"put {PREFIX}a"] * 4 + [f"get {PREFIX}a"]


class Blocked(ObjectStore):
    """A store whose uploads wait until they are let go, and say when they have begun."""

    begun = threading.Event()
    let_go = threading.Event()

    def put_file(self, *args: Any, **kwargs: Any) -> Any:
        self.begun.set()
        assert self.let_go.wait(30)
        return super().put_file(*args, **kwargs)


@pytest.fixture
def blocked() -> type[Blocked]:
    Blocked.begun, Blocked.let_go = threading.Event(), threading.Event()
    return Blocked


async def test_a_cancelled_upload_stores_nothing(
    grant: Grant, store: ObjectStore, blocked: type[Blocked]
) -> None:
    objects = S3Objects(1, blocked)
    fd = memory(b"x")
    running = asyncio.create_task(objects.put_file(grant, f"{PREFIX}0-a", fd, "text/plain", "a"))
    waiting = asyncio.create_task(objects.put_file(grant, f"{PREFIX}1-b", fd, "text/plain", "b"))
    await asyncio.to_thread(blocked.begun.wait)
    for task in (running, waiting):  # one is on the thread, one has not begun
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert running.cancelled()
    assert waiting.cancelled()
    assert len(objects._stops) == 1, "the other one has nothing left to stop"
    os.close(fd)
    blocked.let_go.set()
    await objects.close()
    assert store.keys("") == []


async def test_closing_stops_what_is_uploading(
    grant: Grant, store: ObjectStore, blocked: type[Blocked]
) -> None:
    objects = S3Objects(1, blocked)
    fd = memory(b"x")
    running = asyncio.create_task(objects.put_file(grant, f"{PREFIX}0-a", fd, "text/plain", "a"))
    await asyncio.to_thread(blocked.begun.wait)
    closing = asyncio.create_task(objects.close())
    await asyncio.sleep(0)  # one turn of the loop: it has told the upload to stop
    blocked.let_go.set()
    await closing
    with pytest.raises(ObjectStoreRefused, match="was stopped"):
        await running
    os.close(fd)
    assert store.keys("") == []


async def test_one_client_serves_all_grants_to_the_same_store(grant: Grant) -> None:
    opened: list[ObjectStoreConfig] = []

    def open_store(config: ObjectStoreConfig) -> ObjectStore:
        opened.append(config)
        return ObjectStore(config)

    objects = S3Objects(open_store=open_store)
    for attempt in range(5):
        own = dataclasses.replace(grant, prefix=f"echo/job-{attempt}/1/")
        await objects.put_bytes(own, f"{own.prefix}a", b"x", "text/plain")
    assert len(opened) == 1
    for other in range(20):  # more than are kept: the first ones are closed, and opened again when needed
        objects.url(dataclasses.replace(grant, access_id=f"other-{other}"), "a")
    await objects.put_bytes(grant, f"{PREFIX}a", b"x", "text/plain")
    assert len(opened) == 22
    await objects.close()


async def test_a_wrong_secret_is_refused_and_a_missing_store_is_down(grant: Grant) -> None:
    objects = S3Objects()
    wrong = dataclasses.replace(grant, access_secret="wrong")
    nowhere = dataclasses.replace(grant, endpoint_url="http://127.0.0.1:1")
    with pytest.raises(ObjectStoreRefused):
        await objects.put_bytes(wrong, f"{PREFIX}a", b"x", "text/plain")
    with pytest.raises(ObjectStoreDown):
        await objects.put_bytes(nowhere, f"{PREFIX}a", b"x", "text/plain")
    await objects.close()


def test_a_grants_secret_is_in_no_repr(grant: Grant) -> None:
    assert grant.access_secret not in repr(grant) + repr(config_of(grant))
