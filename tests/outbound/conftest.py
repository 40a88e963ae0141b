"""One real `rclone serve s3` for all tests of this folder, and what none of them may leave behind."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from stoker.outbound.s3.buckets import ObjectStoreConfig
from stoker.outbound.s3.local_server import LocalS3
from stoker.outbound.s3.objects import ObjectStore


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObjectStoreConfig]:
    async with LocalS3(tmp_path_factory.mktemp("s3")) as s3:
        yield s3.config


@pytest.fixture
def config(server: ObjectStoreConfig, request: pytest.FixtureRequest) -> ObjectStoreConfig:
    """A bucket of the test's own, one try for each call, and the smallest parts that S3 allows."""
    bucket = f"test-{abs(hash(request.node.nodeid)) % 10**12}"
    own = dataclasses.replace(server, bucket=bucket, attempts=1, part_size_bytes=5 << 20, reserve_bytes=0)
    with ObjectStore(own) as store:
        store.ensure_bucket()
    return own


@pytest.fixture
def store(config: ObjectStoreConfig) -> Iterator[ObjectStore]:
    with ObjectStore(config) as opened:
        yield opened


@pytest.fixture(autouse=True)
def nothing_left_behind(server: ObjectStoreConfig) -> Iterator[None]:
    """No descriptor and no thread outlives a test. (`server` first: what it holds is not the test's.)"""
    before, threads = _descriptors(), set(threading.enumerate())
    yield
    new = [t for t in threading.enumerate() if t not in threads and not t.name.startswith("asyncio_")]
    for thread in new:
        thread.join(60)  # what it did is done; it may still be on its way out
    left = {thread.name for thread in new if thread.is_alive()}
    assert not left, f"threads left behind: {left}"
    if _descriptors().keys() - before:
        gc.collect()  # a collection takes longer than most of these tests
    leaked = {fd: what for fd, what in _descriptors().items() if fd not in before}
    assert not leaked, f"descriptors left behind: {leaked}"


def _descriptors() -> dict[int, str]:
    """Sockets, files and memory; the event loops' own pipes come and go with pytest's."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not what.startswith(("anon_inode:[event", "pipe:")) and f"/proc/{os.getpid()}/fd" not in what:
            found[int(name)] = what
    return found


class Http:
    """A scripted HTTP server on loopback: `answers` has raw bytes for a path, or None for never answering."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | None] = {}
        self.received: list[bytes] = []
        self.requested = asyncio.Event()
        self._handlers: set[asyncio.Task[None]] = set()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"\r\nExpect: 100-continue\r\n" in head:
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            length = [
                int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
            ]
            self.received.append(head + (await reader.readexactly(length[0]) if length else b""))
            self.requested.set()
            answer = self.answers[head.split(b" ")[1].decode()]
            if answer is None:
                await reader.read()  # until the client has had enough
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            self._handlers.discard(task)

    async def idle(self) -> None:
        """Every connection has ended."""
        if self._handlers:
            await asyncio.wait(self._handlers)


@pytest.fixture
async def http() -> AsyncIterator[Http]:
    scripted = Http()
    listening = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.port = listening.sockets[0].getsockname()[1]
    yield scripted
    listening.close()
    await scripted.idle()
    await listening.wait_closed()
