"""The application on a real socket of the loopback interface."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator

import httpx
import pytest
from fake_plane import KEY, FakePlane
from fastapi import FastAPI

from stoker.control.api.server import CannotListen, HttpServer, serve_http
from stoker.control.types import JobState, StoredChunk, StreamEvent

HEADERS = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
async def server(app: FastAPI) -> AsyncIterator[HttpServer]:
    async with await serve_http(app, "127.0.0.1", 0, grace_s=1) as running:
        yield running


@pytest.fixture
async def caller(server: HttpServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS) as client:
        yield client


async def test_a_job_through_a_real_server(caller: httpx.AsyncClient, plane: FakePlane) -> None:
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
    asked = list(state.tasks)
    writer.close()
    await writer.wait_closed()
    while state.connections:  # noqa: ASYNC110 - until the server has heard of it, too
        await asyncio.sleep(0)
    await plane.emit(job, StoredChunk(1, 0, b"1"))
    await asyncio.wait(asked)
    assert plane.cursors == {}


async def test_eleven_megabytes_get_a_413_and_the_connection_lives(caller: httpx.AsyncClient) -> None:
    response = await caller.post("/v2/echo/run", content=b"x" * 11_000_000)
    assert response.status_code == 413
    assert (await caller.get("/v2/echo/health")).status_code == 200


async def test_events_through_a_real_server(caller: httpx.AsyncClient, plane: FakePlane) -> None:
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


async def test_a_reader_that_hangs_up_ends_the_following(caller: httpx.AsyncClient, plane: FakePlane) -> None:
    job = plane.add().id
    path = f"/v2/echo/stream/{job}"
    async with caller.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        assert response.status_code == 200
    await plane.follow_closed.wait()


async def test_what_is_held_when_the_server_stops_is_told_to_come_back(
    app: FastAPI, plane: FakePlane
) -> None:
    plane.add(id="x")
    server = await serve_http(app, "127.0.0.1", 0, grace_s=0)
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS) as client:
        held = asyncio.create_task(client.get("/v2/echo/status-sync/x"))
        await plane.held.wait()
        await server.stop()
        response = await held
        assert response.status_code == 503
        assert response.headers["retry-after"] == "2"
        assert response.json()["title"] == "Service Unavailable"
    await server.stop()
    await server.wait()


async def test_a_port_that_is_taken_is_said_in_words(app: FastAPI, server: HttpServer) -> None:
    with pytest.raises(CannotListen, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: Address already"):
        await serve_http(app, "127.0.0.1", server.port)


async def test_an_address_that_is_none_is_said_in_words(app: FastAPI) -> None:
    with pytest.raises(CannotListen, match=r"cannot listen on 256\.0\.0\.1:0"):
        await serve_http(app, "256.0.0.1", 0)


async def test_signals_are_left_alone(app: FastAPI) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    async with await serve_http(app, "127.0.0.1", 0):
        assert [signal.getsignal(number) for number in numbers] == before


async def test_no_task_is_left(app: FastAPI) -> None:
    before = asyncio.all_tasks()
    server = await serve_http(app, "127.0.0.1", 0)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await server.wait()  # leaving `wait` does not end the server
    await server.stop()
    assert asyncio.all_tasks() == before
