"""What each object store of the agent does, the real one and the one in memory; then each alone."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from msgspec import structs

from stoker.agent.interfaces import Objects
from stoker.agent.jobs.uploads.objects import S3Objects, config_of
from stoker.control.jobs.artifacts import sign
from stoker.outbound.errors import (
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
)
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.styles import Found
from stoker.outbound.wait_limits import WaitRule
from stoker.testing.fake_objects import FakeObjects
from stoker.wire.messages import Artifact, Grant, Ref, Signed, Wanted

PREFIX = "echo/job-1/2/"


PUBLIC = "https://files.example.test"


@pytest.fixture
def own(config: ObjectStoreConfig) -> Grant:
    """To a bucket of the caller's own, with its credentials."""
    whom = (config.access_id, config.access_secret)
    return Grant(config.endpoint_url, PUBLIC, config.region, config.bucket, PREFIX, *whom)


@pytest.fixture
def grant(own: Grant) -> Grant:
    """To the platform's store: each request is signed."""
    return structs.replace(own, access_id="", access_secret="")


class Signs:
    """Whatever it is asked."""

    def __init__(self, config: ObjectStoreConfig) -> None:
        self.store = ObjectStore(dataclasses.replace(config, public_endpoint=PUBLIC))

    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        return tuple(sign(self.store, one) for one in wanted)


@pytest.fixture
def signs(config: ObjectStoreConfig) -> Iterator[Signs]:
    made = Signs(config)
    yield made
    made.store.close()


@pytest.fixture(params=["s3", "memory"])
async def objects(request: pytest.FixtureRequest, signs: Signs) -> AsyncIterator[Objects]:
    opened: S3Objects | FakeObjects = S3Objects(signs) if request.param == "s3" else FakeObjects()
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
        await objects.put_bytes(structs.replace(grant, prefix=""), "anything", b"x", "text/plain")


async def test_reading_outside_the_prefix_is_allowed(objects: Objects, grant: Grant) -> None:
    """A spilled input lies beside the attempts' prefixes."""
    wider = structs.replace(grant, prefix="echo/")
    ref = await objects.put_bytes(wider, "echo/job-1/input.json", b"{}", "application/json")
    assert await objects.get(grant, ref) == b"{}"


async def test_what_is_missing_or_altered_is_reported(objects: Objects, grant: Grant) -> None:
    with pytest.raises(ObjectMissing):
        await objects.get(grant, Ref(f"{PREFIX}never", 1, ""))
    ref = await objects.put_bytes(grant, f"{PREFIX}a", b"12345", "text/plain")
    with pytest.raises(ObjectDamaged):
        await objects.get(grant, structs.replace(ref, sha256="0" * 64))


async def test_urls_name_the_public_endpoint(objects: Objects, grant: Grant) -> None:
    urls = await objects.urls(grant, [f"{PREFIX}0-a.png", f"{PREFIX}1-b.png"])
    for url, name in zip(urls, ("0-a.png", "1-b.png"), strict=True):
        assert url.startswith(f"{PUBLIC}/{grant.bucket}/{PREFIX}{name}?")
        assert "X-Amz-Expires=604800" in url


async def test_urls_of_a_callers_bucket_name_what_the_caller_named(objects: Objects, own: Grant) -> None:
    (inner,) = await objects.urls(structs.replace(own, public_endpoint=""), [f"{PREFIX}0-a.png"])
    assert inner.startswith(f"{own.endpoint_url}/{own.bucket}/")


async def test_a_file_goes_to_a_callers_bucket_with_the_callers_credentials(
    own: Grant, store: ObjectStore
) -> None:
    objects, fd = S3Objects(Nobody()), memory(b"data")
    artifact = await objects.put_file(own, f"{PREFIX}0-a", fd, "text/plain", "a")
    os.close(fd)
    assert store.get_bytes(artifact.key, 4, artifact.sha256) == b"data"
    await objects.close()


class Nobody:
    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        raise AssertionError("nothing is to be signed for a caller's own bucket")


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
    own: Grant, store: ObjectStore, blocked: type[Blocked]
) -> None:
    objects = S3Objects(Nobody(), WaitRule(slots=1), blocked)
    fd = memory(b"x")
    running = asyncio.create_task(objects.put_file(own, f"{PREFIX}0-a", fd, "text/plain", "a"))
    waiting = asyncio.create_task(objects.put_file(own, f"{PREFIX}1-b", fd, "text/plain", "b"))
    await asyncio.to_thread(blocked.begun.wait)
    for task in (running, waiting):  # one is on the thread, one has not begun
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert running.cancelled()
    assert waiting.cancelled()
    assert len(objects._calls._waits._running) == 1, "the other one never began"
    os.close(fd)
    blocked.let_go.set()
    await objects.close()
    assert store.keys("") == []


async def test_closing_stops_what_is_uploading(
    own: Grant, store: ObjectStore, blocked: type[Blocked]
) -> None:
    objects = S3Objects(Nobody(), WaitRule(slots=1), blocked)
    fd = memory(b"x")
    running = asyncio.create_task(objects.put_file(own, f"{PREFIX}0-a", fd, "text/plain", "a"))
    await asyncio.to_thread(blocked.begun.wait)
    closing = asyncio.create_task(objects.close())
    await asyncio.sleep(0)  # one turn of the loop: it has stopped the upload
    blocked.let_go.set()
    await closing
    with pytest.raises(ObjectStoreRefused, match="was stopped"):
        await running
    os.close(fd)
    assert store.keys("") == []


async def test_one_client_serves_all_grants_to_the_same_store(own: Grant) -> None:
    opened: list[ObjectStoreConfig] = []

    def open_store(config: ObjectStoreConfig, found: Found) -> ObjectStore:
        opened.append(config)
        return ObjectStore(config)

    objects, fd = S3Objects(Nobody(), open_store=open_store), memory(b"x")
    for attempt in range(5):
        another = structs.replace(own, prefix=f"echo/job-{attempt}/1/")
        await objects.put_file(another, f"{another.prefix}a", fd, "text/plain", "a")
    assert len(opened) == 1
    for other in range(20):  # more than are kept: the first ones are closed, and opened again when needed
        await objects.urls(structs.replace(own, access_id=f"other-{other}"), ["a"])
    await objects.put_file(own, f"{PREFIX}a", fd, "text/plain", "a")
    os.close(fd)
    assert len(opened) == 22
    await objects.close()


async def test_a_wrong_secret_is_refused_and_a_missing_store_is_down(own: Grant) -> None:
    objects, fd = S3Objects(Nobody()), memory(b"x")
    wrong = structs.replace(own, access_secret="wrong")
    nowhere = structs.replace(own, endpoint_url="http://127.0.0.1:1")
    with pytest.raises(ObjectStoreRefused):
        await objects.put_file(wrong, f"{PREFIX}a", fd, "text/plain", "a")
    with pytest.raises(ObjectStoreDown):
        await objects.put_file(nowhere, f"{PREFIX}a", fd, "text/plain", "a")
    os.close(fd)
    await objects.close()


def test_a_grants_secret_is_in_no_repr(own: Grant) -> None:
    assert own.access_secret not in repr(own) + repr(config_of(own))
