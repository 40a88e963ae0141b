"""Bodies that come slowly, over real connections: what they hold up, what they take, and when they end."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from stoker.control import bodies
from stoker.control.errors import TooMany
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.server.server import serve_http
from stoker.control.rules.access import ALL
from stoker.outbound.wait_limits import BODIES, WaitRule
from tests.control.http.calls.fake_plane import KEY, FakePlane

MIB = 1 << 20
OTHER_KEY = "other-key"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def head(operation: str, size: int, key: str = KEY) -> bytes:
    lines = (
        f"POST /v2/echo/{operation} HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {key}",
        f"Content-Length: {size}",
        "\r\n",
    )
    return "\r\n".join(lines).encode()


async def answered(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and the head of the next answer; its body has been read."""
    got = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", got)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return int(got[9:12]), got


class Service:
    def __init__(self, port: int) -> None:
        self.port = port
        self.opened: list[asyncio.StreamWriter] = []

    async def connect(self) -> Pair:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.opened.append(writer)
        return reader, writer

    async def held(self, operation: str, size: int, sent: bytes) -> Pair:
        """A request whose body does not come to its end."""
        reader, writer = await self.connect()
        writer.write(head(operation, size) + sent)
        await writer.drain()
        return reader, writer

    async def send(self, operation: str, body: bytes, key: str = KEY) -> tuple[int, bytes]:
        reader, writer = await self.connect()
        writer.write(head(operation, len(body), key))
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(body)
        return await answered(reader)


@asynccontextmanager
async def service(plane: FakePlane, spool: str | None = None) -> AsyncIterator[Service]:
    app = make_app(plane, ApiSettings(rate_limits=False, spool=spool))
    async with await serve_http(app, "127.0.0.1", 0) as server:
        made = Service(server.port)
        yield made
        for writer in made.opened:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.mark.parametrize("operation", ["files", "run", "runsync"])
async def test_a_body_has_a_deadline_for_the_whole_however_it_drips(
    plane: FakePlane, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    monkeypatch.setattr(bodies.Bodies.__init__, "__defaults__", (None, WaitRule(16, first_s=0.3)))
    async with service(plane) as http:
        reader, writer = await http.held(operation, 1000, b"")

        async def drip() -> None:
            while not writer.is_closing():
                writer.write(b" ")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        got = await reader.readuntil(b"\r\n\r\n")
        dripping.cancel()
        await asyncio.wait([dripping])
        assert got.startswith(b"HTTP/1.1 408 ")
        assert b"connection: close" in got.lower()
        with suppress(OSError):  # the service does not read what was sent to it meanwhile
            await reader.read()
        assert reader.at_eof() or reader.exception() is not None


async def test_bodies_that_are_held_hold_no_other_key_up(plane: FakePlane) -> None:
    """As many as get a slot, and as many again that wait for one."""
    plane.access[OTHER_KEY] = ALL
    async with service(plane) as http:
        for _ in range(BODIES.slots // 8):
            await http.held("files", 60 * MIB, b"x" * 1000)
        for operation in ("files", "run"):
            body = json.dumps({"input": {"x": "y" * 300_000}}).encode()
            status, _ = await asyncio.wait_for(http.send(operation, body, OTHER_KEY), 10)
            assert status == 200


async def test_files_that_are_held_take_no_memory(plane: FakePlane, tmp_path: object) -> None:
    """Fourteen, with all but their last byte sent: they took 60 MiB each before."""
    size, most = 8 * MIB, 14
    async with service(plane, str(tmp_path)) as http:
        received = asyncio.Event()
        real, seen = bodies._write, {}

        def write(file: object, data: bytes) -> None:
            real(file, data)  # type: ignore[arg-type]
            seen[id(file)] = seen.get(id(file), 0) + len(data)
            if len(seen) == most and min(seen.values()) == size - 1:
                received.set()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bodies, "_write", write)
            tracemalloc.start()
            try:
                for _ in range(most):
                    await http.held("files", size, b"x" * (size - 1))
                await received.wait()
                held, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        assert held < 2 * size
    assert not list(tmp_path.iterdir()), "the files have no names"  # type: ignore[attr-defined]


async def test_what_came_in_pieces_is_whole_and_what_is_over_the_limit_is_refused(plane: FakePlane) -> None:
    async with service(plane) as http:
        data = bytes(range(256)) * 4096
        assert (await http.send("files", data))[0] == 200
        ((kept, _),) = plane.kept.values()
        assert kept == data
        assert (await http.held("files", 61 * MIB, b""))[1] is not None
        reader, writer = await http.connect()
        writer.write(head("run", 1).replace(b"Content-Length: 1", b"Transfer-Encoding: chunked"))
        piece = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        with suppress(OSError):
            for _ in range(170):
                writer.write(piece)
                await writer.drain()
        assert (await answered(reader))[0] == 413


async def test_a_folder_that_takes_no_more_is_told(plane: FakePlane, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", full)
    async with service(plane) as http:
        status, got = await http.send("files", b"x" * MIB)
        assert status == 503
        assert b"retry-after" in got.lower()


async def test_a_key_with_too_many_bytes_is_told_when_to_come_back(plane: FakePlane) -> None:
    plane.raises = TooMany("too much", limit=50 << 30, window_s=86_400, retry_after=60, unit="content-bytes")
    async with service(plane) as http:
        status, got = await http.send("files", b"x")
        assert status == 429
        assert b'qu="content-bytes"' in got
