"""The object store's client against a real server, and its sentences against a scripted one."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import botocore.auth
import httpx2
import pytest

from stoker.outbound.errors import (
    FileChanged,
    ObjectDamaged,
    ObjectMissing,
    ObjectStoreDown,
    ObjectStoreError,
    ObjectStoreFull,
    ObjectStoreRefused,
    TooLarge,
)
from stoker.outbound.s3.buckets import ObjectStoreConfig, refuse_short_credentials
from stoker.outbound.s3.disk import refuse_if_full
from stoker.outbound.s3.file_body import UploadStopped
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.regions import region_of

PART = 5 << 20
KEY = "echo/job-1/1/0-clip.mp4"


def memory(data: bytes) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.write(fd, data)
    return fd


def download(url: str, **headers: str) -> httpx2.Response:
    with httpx2.Client(trust_env=False, timeout=60) as client:
        return client.get(url, headers=headers)


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 2 * PART + 77])
def test_a_file_comes_back_as_it_was(store: ObjectStore, size: int) -> None:
    """Below, at and above the size of one part, in up to three parts."""
    data = os.urandom(size)
    fd = memory(data)
    stored = store.put_file(KEY, fd, "video/mp4", "clip.mp4")
    assert (stored.key, stored.size, stored.media_type) == (KEY, size, "video/mp4")
    assert stored.sha256 == hashlib.sha256(data).hexdigest()
    assert store.get_bytes(KEY, size, stored.sha256) == data
    os.close(fd)


def test_the_offset_of_the_descriptor_is_left_alone(store: ObjectStore) -> None:
    """Whoever sent us the descriptor shares its offset: it neither matters to us nor is moved by us."""
    fd = memory(b"x" * 100_000)
    os.lseek(fd, 777, os.SEEK_SET)
    assert store.put_file(KEY, fd, "text/plain").size == 100_000
    assert os.lseek(fd, 0, os.SEEK_CUR) == 777
    os.close(fd)


def test_a_path_works_too(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"words")
    store.put_file(KEY, tmp_path / "a.txt", "text/plain")
    assert store.get_bytes(KEY, 5) == b"words"


@pytest.mark.parametrize("size", [100, PART + 1])
def test_a_download_has_type_name_and_digest(store: ObjectStore, size: int) -> None:
    fd = memory(b"p" * size)
    stored = store.put_file(KEY, fd, "image/png", 'a "ü"\r\n.png')
    os.close(fd)
    got = download(store.presign_get(KEY))
    assert got.status_code == 200
    assert got.content == b"p" * size
    assert got.headers["content-type"] == "image/png"
    assert got.headers["content-disposition"] == "inline; filename*=UTF-8''a%20%22%C3%BC%22%0D%0A.png"
    reported = {name.lower(): value for name, value in got.headers.items()}
    assert reported["x-amz-meta-sha256"] == stored.sha256


def test_a_part_of_an_object_can_be_requested(store: ObjectStore) -> None:
    """Players seek. (The embedded server answers 200 with the range, others 206.)"""
    store.put_bytes(KEY, bytes(range(256)), "video/mp4")
    got = download(store.presign_get(KEY), Range="bytes=10-19")
    assert got.content == bytes(range(10, 20))
    assert got.headers["content-range"] == "bytes 10-19/256"


def test_a_url_is_valid_for_seven_days_and_not_longer(store: ObjectStore) -> None:
    assert "X-Amz-Expires=604800&" in store.presign_get(KEY)
    for seconds in (0, -1, 604_801):
        with pytest.raises(ValueError, match="1 s to 7 days"):
            store.presign_get(KEY, seconds)


def test_an_expired_url_is_refused(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signed two hours ago for one hour: the server, not we, must notice."""
    store.put_bytes(KEY, b"secret picture", "image/png")
    past = time.gmtime(time.time() - 7200)
    then = botocore.auth.get_current_datetime().replace(
        year=past.tm_year, month=past.tm_mon, day=past.tm_mday, hour=past.tm_hour, minute=past.tm_min
    )
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: then)
    expired = store.presign_get(KEY, 3600)
    still_good = store.presign_get(KEY, 3 * 3600)
    monkeypatch.undo()
    refused = download(expired)
    assert refused.status_code in (400, 403)
    assert b"secret picture" not in refused.content
    assert download(still_good).content == b"secret picture"


def test_a_changed_url_is_refused(store: ObjectStore) -> None:
    store.put_bytes(KEY, b"a", "image/png")
    store.put_bytes("echo/job-2/1/0-clip.mp4", b"b", "image/png")
    assert download(store.presign_get(KEY).replace("job-1", "job-2")).status_code == 403


def test_the_public_endpoint_is_what_is_signed(config: ObjectStoreConfig) -> None:
    public = dataclasses.replace(config, public_endpoint="https://files.example.test")
    with ObjectStore(public) as store:
        store.put_bytes(KEY, b"a", "image/png")
        assert store.presign_get(KEY).startswith(f"https://files.example.test/{config.bucket}/{KEY}?")
    with ObjectStore(dataclasses.replace(config, public_endpoint="")) as store:
        assert store.presign_get(KEY).startswith(f"{config.endpoint_url}/{config.bucket}/{KEY}?")


def test_deleting_a_prefix_takes_nothing_else_with_it(store: ObjectStore) -> None:
    for key in ("e/j/1/0-a", "e/j/1/deep/b", "e/j/10/0-a", "e/j/2/0-a"):
        store.put_bytes(key, b"x", "text/plain")
    assert store.delete_prefix("e/j/1/") == 2
    assert sorted(store.keys("e/j/")) == ["e/j/10/0-a", "e/j/2/0-a"]
    assert store.delete_prefix("e/j/1/") == 0
    for dangerous in ("", "/", "e/j/1"):
        with pytest.raises(ValueError, match="must end in /"):
            store.delete_prefix(dangerous)


async def test_more_keys_than_one_page_are_listed(http: Any, config: ObjectStoreConfig) -> None:
    query = f"/{config.bucket}?list-type=2&prefix=e%2F&"
    first = "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>"
    http.answers[f"{query}encoding-type=url"] = page("e/a", "e/b", more=first)
    http.answers[f"{query}continuation-token=next&encoding-type=url"] = page("e/c")
    with ObjectStore(nowhere(config, http.port)) as store:
        assert await asyncio.to_thread(store.keys, "e/") == ["e/a", "e/b", "e/c"]


def test_deleting_what_is_not_there_is_fine(store: ObjectStore) -> None:
    store.put_bytes(KEY, b"x", "text/plain")
    assert store.delete_keys([KEY, "e/never"]) == 2
    assert store.keys("") == []


def test_reading_is_bounded_and_checked(store: ObjectStore) -> None:
    store.put_bytes(KEY, b"12345", "text/plain")
    with pytest.raises(TooLarge, match="more than the 4 bytes"):
        store.get_bytes(KEY, 4)
    with pytest.raises(ObjectDamaged):
        store.get_bytes(KEY, 5, "0" * 64)
    with pytest.raises(ObjectMissing):
        store.get_bytes("e/never", 5)


@pytest.mark.parametrize("size", [500_000, 2 * PART])
def test_a_file_that_changes_during_its_upload_is_not_kept(store: ObjectStore, size: int) -> None:
    fd = memory(b"a" * size)
    checks = 0

    def change_after_it_was_measured() -> bool:
        nonlocal checks
        checks += 1
        if checks == 2 + -(-size // (1 << 20)):  # it has been hashed to its end, and is about to be sent
            os.pwrite(fd, b"b", size - 1)
        return False

    with pytest.raises(FileChanged):
        store.put_file(KEY, fd, "text/plain", "a.txt", change_after_it_was_measured)
    os.close(fd)
    assert store.keys("") == []


def test_an_upload_can_be_stopped(store: ObjectStore, config: ObjectStoreConfig) -> None:
    fd = memory(b"a" * (3 * PART))
    checks: list[None] = []

    def at_the_third_part() -> bool:
        checks.append(None)
        return len(checks) > 16 + 11  # pieces of 1 MiB: fifteen and the end are hashed, then eleven are sent

    with pytest.raises(UploadStopped):
        store.put_file(KEY, fd, "text/plain", "a.txt", at_the_third_part)
    os.close(fd)
    assert store.keys("") == []
    # The server forgot the parts, too: the upload was aborted, not abandoned.
    assert [file for file in Path(config.folder, config.bucket).rglob("*") if file.is_file()] == []


def test_the_bucket_is_made_once(config: ObjectStoreConfig) -> None:
    fresh = dataclasses.replace(config, bucket=f"{config.bucket}-b")
    with ObjectStore(fresh) as store:
        with pytest.raises(ObjectStoreRefused, match=f"there is no bucket '{fresh.bucket}'"):
            store.put_bytes(KEY, b"x", "text/plain")
        store.ensure_bucket()
        store.ensure_bucket()
        store.check()
        assert store.keys("") == []


def test_a_wrong_secret_is_refused_with_advice(config: ObjectStoreConfig) -> None:
    wrong = dataclasses.replace(config, access_secret="wrong-secret-wrong")
    with ObjectStore(wrong) as store:
        calls: list[Callable[[], object]] = [
            lambda: store.put_bytes(KEY, b"x", "text/plain"),
            lambda: store.get_bytes(KEY, 1),
            store.ensure_bucket,
            store.check,
            lambda: store.delete_keys([KEY]),
            lambda: store.delete_prefix("e/"),
        ]
        for call in calls:
            with pytest.raises(ObjectStoreRefused, match="check access id, secret"):
                call()


def test_the_secret_is_in_no_log_line_and_no_repr(
    config: ObjectStoreConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "botocore")  # the command line, tested before, may have set it higher
    with ObjectStore(config) as store:
        store.put_bytes(KEY, b"x", "text/plain")
        store.presign_get(KEY)
        with pytest.raises(ObjectMissing) as missing:
            store.get_bytes("e/never", 1)
    assert caplog.records, "botocore logs at this level: otherwise this proves nothing"
    reported = caplog.text + repr(config) + str(config) + repr(store) + repr(missing.value)
    assert config.access_secret not in reported


def test_nothing_of_the_surroundings_is_used(
    config: ObjectStoreConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/config").write_text("[default]\nregion = mars-1\nendpoint_url = http://127.0.0.1:1\n")
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id=x\naws_secret_access_key=y\n")
    surroundings = {
        "HOME": str(tmp_path),
        "AWS_PROFILE": "missing",
        "AWS_ACCESS_KEY_ID": "leaked",
        "AWS_SECRET_ACCESS_KEY": "leaked",
        "AWS_SESSION_TOKEN": "leaked",
        "AWS_DEFAULT_REGION": "mars-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1",
        "AWS_CA_BUNDLE": "/nowhere",
        "AWS_CONFIG_FILE": str(tmp_path / ".aws/config"),
        "HTTP_PROXY": "http://127.0.0.1:1",
        "http_proxy": "http://127.0.0.1:1",
        "ALL_PROXY": "http://127.0.0.1:1",
    }
    for name, value in surroundings.items():
        monkeypatch.setenv(name, value)
    with ObjectStore(config) as store:
        store.check()
        assert f"{config.access_id}%2F" in store.presign_get(KEY)
        assert "us-east-1" in store.presign_get(KEY)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"session_token": "t" * 20}, "temporary"),
        ({"access_id": "ASIAIOSFODNN7EXAMPLE"}, "temporary"),
        ({"access_id": ""}, "needs an access id"),
        ({"access_secret": ""}, "needs an access id"),
    ],
)
def test_credentials_that_end_early_are_refused(
    config: ObjectStoreConfig, changes: dict[str, str], reason: str
) -> None:
    with pytest.raises(ObjectStoreRefused, match=reason) as caught:
        refuse_short_credentials(dataclasses.replace(config, **changes))
    assert config.access_secret not in str(caught.value)
    refuse_short_credentials(config)


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("https://s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://s3.dualstack.us-west-2.amazonaws.com/", "us-west-2"),
        ("https://s3.amazonaws.com", "us-east-1"),
        ("https://nyc3.digitaloceanspaces.com", "nyc3"),
        ("http://127.0.0.1:9000", "us-east-1"),
        ("https://minio.example.test", "us-east-1"),
    ],
)
def test_the_region_is_read_from_the_endpoint(endpoint: str, region: str) -> None:
    assert region_of(endpoint) == region


def nowhere(config: ObjectStoreConfig, port: int) -> ObjectStoreConfig:
    endpoint = f"http://127.0.0.1:{port}"
    return dataclasses.replace(config, endpoint_url=endpoint, public_endpoint=endpoint, folder="")


def test_a_store_that_is_not_there_is_down(config: ObjectStoreConfig) -> None:
    with ObjectStore(nowhere(config, 1)) as store:
        with pytest.raises(ObjectStoreDown, match=r"writing e/k at http://127\.0\.0\.1:1 failed") as caught:
            store.put_bytes("e/k", b"x", "text/plain")
        assert caught.value.retryable
        fd = memory(b"x" * 200_000)
        with pytest.raises(ObjectStoreDown):
            store.put_file("e/k", fd, "text/plain")
        os.close(fd)


@pytest.mark.parametrize("endpoint", ["not a url", "ftp:/x", "http://", ""])
def test_an_endpoint_that_is_none_is_refused(config: ObjectStoreConfig, endpoint: str) -> None:
    with (
        ObjectStore(dataclasses.replace(config, endpoint_url=endpoint)) as store,
        pytest.raises(ObjectStoreError),
    ):
        store.put_bytes("e/k", b"x", "text/plain")


@pytest.mark.parametrize("bucket", ["", "no/slash", "ü", ".."])
def test_a_bucket_name_that_is_none_is_refused(config: ObjectStoreConfig, bucket: str) -> None:
    with (
        ObjectStore(dataclasses.replace(config, bucket=bucket)) as store,
        pytest.raises((ObjectStoreRefused, ObjectMissing)),
    ):
        store.put_bytes("e/k", b"x", "text/plain")


def failing(status: int, code: str, message: str = "") -> bytes:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


def page(*keys: str, more: str = "") -> bytes:
    entries = "".join(f"<Contents><Key>{key}</Key></Contents>" for key in keys)
    body = f"<?xml version='1.0'?><ListBucketResult>{more}{entries}</ListBucketResult>"
    head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failing(507, "InsufficientStorage"), ObjectStoreFull),
        (failing(507, "Whatever"), ObjectStoreFull),
        (failing(507, "XMinioStorageFull", "Storage backend has reached its minimum"), ObjectStoreFull),
        (failing(500, "InternalError", "write /data: No space left on device"), ObjectStoreFull),
        (failing(403, "QuotaExceeded", "bucket quota exceeded"), ObjectStoreFull),
        # No room will ever help an object that is over the limit.
        (failing(400, "EntityTooLarge", "Your proposed upload exceeds"), ObjectStoreRefused),
        (failing(500, "InternalError", "oops"), ObjectStoreDown),
        (failing(503, "SlowDown", "Please reduce your request rate"), ObjectStoreDown),
        (failing(429, "TooManyRequests"), ObjectStoreDown),
        (failing(400, "RequestTimeout"), ObjectStoreDown),
        (failing(404, "NoSuchUpload"), ObjectStoreDown),
        (failing(401, "Unauthorized"), ObjectStoreRefused),
        (failing(403, "InvalidAccessKeyId"), ObjectStoreRefused),
        (failing(403, "RequestTimeTooSkewed", "15 minutes"), ObjectStoreRefused),
        (failing(404, "NoSuchBucket"), ObjectStoreRefused),
        (failing(400, "InvalidBucketName"), ObjectStoreRefused),
        (failing(501, "NotImplemented"), ObjectStoreDown),
        (failing(404, "NoSuchKey"), ObjectMissing),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", ObjectStoreDown),
        (b"", ObjectStoreDown),
        (b"nonsense\r\n\r\n", ObjectStoreDown),
    ],
)
async def test_each_answer_has_its_error(
    http: Any, config: ObjectStoreConfig, answer: bytes, error: type[ObjectStoreError]
) -> None:
    http.answers[f"/{config.bucket}/e/k"] = answer
    with ObjectStore(nowhere(config, http.port)) as store:
        with pytest.raises(error) as caught:
            await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
        assert type(caught.value) is error
        assert "writing e/k" in str(caught.value)
        assert config.access_secret not in str(caught.value)


async def test_a_store_that_never_answers_is_down(http: Any, config: ObjectStoreConfig) -> None:
    http.answers[f"/{config.bucket}/e/k"] = None
    impatient = dataclasses.replace(nowhere(config, http.port), read_timeout_s=0.1)
    with ObjectStore(impatient) as store, pytest.raises(ObjectStoreDown):
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
    await http.idle()


async def test_a_failing_server_gets_as_many_requests_as_configured(
    http: Any, config: ObjectStoreConfig
) -> None:
    http.answers[f"/{config.bucket}/e/k"] = failing(500, "InternalError")
    with ObjectStore(nowhere(config, http.port)) as store, pytest.raises(ObjectStoreDown):
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
    assert len(http.received) == 1


async def test_creating_a_bucket_sends_its_region(http: Any, config: ObjectStoreConfig) -> None:
    http.answers[f"/{config.bucket}"] = failing(404, "NoSuchBucket")
    placed = dataclasses.replace(nowhere(config, http.port), region="eu-central-1")
    with ObjectStore(placed) as store, pytest.raises(ObjectStoreRefused):
        await asyncio.to_thread(store.ensure_bucket)
    assert b"<LocationConstraint>eu-central-1<" in http.received[1]


def test_a_full_disk_is_reported_before_anything_is_written(config: ObjectStoreConfig) -> None:
    """The reserve is set above what this disk has: the same as a disk below its reserve."""
    full = dataclasses.replace(config, reserve_bytes=shutil.disk_usage(config.folder).free + (1 << 40))
    with ObjectStore(full) as store:
        with pytest.raises(ObjectStoreFull, match=r"is full: \d+ MiB are free"):
            store.put_bytes(KEY, b"x", "text/plain")
        fd = memory(b"x")
        with pytest.raises(ObjectStoreFull):
            store.put_file(KEY, fd, "text/plain")
        os.close(fd)
        assert store.keys("") == []


def test_room_is_counted_with_what_is_to_be_written(tmp_path: Path) -> None:
    refuse_if_full(tmp_path, 0, 0)
    with pytest.raises(ObjectStoreFull, match=re.escape(str(tmp_path))):
        refuse_if_full(tmp_path, shutil.disk_usage(tmp_path).free + (1 << 40), 0)


def test_a_bucket_that_a_caller_names_may_not_be_inside(config: ObjectStoreConfig) -> None:
    """The connection itself is judged, so a name that resolves to loopback is refused as well."""
    for host in ("127.0.0.1", "localhost"):
        inside = config.endpoint_url.replace("127.0.0.1", host)
        guarded = dataclasses.replace(config, endpoint_url=inside, allow_private=False)
        with ObjectStore(guarded) as store:
            with pytest.raises(
                ObjectStoreRefused, match=r"is refused: its host is the loopback address 127\.0\.0\.1"
            ):
                store.put_bytes("e/k", b"x", "text/plain")
            fd = memory(b"x" * (PART + 1))
            with pytest.raises(ObjectStoreRefused):
                store.put_file("e/k", fd, "text/plain")
            os.close(fd)
    with ObjectStore(config) as store:
        assert store.keys("") == []


async def test_nothing_is_sent_to_a_refused_peer(http: Any, config: ObjectStoreConfig) -> None:
    guarded = dataclasses.replace(nowhere(config, http.port), allow_private=False)
    with ObjectStore(guarded) as store, pytest.raises(ObjectStoreRefused):
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
    await http.idle()
    assert http.received == []


def test_importing_the_client_needs_no_surroundings() -> None:
    """A process with an empty environment can import and configure it, and touches no network."""
    code = (
        "from stoker.outbound.s3.buckets import ObjectStoreConfig\n"
        "from stoker.outbound.s3.objects import ObjectStore\n"
        "c = ObjectStoreConfig('http://127.0.0.1:1', '', 'us-east-1', 'bucket', 'id', 'secret')\n"
        "s = ObjectStore(c); s.warm(); print(s.presign_get('a/b')); s.close()"
    )
    source = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={"PYTHONPATH": str(source)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("http://127.0.0.1:1/bucket/a/b?X-Amz-Algorithm=AWS4-HMAC-SHA256&")
