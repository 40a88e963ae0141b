"""The application on a real socket of the loopback interface."""

import asyncio
import contextlib
import json
import signal
import ssl
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.config.tls import NotLoopback, TlsFiles
from stoker.control.http.calls.answers import RECEIVED_TRAILERS, SEND_TRAILERS
from stoker.control.http.server.forwarded import Proxies
from stoker.control.http.server.listener import CannotListen
from stoker.control.http.server.server import HttpServer, serve_http
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StoredChunk, StreamEvent
from stoker.wire.tls_files import TlsFilesUnusable
from tests.certificates import make_certificate
from tests.control.http.calls.fake_plane import KEY, FakePlane

HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
async def server(app: ASGIApp) -> AsyncIterator[HttpServer]:
    async with await serve_http(app, "127.0.0.1", 0, grace_s=1) as running:
        yield running


@pytest.fixture
async def caller(server: HttpServer) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60) as client:
        yield client


async def test_a_job_through_a_real_server(caller: httpx2.AsyncClient, plane: FakePlane) -> None:
    response = await caller.post("/v2/echo/run", json={"input": {"x": 1}})
    job = response.json()["id"]
    await plane.emit(job, StoredChunk(1, 0, b"1"))
    await plane.change(job, state=JobState.COMPLETED, output=b"[]")
    poll = await caller.get(f"/v2/echo/stream/{job}")
    assert poll.json() == {"status": "COMPLETED", "stream": [{"output": 1}]}
    again = await caller.get(f"/v2/echo/stream/{job}")  # on the same connection: the answer was whole
    assert again.json()["stream"] == []
    assert (await caller.get(f"/v2/echo/status/{job}")).json()["output"] == []
    assert "date" in again.headers
    assert "server" not in again.headers


async def test_a_poller_that_hangs_up_loses_nothing(server: HttpServer, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    request = f"GET /v2/echo/stream/{job} HTTP/1.1\r\nHost: x\r\nAuthorization: {KEY}\r\n\r\n"
    writer.write(request.encode())
    await writer.drain()
    await plane.held.wait()
    state = server._server.server_state
    requests = list(state.tasks)
    writer.close()
    await writer.wait_closed()
    while state.connections:  # noqa: ASYNC110 - until the server has heard of it, too
        await asyncio.sleep(0)
    await plane.emit(job, StoredChunk(1, 0, b"1"))
    await asyncio.wait(requests)
    assert plane.cursors == {}


async def test_a_poller_that_closes_after_each_body_gets_each_chunk_once(
    server: HttpServer, plane: FakePlane
) -> None:
    """A large body, too, which the socket takes in parts."""
    job = plane.add(state=JobState.IN_PROGRESS).id
    sizes = [10, 70_000, 3_000_000, 10]
    for n, size in enumerate(sizes):
        await plane.emit(job, StoredChunk(1, n, b'"%s"' % (b"x" * size)))
        answer = await asyncio.to_thread(poll_and_close, server.port, job)
        assert [len(chunk["output"]) for chunk in answer["stream"]] == [size]
    await plane.change(job, state=JobState.COMPLETED)
    last = await asyncio.to_thread(poll_and_close, server.port, job)
    assert last == {"status": "COMPLETED", "stream": []}


def poll_and_close(port: int, job: str) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v2/echo/stream/{job}", headers=HEADERS)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


async def test_a_poller_that_leaves_in_the_middle_of_a_body_has_not_been_given_it(
    server: HttpServer, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, StoredChunk(1, 0, b'"%s"' % (b"x" * 50_000_000)))  # more than sockets hold
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.write(f"GET /v2/echo/stream/{job} HTTP/1.1\r\nHost: x\r\nAuthorization: {KEY}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    requests = list(server._server.server_state.tasks)
    writer.transport.abort()
    await asyncio.wait(requests)
    assert plane.cursors == {}


async def test_a_head_that_does_not_end_is_refused(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\nX-Much: ")
    with pytest.raises(ConnectionError):
        await _send_much(writer)
    writer.close()
    with contextlib.suppress(ConnectionError):  # the refusal may be lost: what was sent after it is not read
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


async def _send_much(writer: asyncio.StreamWriter) -> None:
    for _ in range(1000):
        writer.write(b"x" * 8192)
        await writer.drain()
        await asyncio.sleep(0)


async def test_large_bodies_and_many_requests_are_no_large_head(caller: httpx2.AsyncClient) -> None:
    large = {"input": {"text": "x" * 300_000}}
    for _ in range(3):
        assert (await caller.post("/v2/echo/run", json=large)).status_code == 200
        assert (await caller.get("/v2/echo/health", headers={"X-Long": "x" * 60_000})).status_code == 200


async def test_a_head_has_a_time_limit(app: ASGIApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the first one, from the connection on, and one on a kept connection; not a request under way."""
    monkeypatch.setattr("stoker.control.http.server.connection.HEAD_S", 0.2)
    monkeypatch.setattr("stoker.control.http.server.connection.FIRST_HEAD_S", 1.0)
    async with await serve_http(app, "127.0.0.1", 0, grace_s=1) as server:
        silent, other = await asyncio.open_connection("127.0.0.1", server.port)
        slow, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await slow.readline()).startswith(b"HTTP/1.1 ")
        writer.write(b"GET /ping HT")
        with contextlib.suppress(ConnectionResetError):
            await slow.read()
        with contextlib.suppress(ConnectionResetError):
            assert await silent.read() == b""
        for one in (writer, other):
            one.close()


async def test_eleven_megabytes_get_a_413_and_the_connection_lives(caller: httpx2.AsyncClient) -> None:
    response = await caller.post("/v2/echo/run", content=b"x" * 11_000_000)
    assert response.status_code == 413
    assert (await caller.get("/v2/echo/health")).status_code == 200


async def test_events_through_a_real_server(caller: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    async with caller.stream(
        "GET", f"/v2/echo/stream/{job}", headers={"Accept": "text/event-stream"}
    ) as response:
        lines = response.aiter_lines()
        plane.events.put_nowait(StreamEvent("chunk", 1, 0, b'"a"'))
        assert [await anext(lines) for _ in range(4)] == [
            "event: chunk",
            "id: 1-0",
            'data: {"output":"a"}',
            "",
        ]
        plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", plane.jobs[job]))
        assert "event: end" in [line async for line in lines]


async def test_a_reader_that_hangs_up_ends_the_following(
    caller: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add().id
    path = f"/v2/echo/stream/{job}"
    async with caller.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        assert response.status_code == 200
    await plane.follow_closed.wait()


async def test_what_is_held_when_the_server_stops_must_come_back(app: ASGIApp, plane: FakePlane) -> None:
    plane.add(id="x")
    server = await serve_http(app, "127.0.0.1", 0, grace_s=0)
    async with httpx2.AsyncClient(base_url=server.url, headers=HEADERS, timeout=60) as client:
        held = asyncio.create_task(client.get("/v2/echo/status-sync/x"))
        await plane.held.wait()
        await server.stop()
        response = await held
        assert response.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert response.json()["title"] == "Service Unavailable"
    await server.stop()
    await server.wait()


async def test_a_port_that_is_taken_is_reported(app: ASGIApp, server: HttpServer) -> None:
    with pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: Address already"):
        await serve_http(app, "127.0.0.1", server.port)


async def test_an_address_that_is_none_is_reported(app: ASGIApp) -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 256\.0\.0\.1:0"):
        await serve_http(app, "256.0.0.1", 0, proxies=Proxies())


async def test_signals_are_left_alone(app: ASGIApp) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    async with await serve_http(app, "127.0.0.1", 0):
        assert [signal.getsignal(number) for number in numbers] == before


async def test_no_task_is_left(app: ASGIApp) -> None:
    before = asyncio.all_tasks()
    server = await serve_http(app, "127.0.0.1", 0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await server.wait()  # leaving `wait` does not end the server
    await server.stop()
    assert asyncio.all_tasks() == before


# ---- who may come in without TLS


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "control.example", ""])
async def test_no_keys_in_the_clear_beyond_loopback(app: ASGIApp, host: str) -> None:
    with pytest.raises(NotLoopback, match=r"keys to .* in the clear: give --tls-cert .* --behind-proxy"):
        await serve_http(app, host, 0)


async def test_callers_are_served_over_tls(app: ASGIApp, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(made.files.cert))
    async with await serve_http(app, "127.0.0.1", 0, tls=made.files) as server:
        assert server.url == f"https://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(verify=trusted, headers=HEADERS, timeout=60) as client:
            assert (await client.get(f"{server.url}/v2/echo/health")).status_code == 200
            with pytest.raises(httpx2.RemoteProtocolError):
                await client.get(f"http://127.0.0.1:{server.port}/ping")


async def test_tls_files_that_are_none_are_reported(app: ASGIApp, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    one, other = make_certificate(tmp_path).files, make_certificate(tmp_path / "other").files
    with pytest.raises(
        TlsFilesUnusable, match=r"the TLS key .*other/key\.pem does not fit the certificate in"
    ):
        await serve_http(app, "127.0.0.1", 0, tls=TlsFiles(one.cert, other.key))
    with pytest.raises(TlsFilesUnusable, match=r"no\.pem cannot be read: No such file"):
        await serve_http(app, "127.0.0.1", 0, tls=TlsFiles(one.cert, tmp_path / "no.pem"))


async def test_nobody_is_prompted_for_the_password_of_a_key(app: ASGIApp, tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    locked = serialization.load_pem_private_key(made.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    made.files.key.write_bytes(locked)
    with pytest.raises(TlsFilesUnusable, match="is encrypted"):
        await serve_http(app, "127.0.0.1", 0, tls=made.files)


async def _show_client(scope: Scope, receive: Receive, send: Send) -> None:
    await JSONResponse([scope["scheme"], scope["client"][0]])(scope, receive, send)


@pytest.mark.parametrize(
    ("proxies", "expected"),
    [
        (None, ["http", "127.0.0.1"]),
        (Proxies(), ["https", "10.0.0.5"]),
        (Proxies.parse(["10.0.0.5"]), ["https", "198.51.100.7"]),
    ],
)
async def test_forwarded_headers_are_believed_from_proxies_only(
    proxies: Proxies | None, expected: list[str]
) -> None:
    headers = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "203.0.113.9, 198.51.100.7, 10.0.0.5"}
    async with (
        await serve_http(_show_client, "127.0.0.1", 0, proxies=proxies) as server,
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
    ):
        assert (await client.get(server.url)).json() == expected


async def test_a_proxy_in_front_may_come_from_beyond_loopback(app: ASGIApp) -> None:
    async with (
        await serve_http(app, "0.0.0.0", 0, proxies=Proxies()) as server,
        httpx2.AsyncClient(headers=HEADERS, timeout=60) as client,
    ):
        assert (await client.get(f"http://127.0.0.1:{server.port}/v2/echo/health")).status_code == 200


async def _tell_trailers(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what came, and sends the trailers back."""
    more = True
    while more:
        more = (await receive()).get("more_body", False)
    told = repr([name.decode() for name, _ in scope["headers"]]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": told, "more_body": True})
    scope["state"][SEND_TRAILERS](scope, scope["state"].get(RECEIVED_TRAILERS, []))
    await send({"type": "http.response.body", "body": b""})


def _chunked(trailers: str, path: str = "/", method: str = "POST") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return f"{head}3\r\nabc\r\n0\r\n{trailers}\r\n".encode()


async def test_trailers_are_no_headers_and_come_and_go_with_a_chunked_body() -> None:
    async with await serve_http(_tell_trailers, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(2):  # on one connection: what came with the first request is not the second's
            writer.write(_chunked("X-Sum: 1\r\nAuthorization: Bearer a\r\n"))
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"x-sum" not in head
            chunk = await reader.readuntil(b"0\r\n")
            assert b"['host', 'transfer-encoding']" in chunk
            assert await reader.readuntil(b"\r\n\r\n") == b"x-sum: 1\r\nauthorization: Bearer a\r\n\r\n"
        writer.write(_chunked("", method="HEAD"))
        assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n0\r\n\r\n")
        writer.close()


async def test_a_key_in_the_trailers_opens_nothing(server: HttpServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_chunked(f"Authorization: Bearer {KEY}\r\n", "/v2/echo/run"))
    assert b" 401 " in await reader.readuntil(b"\r\n")
    writer.close()


@pytest.mark.parametrize("line", ["X-A: b\r\n", "x"])
async def test_trailers_without_an_end_end_the_connection(server: HttpServer, line: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(_chunked("", "/v2/echo/run")[:-2])
    sent = 0
    with contextlib.suppress(ConnectionError):
        while not reader.at_eof() and sent < 10_000_000:
            writer.write(line.encode() * (10_000 // len(line)))
            await writer.drain()
            sent += 10_000
            await asyncio.sleep(0)
    assert sent < 10_000_000
    writer.close()
