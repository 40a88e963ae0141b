"""The end of a server whose listener lives on: its callers notice nothing, and the next server takes over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from stoker.control.http.server.listener import CannotListen, adopted, listen
from stoker.control.http.server.server import HttpServer, serve_http
from tests.certificates import make_certificate

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Reading = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Named:
    """Answers with its name, once it may. `asked` counts the requests."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.asked = asyncio.Semaphore(0)
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.release()
        await self.may.wait()
        length = b"%d" % len(self.name)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": self.name})


@pytest.fixture
async def kept() -> AsyncIterator[socket.socket]:
    """A listener that another process holds, too."""
    with listen("127.0.0.1", 0) as listener:
        yield listener


async def started(kept: socket.socket, app: Named) -> HttpServer:
    return await serve_http(app, "192.0.2.1", 1, grace_s=1, listener=kept.dup())


async def connected(kept: socket.socket) -> Reading:
    return await asyncio.open_connection(*kept.getsockname())


async def asked(connection: Reading) -> None:
    connection[1].write(REQUEST)
    await connection[1].drain()


async def answer(connection: Reading) -> tuple[bytes, bool]:
    """The body, and whether the connection ends with it."""
    head = await connection[0].readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    closes = b"connection: close" in head
    body = await (connection[0].read() if closes else connection[0].readexactly(5))
    return body, closes


async def test_what_arrives_meanwhile_waits_for_the_next_server(kept: socket.socket) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with await started(kept, Named(b"first")) as first:
            first.drain()
            late = await connected(kept)
            stack.callback(late[1].close)
            await asked(late)
            await first.drained(60)  # at once: there is no connection
        second = await stack.enter_async_context(await started(kept, Named(b"other")))
        assert await answer(late) == (b"other", False)
        assert second.port == kept.getsockname()[1]


async def test_a_server_that_has_ended_is_drained(kept: socket.socket) -> None:
    server = await started(kept, Named(b"first"))
    await server.stop()
    server.drain()
    await server.drained(60)


async def test_each_connection_ends_with_its_next_answer(kept: socket.socket) -> None:
    app = Named(b"first")
    async with await started(kept, app) as server:
        idle, busy = await connected(kept), await connected(kept)
        for one in (idle, busy):
            await asked(one)
            assert await answer(one) == (b"first", False)
        app.may.clear()
        await asked(busy)
        for _ in range(3):
            await app.asked.acquire()
        server.drain()
        drained = asyncio.create_task(server.drained(60))
        app.may.set()
        assert await answer(busy) == (b"first", True)
        await asked(idle)
        assert await answer(idle) == (b"first", True)
        await drained
        for _, writer in (idle, busy):
            writer.close()


async def test_a_caller_that_does_not_come_back_is_not_waited_for(kept: socket.socket) -> None:
    async with await started(kept, Named(b"first")) as server:
        idle = await connected(kept)
        await asked(idle)
        await answer(idle)
        server.drain()
        await server.drained(0.01)
    assert await idle[0].read() == b""
    idle[1].close()


async def test_a_handshake_that_has_begun_is_finished(kept: socket.socket, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=made.files.cert)
    app, dup = Named(b"first"), kept.dup()
    async with await serve_http(app, "", 0, grace_s=1, listener=dup, tls=made.files) as server:
        reader, writer = await connected(kept)
        while not server._server._arrivals._handshakes:  # noqa: ASYNC110 - until it is accepted
            await asyncio.sleep(0)
        server.drain()
        await writer.start_tls(context, server_hostname="localhost")
        await asked((reader, writer))
        assert await answer((reader, writer)) == (b"first", True)
        writer.close()
        with contextlib.suppress(ssl.SSLError):
            await writer.wait_closed()


def test_a_listener_is_adopted_by_its_descriptor_and_not_inherited_further(kept_fd: int) -> None:
    os.set_inheritable(kept_fd, True)
    with adopted(kept_fd) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert not listener.get_inheritable()


@pytest.fixture
def kept_fd() -> int:
    return listen("127.0.0.1", 0).detach()


def test_what_is_no_listener_is_refused() -> None:
    with socket.socket() as silent, open(os.devnull) as file, socket.socket(socket.AF_UNIX) as local:
        local.bind("")
        local.listen()
        for fd, why in [
            (silent.fileno(), "is not a socket that listens for TCP"),
            (local.fileno(), "is not a socket that listens for TCP"),
            (file.fileno(), "is not a socket that listens"),
        ]:
            with pytest.raises(CannotListen, match=f"descriptor {fd} {why}"):
                adopted(fd)
