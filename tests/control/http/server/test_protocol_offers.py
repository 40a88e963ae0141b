"""Requests that offer another protocol (RFC 9110, 7.8): the offer is ignored, and the body is theirs."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.cli.dev.local_server.listening import listen
from stoker.cli.dev.local_server.serving import serving
from stoker.control.http.server.server import UpgradeProtocol, serve_http
from tests.certificates import make_certificate
from tests.control.http.calls.fake_plane import KEY

SECRET_REQUEST = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
H2C = "Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"
PROTOCOLS = ["h2c", "h2c, foo", "websocket", "WebSocket", "TLS/1.2", "foo", ""]
BODY = SECRET_REQUEST * 3


def length(head: str) -> list[bytes]:
    return [f"{head}Content-Length: {len(BODY)}\r\n\r\n".encode(), BODY]


def chunked(head: str) -> list[bytes]:
    pieces = [BODY[:7], BODY[7:]]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return [f"{head}Transfer-Encoding: chunked\r\n\r\n".encode(), chunks + b"0\r\nX-Sum: 1\r\n\r\n"]


def expecting(head: str) -> list[bytes]:
    return length(f"{head}Expect: 100-continue\r\n")


FRAMINGS = [length, chunked, expecting]


class Echo:
    """Answers with what came; `begun` is set with each request."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.set()
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        told = json.dumps([scope["method"], scope["path"], body.decode("latin-1")]).encode() + b"\n"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": told})


async def sent(port: int, echo: Echo, pieces: Iterable[bytes], context: ssl.SSLContext | None = None) -> Any:
    """What the application was asked on one connection, whose last request is LAST."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    echo.begun.clear()
    for n, piece in enumerate(pieces):
        writer.write(piece)
        await writer.drain()
        if n == 0:
            await echo.begun.wait()
    writer.write(LAST)
    answers = await reader.read()
    writer.close()
    return [json.loads(line) for line in answers.splitlines() if line.startswith(b"[")], answers


def segmented(pieces: list[bytes], how: str) -> list[bytes]:
    match how:
        case "one segment":
            return [b"".join(pieces)]
        case "head, body":
            return pieces
        case _:
            return [pieces[0], *(pieces[1][at : at + 9] for at in range(0, len(pieces[1]), 9))]


@asynccontextmanager
async def plain(app: ASGIApp, _: Path) -> AsyncIterator[tuple[int, None]]:
    async with await serve_http(app, "localhost", 0, grace_s=1) as server:
        yield server.port, None


@asynccontextmanager
async def with_web_sockets(app: ASGIApp, _: Path) -> AsyncIterator[tuple[int, None]]:
    async with await serve_http(
        app, "localhost", 0, grace_s=1, upgrade=cast(UpgradeProtocol, Taken)
    ) as server:
        yield server.port, None


@asynccontextmanager
async def over_tls(app: ASGIApp, folder: Path) -> AsyncIterator[tuple[int, ssl.SSLContext]]:
    made = make_certificate(folder)
    async with await serve_http(app, "localhost", 0, grace_s=1, tls=made.files) as server:
        yield server.port, ssl.create_default_context(cafile=made.files.cert)


@asynccontextmanager
async def of_dev(app: ASGIApp, _: Path) -> AsyncIterator[tuple[int, None]]:
    listener = listen("localhost", 8_900)
    async with serving(app, listener):
        yield listener.getsockname()[1], None


class Taken(asyncio.Protocol):
    """What a connection is handed to for a WebSocket: shows what it got, and closes."""

    def __init__(self, **_: object) -> None:
        self._transport: asyncio.Transport
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._got.endswith(b"over"):
            self._transport.write(b"TAKEN " + self._got)
            self._transport.close()


DOORS = [plain, with_web_sockets, over_tls, of_dev]


@pytest.mark.parametrize("door", DOORS)
async def test_an_offer_is_ignored_and_the_body_is_the_requests(door: Any, tmp_path: Path) -> None:
    echo = Echo()
    expected = [["POST", "/ping", BODY.decode()], ["GET", "/last", ""]]
    async with door(echo, tmp_path) as (port, context):
        for protocol, framing, how in itertools.product(
            PROTOCOLS, FRAMINGS, ("one segment", "head, body", "9 bytes at a time")
        ):
            names = H2C if protocol == "h2c" else "keep-alive, Upgrade"
            head = f"POST /ping HTTP/1.1\r\nHost: x\r\nConnection: {names}\r\nUpgrade: {protocol}\r\n"
            asked, answers = await sent(port, echo, segmented(framing(head), how), context)
            assert asked == expected, (protocol, framing, how)
            assert answers.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("door", DOORS)
async def test_a_thousand_offers_in_one_segment_are_as_many_requests(door: Any, tmp_path: Path) -> None:
    one = b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    echo = Echo()
    async with door(echo, tmp_path) as (port, context):
        asked, _ = await sent(port, echo, [one * 1_000], context)
    assert len(asked) == 1_001


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("refused", ["CONNECT /ping HTTP/1.1", "CONNECT x:80 HTTP/1.1", "PRI * HTTP/2.0"])
async def test_what_would_turn_the_connection_into_another_is_refused_and_closed(
    door: Any, refused: str, tmp_path: Path
) -> None:
    echo = Echo()
    async with door(echo, tmp_path) as (port, context):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        head = f"{refused}\r\nHost: x\r\nContent-Length: {len(SECRET_REQUEST)}\r\n\r\n"
        writer.write(head.encode() + SECRET_REQUEST)
        answers = await reader.read()
        writer.close()
    assert not echo.begun.is_set()
    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 400")


async def taken(*pieces: bytes) -> tuple[list[Any], bytes]:
    echo = Echo()
    async with with_web_sockets(echo, Path()) as (port, _):
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(b"".join(pieces))
        answers = await reader.read()
        writer.close()
        return [json.loads(line) for line in answers.splitlines() if line.startswith(b"[")], answers


HANDSHAKE = b"GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


async def test_a_handshake_takes_its_connection_with_what_came_behind_it() -> None:
    _, answers = await taken(HANDSHAKE, b"frames over")
    assert answers.startswith(b"TAKEN GET /chat HTTP/1.1")
    assert answers.endswith(b"\r\n\r\nframes over")


@pytest.mark.parametrize(
    "no_handshake",
    [
        HANDSHAKE.replace(b"GET", b"POST"),
        HANDSHAKE.replace(b"/1.1", b"/1.0"),
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nContent-Length: 4\r\n\r\nover"),
        HANDSHAKE.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nover\r\n0\r\n\r\n"),
    ],
)
async def test_one_with_a_body_or_another_method_is_a_request(no_handshake: bytes) -> None:
    asked, answers = await taken(no_handshake, LAST)
    assert asked[0][1:] == ["/chat", "over" if b"over" in no_handshake else ""]
    assert [one[1] for one in asked[1:]] == ([] if b"/1.0" in no_handshake else ["/last"])
    assert b"TAKEN" not in answers


async def test_one_that_comes_before_the_response_to_another_request_waits_as_a_request() -> None:
    asked, answers = await taken(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n", HANDSHAKE, LAST)
    assert [one[1] for one in asked] == ["/first", "/chat", "/last"]
    assert b"TAKEN" not in answers


HEADS = [
    (b"POST /v2/echo/run HTTP/1.1\r\nHost: x\r\nHost: y\r\nContent-Length: 2\r\n\r\n{}", b"this one has 2"),
    (b"POST /v2/echo/run HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", b"this one has none"),
    (HANDSHAKE.replace(b"Host: x\r\n", b""), b"this one has none"),
    (HANDSHAKE.replace(b"Host: x\r\n", b"Host: x\r\nHost: y\r\n"), b"this one has 2"),
    (b"GET / HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n", b"this one has 2"),
    (b"nonsense\r\n\r\n", b"not HTTP/1.1"),
]


@pytest.mark.parametrize(("head", "words"), HEADS)
async def test_a_request_has_one_host(head: bytes, words: bytes, caplog: pytest.LogCaptureFixture) -> None:
    asked, answers = await taken(head, LAST)
    assert asked == []
    assert answers.startswith(b"HTTP/1.1 400")
    assert words in json.loads(answers.partition(b"\r\n\r\n")[2])["error"].encode()
    assert caplog.records == []


async def test_a_refusal_is_not_taken_for_the_response_to_the_request_before_it() -> None:
    asked, answers = await taken(b"GET /first HTTP/1.1\r\nHost: x\r\n\r\n", b"nonsense\r\n\r\n")
    assert (asked, answers) == ([], b"")


@pytest.mark.parametrize("protocol", ["h2c", "foo", "websocket"])
async def test_operations_run_as_if_nothing_had_been_offered(app: ASGIApp, protocol: str) -> None:
    """Some HTTP clients offer HTTP/2 with each first request."""
    async with (
        await serve_http(app, "127.0.0.1", 0, upgrade=cast(UpgradeProtocol, Taken)) as server,
        httpx2.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        headers = {"Authorization": KEY, "Connection": "Upgrade", "Upgrade": protocol}
        response = await client.post("/v2/echo/run", json={"input": {"a": 1}}, headers=headers)
        assert (response.status_code, response.json()["status"]) == (200, "IN_QUEUE")
        asked = await client.post(f"/v2/echo/cancel/{response.json()['id']}", headers=headers)
        assert (asked.status_code, asked.json()["status"]) == (200, "CANCELLED")
