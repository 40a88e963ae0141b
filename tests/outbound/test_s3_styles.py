"""Where a bucket is looked for: the plan, and servers that answer one style only."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from stoker.agent.jobs.uploads.objects import S3Objects
from stoker.agent.jobs.uploads.signing_requests import SigningRequests
from stoker.outbound.errors import ObjectStoreRefused
from stoker.outbound.s3 import local_server
from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.s3.objects import ObjectStore
from stoker.outbound.s3.styles import Found, Style, public_style, styles
from stoker.wire.messages import Grant

BUCKET = "callers"


@pytest.mark.parametrize(
    ("endpoint", "bucket", "tried"),
    [
        ("https://s3.example", "b-1", ["https://s3.example path", "https://s3.example virtual"]),
        (
            "https://B-1.s3.example:9",
            "b-1",
            ["https://s3.example:9 virtual", "https://B-1.s3.example:9 path"],
        ),
        ("http://s3.example/b-1/", "b-1", ["http://s3.example path", "http://s3.example/b-1/ path"]),
        ("http://s3.example/x/b-1", "b-1", ["http://s3.example/x path", "http://s3.example/x/b-1 path"]),
        ("http://my.b.s3.example", "my.b", ["http://s3.example path", "http://my.b.s3.example path"]),
        ("http://b-1.minio:9", "b-1", ["http://minio:9 virtual", "http://b-1.minio:9 path"]),
        ("http://127.0.0.1:9", "b-1", ["http://127.0.0.1:9 path"]),
        ("http://127.0.0.1:9", "127", ["http://127.0.0.1:9 path"]),
        ("http://[::1]:9", "b-1", ["http://[::1]:9 path"]),
        ("http://minio:9", "b-1", ["http://minio:9 path"]),
        ("https://s3.example", "my.b", ["https://s3.example path"]),
        ("http://[", "b-1", ["http://[ path"]),
    ],
)
def test_what_is_tried_where(endpoint: str, bucket: str, tried: list[str]) -> None:
    found = styles(endpoint, bucket)
    assert [f"{style.endpoint} {'virtual' if style.virtual else 'path'}" for style in found] == tried


@given(st.text(alphabet="ab.-/:[]@ü", max_size=20), st.text(alphabet="ab.-", max_size=6))
def test_there_is_always_something_to_try_and_never_one_thing_twice(host: str, bucket: str) -> None:
    found = styles(f"https://{host}", bucket)
    assert found
    assert len(set(found)) == len(found)


def test_callers_reach_it_in_the_same_style() -> None:
    path, virtual = Style("http://inside:9"), Style("http://s3.inside", virtual=True)
    assert public_style(path, "https://pub.example", "b") == Style("https://pub.example")
    assert public_style(virtual, "https://pub.example", "b-1") == Style("https://pub.example", virtual=True)
    assert public_style(path, "https://b-1.pub.example", "b-1") == Style("https://pub.example", virtual=True)
    assert public_style(virtual, "http://127.0.0.1:9", "b-1") == Style("http://127.0.0.1:9")


# ---- a server that wants the bucket in its host


@pytest.fixture
def names_of_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that ends in .test is here."""
    real = socket.getaddrinfo

    def resolved(host: Any, *args: Any, **options: Any) -> Any:
        here = isinstance(host, str) and host.endswith(".test")
        return real("127.0.0.1" if here else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


@pytest.fixture
async def by_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names_of_loopback: None
) -> AsyncIterator[ObjectStoreConfig]:
    """At `s3.test`; its bucket is there by no other host than `callers.s3.test`."""
    program = tmp_path / "rclone"
    program.write_text(f'#!/bin/sh\nexec {local_server._rclone()} "$@" --force-path-style=false\n')
    program.chmod(0o755)
    monkeypatch.setattr(local_server, "_rclone", lambda: str(program))
    async with LocalS3(tmp_path / "data", bucket=BUCKET) as s3:
        endpoint = s3.config.endpoint_url.replace("127.0.0.1", "s3.test")
        yield dataclasses.replace(s3.config, endpoint_url=endpoint, public_endpoint="", attempts=1)


def _written_below(config: ObjectStoreConfig) -> list[str]:
    found = Path(config.folder, BUCKET).rglob("*")
    return sorted(str(path.relative_to(config.folder)) for path in found if path.is_file())


@pytest.mark.parametrize("host", ["s3.test", "callers.s3.test"])
@pytest.mark.parametrize("size", [10, (8 << 20) + 1])
async def test_a_server_of_virtual_hosts_only_serves(
    by_host: ObjectStoreConfig, host: str, size: int
) -> None:
    config = dataclasses.replace(by_host, endpoint_url=by_host.endpoint_url.replace("s3.test", host))
    fd = os.memfd_create("given")
    os.write(fd, b"x" * size)
    with ObjectStore(config) as store:
        await asyncio.to_thread(store.put_file, "e/k", fd, "text/plain")
        assert _written_below(config) == [f"{BUCKET}/e/k"]
        assert len(await asyncio.to_thread(store.get_bytes, "e/k", size)) == size
        assert await asyncio.to_thread(store.keys, "e/") == ["e/k"]
        url = store.presign_get("e/k")
        assert url.startswith(f"http://callers.s3.test:{by_host.endpoint_url.rpartition(':')[2]}/e/k?")
        await asyncio.to_thread(store.delete_prefix, "e/")
    os.close(fd)
    assert _written_below(config) == []


async def test_a_bucket_in_the_path_of_the_endpoint_is_not_doubled(config: ObjectStoreConfig) -> None:
    with ObjectStore(
        dataclasses.replace(config, endpoint_url=f"{config.endpoint_url}/{config.bucket}")
    ) as store:
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
    with ObjectStore(config) as plain:
        assert await asyncio.to_thread(plain.keys, "") == ["e/k"]


async def test_a_server_that_is_called_like_the_bucket_keeps_it_in_the_path(
    config: ObjectStoreConfig, names_of_loopback: None
) -> None:
    endpoint = config.endpoint_url.replace("127.0.0.1", f"{config.bucket}.test")
    with ObjectStore(dataclasses.replace(config, endpoint_url=endpoint)) as store:
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
    with ObjectStore(config) as plain:
        assert await asyncio.to_thread(plain.keys, "") == ["e/k"]


async def test_it_is_found_out_once_for_all_that_write_there(by_host: ObjectStoreConfig) -> None:
    opened: list[ObjectStore] = []

    def open_store(config: ObjectStoreConfig, found: Found) -> ObjectStore:
        opened.append(ObjectStore(config, found))
        return opened[-1]

    objects = S3Objects(SigningRequests(), open_store=open_store)
    grant = Grant(
        endpoint_url=by_host.endpoint_url,
        public_endpoint="",
        region="",
        bucket=BUCKET,
        prefix="e/",
        access_id=by_host.access_id,
        access_secret=by_host.access_secret,
    )
    with tempfile.TemporaryFile() as file:
        await objects.put_file(grant, "e/one", file.fileno(), "text/plain", "one")
    assert len(opened[0].connections.open_styles) == 2
    other = structs.replace(grant, access_id="somebody-else")
    with tempfile.TemporaryFile() as file, pytest.raises(ObjectStoreRefused):
        await objects.put_file(other, "e/two", file.fileno(), "text/plain", "two")
    assert [style.virtual for style in opened[1].connections.open_styles] == [True]
    (url,) = await objects.urls(grant, ["e/one"])
    assert url.startswith("http://callers.s3.test:")
    await objects.close()


async def test_what_the_first_try_was_refused_with_is_reported(
    config: ObjectStoreConfig, names_of_loopback: None
) -> None:
    endpoint = config.endpoint_url.replace("127.0.0.1", "s3.test")
    wrong = dataclasses.replace(config, endpoint_url=endpoint, access_secret="wrong")
    with ObjectStore(wrong) as store, pytest.raises(ObjectStoreRefused, match="check access id, secret"):
        await asyncio.to_thread(store.put_bytes, "e/k", b"x", "text/plain")
