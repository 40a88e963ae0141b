"""Logs of workers as this shape streams them: frames, where a stream begins, and that it stays open."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.errors import Unprocessable
from stoker.control.http.management.v2.logs import LogQuery, first_line, frame
from stoker.control.rules.streams import LogEvent, LogLine
from tests.control.http.management.managed import V2, Managed
from tests.control.http.management.pods.pod_world import FACTS, GPUS, IMAGE, joined, once
from tests.control.http.management.pods.test_logs_of_workers import Scene, scene
from tests.control.http.management.v2.second_shape import call, make
from tests.control.jobs.test_live_logs import Lines
from tests.control.plane_world import endpoint


@given(st.text(), st.integers(0, 2**41), st.integers(0, 10**9))
def test_a_frame_is_one_line_of_data_and_its_id_takes_the_stream_up(line: str, at_ms: int, n: int) -> None:
    encoded = frame(LogEvent("log", 0, n, line, at_ms=at_ms)).decode()
    identified, data, *rest = encoded.split("\n")
    assert rest == ["", ""]
    assert json.loads(data.removeprefix("data: "))["line"] == line
    assert first_line((), identified.removeprefix("id: "), LogQuery()) == n


def test_a_time_has_nanoseconds() -> None:
    assert frame(LogEvent("log", 0, 3, "a", at_ms=1_764_292_474_018)) == (
        b"id: 2025-11-28T01:14:34.018000000Z/3\n"
        b'data: {"source":"container","line":"a","ts":"2025-11-28T01:14:34.018000000Z"}\n\n'
    )


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_a_stream_begins_with_the_last_lines(first: int, count: int, tail: int) -> None:
    lines = [LogLine(n, "") for n in range(first, first + count)]
    after = first_line(lines, None, LogQuery(tail=tail))
    assert [one for one in lines if one.n > after] == (lines[-tail:] if tail else [])


def test_another_streams_id_is_refused() -> None:
    with pytest.raises(Unprocessable, match="Last-Event-ID"):
        first_line((), "0-x", LogQuery())


def reading(s: Scene, path: str, **headers: str) -> tuple[asyncio.Task[None], list[bytes]]:
    """A reader that takes frames until it is cancelled."""
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(100 if parts else 0)
        return {"type": "http.request", "body": b""} if not parts else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        parts.append(message.get("body", b"") if message["type"] == "http.response.body" else b"")

    given = {**dict(s.api.http.headers), **headers}
    plain, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/v2{plain}",
        "raw_path": f"/v2{plain}".encode(),
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "scheme": "http",
        "server": ("stoker", 80),
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
    }
    return s.tasks.create_task(s.api.app(scope, receive, send)), parts  # type: ignore[arg-type]


@once
async def test_a_worker_is_followed_and_its_stream_stays_open_when_it_is_gone() -> None:
    async with scene() as s:
        path = f"/serverless/{s.endpoint}/workers/{s.worker}/logs"
        task, parts = reading(s, f"{path}?source=container&tail=1")
        same, others = reading(s, f"/pods/{s.worker}/logs?tail=0&source=container")
        await s.lines.wanted()
        await s.print(3, "loading", "listening")
        await asyncio.sleep(1)
        await s.print(5, "bye", over=True)
        await asyncio.sleep(40)
        assert not task.done()
        frames = b"".join(parts).split(b"\n\n")
        told = [json.loads(one.partition(b"data: ")[2]) for one in frames if b"data: " in one]
        assert [one["line"] for one in told] == ["listening", "bye"]
        assert told[0] == {"source": "container", "line": "listening", "ts": "1970-01-01T00:00:01.004000000Z"}
        assert frames.count(b": still here") >= 2
        assert b'"line":"bye"' in b"".join(others)
        assert b"listening" not in b"".join(others)
        await asyncio.sleep(100)
        assert task.done()
        assert same.done()


@once
async def test_since_and_the_last_event_say_where_it_begins() -> None:
    async with scene() as s:
        path = f"/serverless/{s.endpoint}/workers/{s.worker}/logs"
        by_time, since = reading(s, f"{path}?since=1970-01-01T00:00:01.004Z")
        by_id, after = reading(s, f"{path}?tail=0", **{"Last-Event-ID": "1970-01-01T00:00:01.003000000Z/3"})
        system, nothing = reading(s, f"{path}?source=system")
        await s.lines.wanted()
        await s.print(3, "loading", "listening")
        await asyncio.sleep(5)
        assert b"".join(since) == b"".join(after)
        assert b"listening" in b"".join(since)
        assert b"loading" not in b"".join(since)
        assert b"data" not in b"".join(nothing)
        await asyncio.sleep(110)
        assert by_time.done()
        assert by_id.done()
        assert system.done()


@once
async def test_a_pod_is_followed() -> None:
    async with joined("node-1", facts=FACTS, devices=GPUS) as (api, (agent,), tasks):
        session = api.plane.sessions.by_node["node-1"].session
        lines = await Lines(api.world, tasks, agent, session).begin()
        pod = await make(api, "/pods", name="box", image=IMAGE, gpu={"id": GPUS[0].name})
        s = Scene(api, tasks, lines, "", pod["id"])
        task, parts = reading(s, f"/pods/{pod['id']}/logs?tail=1")
        assert await lines.wanted() == (s.key,)
        await s.print(0, "loading", "listening")
        await asyncio.sleep(1)
        await s.print(2, "request")
        await asyncio.sleep(1)
        frames = b"".join(parts).split(b"\n\n")
        told = [json.loads(one.partition(b"data: ")[2])["line"] for one in frames if b"data: " in one]
        assert told == ["listening", "request"]
        await asyncio.sleep(110)
        assert task.done()
        lines.stream.end("the test is over")


@once
async def test_what_has_no_log_is_said() -> None:
    async with joined("node-1", facts=FACTS, devices=GPUS) as (api, _, _):
        pod = await make(api, "/pods", name="box", image=IMAGE, gpu={"id": GPUS[0].name})
        why = await call(api, "GET", f"/pods/{pod['id']}/logs", 503)
        assert f"node node-1 did not send the log of pod {pod['id']}" in why
        assert "no pod and no worker" in await call(api, "GET", "/pods/none/logs", 404)
        assert "has no worker 'w'" in await call(api, "GET", "/serverless/echo/workers/w/logs", 404)


async def test_a_key_of_one_endpoint_reads_its_workers_and_no_others(api: Managed) -> None:
    access = {"scope": "restricted", "endpoints": {"echo": "read"}}
    key = (await api.made("/keys", name="k", access=access))["key"]
    api.http.headers["Authorization"] = f"Bearer {key}"
    assert "has no worker" in await call(api, "GET", "/serverless/echo/workers/w/logs", 404)
    await call(api, "GET", "/serverless", 403)
    assert (await api.http.get(f"{V2}/pods/w/logs")).status_code == 403


async def test_a_key_of_a_jobs_endpoint_looks_at_the_jobs_replay(api: Managed) -> None:
    requested = {"replay": {"job": "j", "endpoint": "echo", "node": "n1", "stop_after": 0}}
    await api.management.endpoints.add(endpoint("a-replay", requested=requested))
    access = {"scope": "restricted", "endpoints": {"echo": "read"}}
    key = (await api.made("/keys", name="k", access=access))["key"]
    api.http.headers["Authorization"] = f"Bearer {key}"
    assert (await api.http.get("/endpoints/a-replay/health")).status_code == 200
    assert "has no worker" in (await api.http.get("/endpoints/a-replay/workers/w/logs")).text
    assert "has no worker" in await call(api, "GET", "/serverless/a-replay/workers/w/logs", 404)
