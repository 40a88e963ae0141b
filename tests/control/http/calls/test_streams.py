"""`/stream`: polls that lose nothing when a caller goes, and events that can be taken up again."""

import asyncio
import json
import logging
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from stoker.control.errors import BadRequest
from stoker.control.http.calls import turns
from stoker.control.http.calls.answers import WRITTEN
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.event_stream import parse_event_id, render
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import Cursor, LogEvent, StoredChunk, StreamEvent
from stoker.control.rules.types import JobView
from tests.control.http.calls.asgi_caller import Caller
from tests.control.http.calls.fake_plane import FakePlane

EVENTS = {"Accept": "text/event-stream"}


def chunk(n: int, attempt: int = 1) -> StoredChunk:
    return StoredChunk(attempt, n, b"%d" % n)


async def test_polls_drain_and_the_last_chunk_comes_with_the_end(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0), chunk(1))
    first = await http.get(f"/v2/echo/stream/{job}")
    assert first.json() == {"status": "IN_PROGRESS", "stream": [{"output": 0}, {"output": 1}]}
    await plane.emit(job, chunk(2))
    await plane.change(job, state=JobState.COMPLETED)
    last = await http.post(f"/v2/echo/stream/{job}?wait=90000")
    assert last.json() == {"status": "COMPLETED", "stream": [{"output": 2}]}
    after = await http.get(f"/v2/echo/stream/{job}")
    assert after.json() == {"status": "COMPLETED", "stream": []}
    assert plane.waits == [8.0, 90.0, 8.0]


async def test_the_end_of_a_cancelled_job_is_reported_once_as_it_is_and_then_as_one_that_every_client_knows(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.CANCELLED).id
    first = await http.get(f"/v2/echo/stream/{job}")
    assert first.json() == {"status": "CANCELLED", "stream": []}
    assert plane.cursors == {job: Cursor(end_reported=True)}
    for _ in range(2):
        again = await http.get(f"/v2/echo/stream/{job}")
        assert again.json() == {"status": "FAILED", "stream": [], "error": "job was cancelled"}
    assert (await http.get(f"/v2/echo/status/{job}")).json()["status"] == "CANCELLED"


async def test_an_end_that_nobody_received_is_reported_again(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.CANCELLED).id
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.leave()
    await caller.call(app)
    assert plane.cursors == {}
    assert (await http.get(f"/v2/echo/stream/{job}")).json()["status"] == "CANCELLED"


async def test_an_end_that_was_reported_is_not_stored_again(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.COMPLETED).id
    for _ in range(2):
        assert (await http.get(f"/v2/echo/stream/{job}")).json() == {"status": "COMPLETED", "stream": []}
    assert plane.advanced == [Cursor(end_reported=True)]


async def test_an_empty_poll_is_held_until_there_is_something(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    held = asyncio.create_task(http.get(f"/v2/echo/stream/{job}"))
    await plane.held.wait()
    assert not held.done()
    await plane.emit(job, chunk(0))
    assert (await held).json()["stream"] == [{"output": 0}]


async def test_the_cursor_moves_only_after_the_answer_was_written(app: ASGIApp, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.may_send = asyncio.Semaphore(2)  # the head and the body; the end is held up
    request = caller.call(app)
    assert json.loads(await caller.text())["stream"] == [{"output": 0}]
    assert plane.cursors == {}
    caller.may_send.release()
    await request
    assert plane.cursors == {job: Cursor(1, 0)}


async def test_a_poll_that_comes_before_the_cursor_moved_is_not_given_the_same_chunks(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane
) -> None:
    """The first caller has its whole body, asks again, and only then the cursor is stored."""
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.may_send = asyncio.Semaphore(2)
    request = caller.call(app)
    assert json.loads(await caller.text())["stream"] == [{"output": 0}]
    again = asyncio.create_task(http.get(f"/v2/echo/stream/{job}"))
    await settled()
    caller.may_send.release()
    await request
    await plane.emit(job, chunk(1))
    assert (await again).json()["stream"] == [{"output": 1}]


async def test_a_poll_waits_only_so_long_for_an_answer_that_nobody_reads(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.0)
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.may_send = asyncio.Semaphore(2)
    request = caller.call(app)
    await caller.text()
    assert (await http.get(f"/v2/echo/stream/{job}")).json()["stream"] == [{"output": 0}]
    caller.may_send.release()
    await request


async def test_a_slow_store_gives_no_chunk_twice_however_long_it_takes(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.0)
    job, stored, advance = plane.add(state=JobState.IN_PROGRESS).id, asyncio.Event(), plane.queries.advance

    async def slowly(*moved: Any) -> None:
        await stored.wait()
        await advance(*moved)

    monkeypatch.setattr(plane, "advance", slowly)
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    request = caller.call(app)
    assert json.loads(await caller.text())["stream"] == [{"output": 0}]
    await settled()
    again = asyncio.create_task(http.get(f"/v2/echo/stream/{job}"))
    await settled()
    assert not again.done()
    stored.set()
    await request
    await plane.emit(job, chunk(1))
    assert (await again).json()["stream"] == [{"output": 1}]


async def settled() -> None:
    """Whatever can go on without the test has done so."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_chunks_for_a_caller_that_left_are_given_to_the_next(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    request = caller.call(app)
    await plane.held.wait()
    caller.leave()
    await plane.emit(job, chunk(0))
    await request
    assert plane.cursors == {}
    assert (await http.get(f"/v2/echo/stream/{job}")).json()["stream"] == [{"output": 0}]
    assert plane.cursors == {job: Cursor(1, 0)}


async def test_a_caller_that_leaves_with_the_last_byte_has_been_given_it(
    http: httpx2.AsyncClient, app: ASGIApp, plane: FakePlane
) -> None:
    """As curl and urllib do: a connection for each poll, closed as soon as the body is there."""
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = LeavesWithTheLastByte("GET", f"/v2/echo/stream/{job}")
    await caller.call(app)
    assert plane.cursors == {job: Cursor(1, 0)}
    await plane.change(job, state=JobState.COMPLETED)
    assert (await http.get(f"/v2/echo/stream/{job}")).json() == {"status": "COMPLETED", "stream": []}


class LeavesWithTheLastByte(Caller):
    async def send(self, message: Any) -> None:
        await super().send(message)
        if message.get("body"):
            self.leave()


@pytest.mark.parametrize("taken", [True, False])
async def test_the_server_says_whether_the_socket_took_the_body(
    app: ASGIApp, plane: FakePlane, taken: bool
) -> None:
    async def wait() -> bool:
        return taken

    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.scope["state"] = {WRITTEN: wait}
    await caller.call(app)
    assert plane.cursors == ({job: Cursor(1, 0)} if taken else {})


async def test_a_cursor_that_cannot_be_stored_is_logged_and_the_answer_stands(
    app: ASGIApp, plane: FakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    await plane.emit(job, chunk(0))
    caller = Caller("GET", f"/v2/echo/stream/{job}")
    caller.may_send = asyncio.Semaphore(2)
    request = caller.call(app)
    assert json.loads(await caller.text())["stream"] == [{"output": 0}]
    plane.raises = RuntimeError("no room")
    caller.may_send.release()
    with caplog.at_level(logging.ERROR):
        await request
    assert "no room" in caplog.text


# -- events


async def started(app: ASGIApp, job: str, **headers: str) -> tuple[Caller, asyncio.Task[None]]:
    caller = Caller("GET", f"/v2/echo/stream/{job}", EVENTS | headers)
    request = caller.call(app)
    head = await caller.sent.get()
    assert head["status"] == 200
    assert (b"content-type", b"text/event-stream") in head["headers"]
    return caller, request


async def test_events_arrive_as_they_happen_and_end_with_the_record(app: ASGIApp, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    done = JobView(job, "echo", JobState.COMPLETED, 0.0, output=b"[]")
    caller, request = await started(app, job)
    plane.events.put_nowait(StreamEvent("chunk", 1, 0, b'{"a":\r\n1}'))
    assert await caller.text() == 'event: chunk\nid: 1-0\ndata: {"output":{"a":  1}}\n\n'
    plane.events.put_nowait(StreamEvent("progress", 1, 0, b"50"))
    assert await caller.text() == 'event: progress\ndata: {"output":50}\n\n'
    plane.events.put_nowait(StreamEvent("reset", 2, -1, b"null"))
    assert await caller.text() == 'event: reset\nid: 2--1\ndata: {"attempt":2}\n\n'
    plane.events.put_nowait(StreamEvent("end", 2, 0, b"null", done))
    end = await caller.text()
    assert end.startswith("event: end\ndata: ")
    assert json.loads(end.partition("data: ")[2])["status"] == "COMPLETED"
    await request
    assert plane.follow_closed.is_set()
    assert plane.cursors == {}  # events and polls do not take from each other


@pytest.mark.parametrize(("event_id", "after"), [("1-14", (1, 14)), ("2--1", (2, -1))])
async def test_a_reader_that_comes_back_says_how_far_it_was(
    app: ASGIApp, plane: FakePlane, event_id: str, after: tuple[int, int]
) -> None:
    job = plane.add().id
    caller, request = await started(app, job, **{"Last-Event-ID": event_id})
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", plane.jobs[job]))
    assert "event: end" in await caller.text()
    await request
    assert plane.follows == [after]


async def test_a_reader_that_leaves_ends_the_following(app: ASGIApp, plane: FakePlane) -> None:
    job = plane.add().id
    caller, request = await started(app, job)
    plane.events.put_nowait(StreamEvent("chunk", 1, 0, b"1"))
    await caller.text()
    caller.leave()
    await request
    assert plane.follow_closed.is_set()


async def test_silence_is_broken_by_comments(plane: FakePlane) -> None:
    job = plane.add().id
    caller, request = await started(make_app(plane, ApiSettings(keepalive_s=0.0)), job)
    assert await caller.text() == ": still here\n\n"
    assert await caller.text() == ": still here\n\n"
    caller.leave()
    await request


async def test_a_broken_stream_ends_without_an_end(
    app: ASGIApp, plane: FakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    job = plane.add().id
    caller, request = await started(app, job)
    with caplog.at_level(logging.ERROR):
        plane.events.put_nowait(StreamEvent("surprise", 1, 0, b"1"))
        await request
    assert "surprise" in caplog.text
    assert plane.follow_closed.is_set()
    rest = [caller.sent.get_nowait() for _ in range(caller.sent.qsize())]
    assert all(not message["body"] for message in rest)


async def test_a_server_that_stops_breaks_the_stream_off(app: ASGIApp, plane: FakePlane) -> None:
    _, request = await started(app, plane.add().id)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert plane.follow_closed.is_set() or plane.follows == []


async def test_events_of_an_unknown_job_are_a_404(http: httpx2.AsyncClient) -> None:
    assert (await http.get("/v2/echo/stream/x", headers=EVENTS)).status_code == 404


@pytest.mark.parametrize("event_id", ["1", "x-1", "1-x", "1-1-1", "-1-0", "1--2", "1-9999999999"])
async def test_an_event_id_that_is_none_is_a_400(
    http: httpx2.AsyncClient, plane: FakePlane, event_id: str
) -> None:
    plane.add(id="x")
    response = await http.get("/v2/echo/stream/x", headers=EVENTS | {"Last-Event-ID": event_id})
    assert response.status_code == 400
    assert "Last-Event-ID" in response.json()["error"]


def test_event_ids() -> None:
    with pytest.raises(BadRequest):
        parse_event_id("nothing")


def test_an_end_needs_its_record() -> None:
    event: Any = StreamEvent("end", 1, 0, b"null")
    with pytest.raises(ValueError, match="no such event: end"):
        render(event)


async def test_a_large_output_is_not_fetched_to_find_out_whether_there_is_a_job(
    app: ASGIApp, plane: FakePlane
) -> None:
    plane.add(id="x", state=JobState.IN_PROGRESS)
    caller = Caller("GET", "/v2/echo/stream/x", {"accept": "text/event-stream"})
    task = caller.call(app)
    assert (await caller.sent.get())["status"] == 200
    assert plane.ttls == []  # the status, with its output, was not asked for
    caller.leave()
    await task


@pytest.mark.parametrize(("query", "headers"), [("?follow=true", {}), ("", EVENTS)])
async def test_logs_are_events_for_whoever_follows(
    http: httpx2.AsyncClient, plane: FakePlane, query: str, headers: dict[str, str]
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS)
    for event in (
        LogEvent("skipped", 1, 6, lines=2),
        LogEvent("log", 1, 7, "x\ry: ü"),
        LogEvent("log", 1, 8, "z", at_ms=1_764_292_471_207),
        LogEvent("reset", 2),
        LogEvent("end", 2, view=JobView(job.id, "echo", JobState.FAILED, 0.0, error="long")),
    ):
        plane.log_events.put_nowait(event)
    answer = await http.get(f"/v2/echo/logs/{job.id}{query}", headers=headers | {"Last-Event-ID": "1-4"})
    assert answer.headers["content-type"] == "text/event-stream"
    assert plane.follows == [(1, 4)]
    assert answer.text == (
        'event: skipped\nid: 1-6\ndata: {"lines":2}\n\n'
        'event: log\nid: 1-7\ndata: {"line":"x\\ry: ü"}\n\n'
        'event: log\nid: 1-8\ndata: {"line":"z","printedAt":1764292471207}\n\n'
        'event: reset\nid: 2--1\ndata: {"attempt":2}\n\n'
        f'event: end\ndata: {{"id":"{job.id}","status":"FAILED"}}\n\n'
    )


async def test_logs_of_no_job_and_a_wrong_wish_are_no_stream(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    assert (await http.get("/v2/echo/logs/x?follow=true")).status_code == 404
    refused = await http.get(f"/v2/echo/logs/{plane.add().id}?follow=yes")
    assert refused.status_code == 400
    assert "follow" in refused.json()["error"]
