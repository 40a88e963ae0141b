"""The platform's store as an agent has it, against a real rclone: each request is signed by control's rules.

`Control` is what answers an agent's asks: the real judge and the real signer, without a session between.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from itertools import product
from urllib.parse import urlsplit

import httpx2
import pytest
from msgspec import structs

from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.control.jobs.artifacts import S3Artifacts
from stoker.control.rules.signing_rights import refusal
from stoker.control.rules.types import UploadRight
from stoker.outbound.errors import (
    FileChanged,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreFull,
    ObjectStoreRefused,
)
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.presigned import ByteRange, SignedRequest, SignedRequests
from stoker.wire.messages import Grant, Ref, SignAsk, Signed, Wanted

PREFIX = "echo/job-1/2/"
INPUT = "echo/job-1/input.json"


class Control:
    def __init__(self, config: ObjectStoreConfig) -> None:
        self.artifacts = S3Artifacts(config)
        self.right: UploadRight | None = UploadRight("echo", INPUT)
        self.signed: list[Signed] = []
        self.requested: list[Wanted] = []

    async def sign(self, grant: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        self.requested += wanted
        if why := refusal(SignAsk(1, grant.job, grant.attempt, tuple(wanted)), self.right):
            raise ObjectStoreRefused(why)
        issued = await self.artifacts.sign(wanted)
        self.signed += issued
        return issued


def tried_elsewhere(control: Control, config: ObjectStoreConfig, theirs: Sequence[str]) -> int:
    """Each request that was signed, sent with other methods, to other places and with other questions."""
    tried, bucket = 0, f"/{config.bucket}"
    owns = {"put": "PUT", "part": "PUT", "start": "POST", "finish": "POST", "read": "GET", "link": "GET"}
    names = (*theirs, f"{PREFIX}../1/0-a.png", f"{PREFIX}%2e%2e/1/0-a.png", INPUT)
    with httpx2.Client(trust_env=False, timeout=60) as client:
        for wanted, signed in zip(control.requested, control.signed, strict=True):
            assert config.access_secret not in signed.url + str(signed.headers)
            url, own = urlsplit(signed.url), owns[wanted.verb]
            paths = {url.path, f"{bucket}/", "/", *(f"{bucket}/{name}" for name in names)}
            queries = {
                url.query,
                *(f"{also}&{url.query}" for also in ("list-type=2", "prefix=echo", "delete")),
            }
            for method, path, query in product(("GET", "HEAD", "PUT", "POST", "DELETE"), paths, queries):
                if (path, query) == (url.path, url.query) and method in {own, own.replace("GET", "HEAD")}:
                    continue  # what it was signed for
                there = url._replace(path=path, query=query).geturl()
                body = b"mine" if method in ("PUT", "POST") else b""
                status = sent(client, method, there, signed.headers, body)
                assert status >= 400, (method, there, status)
                tried += 1
    return tried


def sent(client: httpx2.Client, method: str, url: str, headers: Mapping[str, str], body: bytes) -> int:
    return client.request(method, url, headers=dict(headers), content=body).status_code


@pytest.fixture
async def control(config: ObjectStoreConfig) -> AsyncIterator[Control]:
    made = Control(config)
    yield made
    await made.artifacts.close()


@pytest.fixture
async def objects(control: Control) -> AsyncIterator[S3Objects]:
    opened = S3Objects(control, part=5 << 20)
    yield opened
    await opened.close()


@pytest.fixture
def grant(control: Control) -> Grant:
    """As it travels in an Assign."""
    issued = structs.replace(control.artifacts.grant, prefix=PREFIX)
    return structs.replace(issued, account="default", job="job-1", attempt=2)


def memory(data: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


# ---- what an agent gets -------------------------------------------------------------------------


def test_a_grant_holds_no_credentials(grant: Grant, config: ObjectStoreConfig) -> None:
    held = str(structs.asdict(grant))
    assert config.access_secret not in held
    assert config.access_id not in held
    assert (grant.access_id, grant.access_secret) == ("", "")


async def test_signed_requests_write_below_their_prefix_and_do_nothing_else(
    objects: S3Objects, control: Control, grant: Grant, store: ObjectStore, config: ObjectStoreConfig
) -> None:
    """Everything that it received is tried on everything else: methods, keys, listings, other sizes."""
    theirs = ["echo/job-1/1/0-a.png", "echo/job-2/1/output.json", "other/job-9/1/0-a.png"]
    for key in theirs:
        store.put_bytes(key, b"theirs", "text/plain")
    store.put_bytes(INPUT, b"{}", "application/json")
    large = memory(os.urandom((5 << 20) + 3))
    await objects.put_file(grant, f"{PREFIX}0-a.png", large, "image/png", "a.png")
    os.close(large)
    await objects.put_bytes(grant, f"{PREFIX}output.json", b"[1]", "application/json")
    await objects.get(grant, Ref(INPUT, 2, hashlib.sha256(b"{}").hexdigest()))
    await objects.urls(grant, [f"{PREFIX}0-a.png"])
    kinds = {one.verb for one in control.requested}
    assert kinds == {"put", "start", "part", "finish", "read", "link"}
    before = {key: store.get_bytes(key, 1 << 30) for key in store.keys("")}
    assert set(before) == {*theirs, INPUT, f"{PREFIX}0-a.png", f"{PREFIX}output.json"}

    tried = await asyncio.to_thread(tried_elsewhere, control, config, theirs)
    assert tried > 500
    assert {key: store.get_bytes(key, 1 << 30) for key in store.keys("")} == before


async def test_an_object_of_another_size_or_type_is_refused(
    control: Control, grant: Grant, store: ObjectStore
) -> None:
    wanted = Wanted("put", f"{PREFIX}0-a.png", 4, "image/png", "a.png", "0" * 64)
    (signed,) = await control.sign(grant, [wanted])
    with httpx2.Client(trust_env=False, timeout=60) as client:
        for body, headers in (
            (b"longer", signed.headers),
            (b"", signed.headers),
            (b"four", {**signed.headers, "Content-Type": "text/html"}),
        ):
            assert sent(client, "PUT", signed.url, headers, body) == 403
        assert store.keys("") == []
        assert sent(client, "PUT", signed.url, signed.headers, b"four") == 200


def test_a_right_ends(config: ObjectStoreConfig, store: ObjectStore) -> None:
    """The store's clock decides."""
    url = store.presign("put_object", f"{PREFIX}a", 1, ContentLength=1)
    with httpx2.Client(trust_env=False, timeout=60) as client:
        while sent(client, "PUT", url, {}, b"1") == 200:
            pass
        assert sent(client, "PUT", url, {}, b"1") in (400, 403)


@pytest.mark.parametrize(
    "key",
    [
        *("echo/job-1/1/0-a", "echo/job-1/20/0-a", "0-a", "", PREFIX, f"/{PREFIX}a", INPUT),
        *(f"{PREFIX}{name}" for name in ("../1/a", "a/b", "..", ".", "a%2fb", "a\\b", "a\n", "a" * 201)),
    ],
)
@pytest.mark.parametrize("verb", ["put", "start", "part", "finish", "drop", "link"])
def test_control_signs_no_key_that_is_not_one_name_below_the_prefix(verb: str, key: str) -> None:
    wanted = Wanted(verb, key, 1, sha256="0" * 64, upload="u", part=1)
    output = refusal(SignAsk(1, "job-1", 2, (wanted,)), UploadRight("echo", INPUT))
    assert output == f"key {key!r} is not a name below {PREFIX}"
    good = structs.replace(wanted, key=f"{PREFIX}0-a.png")
    assert refusal(SignAsk(1, "job-1", 2, (good,)), UploadRight("echo", INPUT)) is None
    assert refusal(SignAsk(1, "job-1", 2, (good, wanted)), UploadRight("echo", INPUT)) == output


@pytest.mark.parametrize("key", ["echo/job-2/input.json", f"{PREFIX}0-a.png", "", "echo/"])
def test_control_signs_reading_of_the_jobs_own_input_only(key: str) -> None:
    ask = SignAsk(1, "job-1", 2, (Wanted("read", key),))
    for right in (UploadRight("echo", INPUT), UploadRight("echo", None)):
        assert (
            refusal(ask, right)
            == f"{key!r} is not the input of this job, nor its save, nor a chunk that this covers"
        )


@pytest.mark.parametrize(
    ("wanted", "output"),
    [
        (Wanted("list", f"{PREFIX}a"), "verb 'list' is not known"),
        (Wanted("put", f"{PREFIX}a", (5 << 30) + 1, sha256="0" * 64), "size must be 0 to 5368709120 bytes"),
        (Wanted("put", f"{PREFIX}a", 1, sha256="0"), "sha256 must be 64 hexadecimal digits"),
        (
            Wanted("put", f"{PREFIX}a", 1, "a\r\nb: c", sha256="0" * 64),
            "media_type must be up to 200 characters",
        ),
        (Wanted("put", f"{PREFIX}a", 1, name="n" * 1025, sha256="0" * 64), "name must have at most 1024"),
        (Wanted("part", f"{PREFIX}a", 1, upload="", part=1), "upload must be the id of one"),
        (Wanted("part", f"{PREFIX}a", 1, upload="u", part=0), "part must be 1 to 10000"),
        (Wanted("part", f"{PREFIX}a", 1, upload="u", part=10_001), "part must be 1 to 10000"),
    ],
)
def test_control_signs_nothing_out_of_bounds(wanted: Wanted, output: str) -> None:
    why = refusal(SignAsk(1, "job-1", 2, (wanted,)), UploadRight("echo", None))
    assert why is not None
    assert why.startswith(output)


def test_control_signs_so_many_requests_at_once_and_at_least_one() -> None:
    one = Wanted("link", f"{PREFIX}a")
    for wanted in ((), (one,) * 101):
        output = refusal(SignAsk(1, "job-1", 2, wanted), UploadRight("echo", None))
        assert output == f"from 1 to 100 requests are signed at once, not {len(wanted)}"


# ---- what an agent does with it -----------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, 11 << 20])
async def test_a_file_is_stored_whole(
    objects: S3Objects, grant: Grant, store: ObjectStore, control: Control, size: int
) -> None:
    data = os.urandom(size)
    fd, key = memory(data), f"{PREFIX}0-ä.png".replace("ä", "a")
    artifact = await objects.put_file(grant, key, fd, "image/png", "ä.png")
    os.close(fd)
    assert (artifact.size, artifact.media_type) == (size, "image/png")
    assert artifact.sha256 == hashlib.sha256(data).hexdigest()
    assert store.get_bytes(key, 1 << 30, artifact.sha256) == data
    (url,) = await objects.urls(grant, [key])
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        answer = await client.get(url)
    assert answer.content == data
    assert answer.headers["content-type"] == "image/png"
    assert "X-Amz-Expires=604800" in url
    parts = [one.part for one in control.requested if one.verb == "part"]
    assert parts == (list(range(1, -(-size // (5 << 20)) + 1)) if size > 5 << 20 else [])


async def test_a_file_that_changes_while_it_is_sent_is_not_kept(
    objects: S3Objects, control: Control, grant: Grant, store: ObjectStore
) -> None:
    fd = memory(os.urandom(6 << 20))
    sign = control.sign

    async def altered(one: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        os.pwrite(fd, b"xx", 1000)  # after it was measured
        return await sign(one, wanted)

    control.sign = altered  # type: ignore[method-assign]
    with pytest.raises(FileChanged):
        await objects.put_file(grant, f"{PREFIX}0-a", fd, "text/plain", "a")
    assert [one.verb for one in control.requested][-1] == "drop"
    os.ftruncate(fd, 100)

    async def cut(one: Grant, wanted: Sequence[Wanted]) -> tuple[Signed, ...]:
        os.ftruncate(fd, 50)
        return await sign(one, wanted)

    control.sign = cut  # type: ignore[method-assign]
    with pytest.raises(FileChanged):
        await objects.put_file(grant, f"{PREFIX}1-a", fd, "text/plain", "a")
    os.close(fd)
    assert store.keys("") == []


async def test_what_is_missing_altered_or_too_large_is_reported(
    objects: S3Objects, grant: Grant, store: ObjectStore
) -> None:
    digest = hashlib.sha256(b"[1]").hexdigest()
    with pytest.raises(ObjectMissing):
        await objects.get(grant, Ref(INPUT, 3, digest))
    store.put_bytes(INPUT, b"[2]", "application/json")
    with pytest.raises(ObjectDamaged):
        await objects.get(grant, Ref(INPUT, 3, digest))


async def test_an_attempt_that_is_held_no_more_gets_nothing(
    objects: S3Objects, control: Control, grant: Grant, store: ObjectStore
) -> None:
    control.right = None
    with pytest.raises(ObjectStoreRefused, match="does not hold attempt 2 of job job-1"):
        await objects.put_bytes(grant, f"{PREFIX}output.json", b"1", "application/json")
    assert store.keys("") == []


async def test_a_full_disk_is_reported_before_anything_is_sent(
    config: ObjectStoreConfig, grant: Grant, store: ObjectStore
) -> None:
    control = Control(dataclasses.replace(config, reserve_bytes=1 << 60))
    objects = S3Objects(control)
    with pytest.raises(Exception, match="disk") as caught:
        await objects.put_bytes(grant, f"{PREFIX}output.json", b"1", "application/json")
    assert caught.type.__name__ in ("Unavailable", ObjectStoreFull.__name__)
    await objects.close()
    await control.artifacts.close()


async def test_a_store_that_is_away_is_down_and_one_that_refuses_is_refused(
    grant: Grant, store: ObjectStore, config: ObjectStoreConfig
) -> None:
    requests = SignedRequests()
    try:
        with pytest.raises(ObjectStoreDown, match="cannot be reached"):
            requests.put(SignedRequest("http://127.0.0.1:1/b/k?sig"), b"", "writing k")
        wrong = SignedRequest(f"{config.endpoint_url}/{config.bucket}/k?X-Amz-Signature=1")
        with pytest.raises(ObjectStoreRefused, match="writing k"):
            requests.put(wrong, b"", "writing k")
    finally:
        requests.close()


def test_what_a_request_is_worth_is_in_no_repr() -> None:
    assert "secret" not in repr(Signed("http://s3/?secret")) + repr(SignedRequest("http://s3/?secret"))
    assert ByteRange(3, 0, 1) == ByteRange(3, 0, 1)


async def test_cancelled_and_closed_uploads_stop(objects: S3Objects, control: Control, grant: Grant) -> None:
    """One that waits for control to sign is left at once, and its duplicate is closed."""
    requested = asyncio.Event()

    async def never(_: Grant, __: Sequence[Wanted]) -> tuple[Signed, ...]:
        requested.set()
        return await asyncio.Event().wait()  # type: ignore[return-value]

    control.sign = never  # type: ignore[method-assign]
    fd = memory(b"x")
    running = asyncio.create_task(objects.put_file(grant, f"{PREFIX}0-a", fd, "text/plain", "a"))
    await requested.wait()
    os.close(fd)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
