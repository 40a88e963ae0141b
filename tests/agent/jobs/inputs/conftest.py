"""An origin on loopback whose answers a test writes, and proof that no descriptor or task is left."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest


@dataclass
class Page:
    """`gate`: nothing of the body after its first half is sent before this is set."""

    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    status: str = "200 OK"
    gate: asyncio.Event | None = None
    announced: bool = True


class Origin:
    """Answers 304 where the request's If-None-Match is the page's ETag. `seen` are the requests' heads."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.seen: list[str] = []
        self.halfway = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.port = 0
        self._came = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/a") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.seen.append(head)
            self._came.set()
            await self._answer(self.pages[head.split(" ")[1]], head, reader, writer)
        except ConnectionError:
            self.hung_up.set()
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _answer(
        self, page: Page, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        etags = [line[15:] for line in head.split("\r\n") if line.lower().startswith("if-none-match: ")]
        same = etags == [page.headers.get("ETag")]
        lines = [f"HTTP/1.1 {'304 Not Modified' if same else page.status}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in page.headers.items()]
        body = b"" if same else page.body
        if page.announced and not same:
            lines.append(f"Content-Length: {len(body)}")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body[: len(body) // 2])
        await writer.drain()
        if page.gate is not None:
            self.halfway.set()
            gone = asyncio.ensure_future(reader.read())
            opened = asyncio.ensure_future(page.gate.wait())
            await asyncio.wait([gone, opened], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                self.hung_up.set()
            gone.cancel()
            opened.cancel()
        writer.write(body[len(body) // 2 :])
        await writer.drain()

    async def until_requests(self, times: int) -> None:
        """Until so many requests have come."""
        while len(self.seen) < times:
            self._came.clear()
            await self._came.wait()

    async def idle(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)


@pytest.fixture
async def origin() -> AsyncIterator[Origin]:
    made = Origin()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    await made.idle()
    await server.wait_closed()


@pytest.fixture
def page() -> type[Page]:
    return Page


@pytest.fixture
def descriptors() -> Callable[[], int]:
    """How many are open below a folder of this test, or were."""

    def count() -> int:
        gc.collect()
        found = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                found += "/inputs/" in os.readlink(f"/proc/self/fd/{name}")
            except OSError:
                continue
        return found

    return count
