"""The rate limits of operations: who counts, how long an admission lasts, and what a refusal says."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress

import httpx2
import pytest
from starlette.types import ASGIApp

from stoker.control.errors import Unavailable
from stoker.control.http.calls import calls
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.server.server import serve_http
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import RATE_LIMITS, RateLimit
from stoker.control.rules.streams import StreamEvent
from tests.control.http.calls.asgi_caller import Caller
from tests.control.http.calls.fake_plane import KEY, FakePlane


class Clock:
    ms = 0

    def __call__(self) -> int:
        return self.ms * 1_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(plane: FakePlane, clock: Clock) -> ASGIApp:
    return make_app(plane, ApiSettings(now_ns=clock))


def rate_headers(response: httpx2.Response) -> tuple[dict[str, int], dict[str, int]]:
    """`RateLimit-Policy` and `RateLimit`, read: the numbers by their letter."""
    policy, left = response.headers["ratelimit-policy"], response.headers["ratelimit"]
    name = re.match(r'"(window|concurrent)";', policy)
    assert name is not None
    assert left.startswith(name[0])
    numbers = [re.findall(r";(\w+)=(\d+)", text) for text in (policy, left)]
    return {key: int(n) for key, n in numbers[0]}, {key: int(n) for key, n in numbers[1]}


async def test_a_refusal_says_the_limit_and_when_to_come_back(
    http: httpx2.AsyncClient, plane: FakePlane, clock: Clock
) -> None:
    for clock.ms in (0, 300):
        assert (await http.post("/v2/echo/purge-queue")).status_code == 200
    clock.ms = 1_500
    refused = await http.post("/v2/echo/purge-queue")
    assert refused.status_code == 429
    assert set(refused.json()) == {"error", "status", "title", "detail"}
    assert (refused.json()["status"], refused.json()["title"]) == (429, "Too Many Requests")
    assert "/purge-queue of endpoint echo takes at most 2 requests in 10 seconds" in refused.json()["error"]
    assert rate_headers(refused) == ({"q": 2, "w": 10}, {"r": 0, "t": 9})
    assert refused.headers["ratelimit-policy"] == '"window";q=2;w=10'
    assert refused.headers["ratelimit"] == '"window";r=0;t=9'
    assert refused.headers["retry-after"] == "9"
    clock.ms += 9_000
    assert (await http.post("/v2/echo/purge-queue")).status_code == 200


async def test_a_refused_submission_is_not_read_and_not_stored(
    http: httpx2.AsyncClient, plane: FakePlane, clock: Clock
) -> None:
    for _ in range(1_000):
        await http.post("/v2/echo/run", content=b'{"input":{}}')
    read: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        read.append(1)
        yield b'{"input":{}}'

    refused = await http.post("/v2/echo/run", content=body())
    assert (refused.status_code, read, len(plane.submitted)) == (429, [], 1_000)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v2/nobody/purge-queue", {}, 404),
        ("/v2/echo/purge-queue", {"Authorization": "Bearer sk-wrong"}, 401),
        ("/v2/echo/purge-queue", {"Authorization": ""}, 401),
    ],
)
async def test_unauthenticated_callers_and_wrong_paths_count_against_nobody(
    http: httpx2.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    for _ in range(20):
        assert (await http.post(path, headers=headers)).status_code == status
    assert (await http.get("/v2/echo/purge-queue")).status_code == 405
    assert [(await http.post("/v2/echo/purge-queue")).status_code for _ in range(3)] == [200, 200, 429]


async def test_an_alias_counts_as_its_endpoint(http: httpx2.AsyncClient) -> None:
    paths = ["/v2/echo/purge-queue", "/v2/other-echo/purge-queue", "/v2/echo/purge-queue"]
    assert [(await http.post(path)).status_code for path in paths] == [200, 200, 429]
    assert (await http.post("/v2/sized/purge-queue")).status_code == 200


async def test_workers_raise_the_limit(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.workers = 1
    assert [(await http.post("/v2/echo/purge-queue")).status_code for _ in range(50)] == [200] * 50
    refused = await http.post("/v2/echo/purge-queue")
    assert rate_headers(refused)[0] == {"q": 50, "w": 10}


async def test_limits_may_be_turned_off(plane: FakePlane) -> None:
    transport = httpx2.ASGITransport(make_app(plane, ApiSettings(rate_limits=False)))
    headers = {"Authorization": KEY}
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker", headers=headers) as http:
        assert {(await http.post("/v2/echo/purge-queue")).status_code for _ in range(50)} == {200}


# -- places: `/requests` takes two at once, so two that are held fill it


class Crowd:
    """Callers that hold both places of `/requests`, by a plane that answers when the test says so."""

    def __init__(self, app: ASGIApp, plane: FakePlane) -> None:
        self.app, self.plane = app, plane
        self.may_answer = asyncio.Event()
        self.errors: list[Exception] = []
        answer = plane.queries.requests

        async def slow(*requested):  # type: ignore[no-untyped-def]
            await self.may_answer.wait()
            if self.errors:
                raise self.errors.pop()
            return await answer(*requested)

        plane.queries.requests = slow  # type: ignore[method-assign]

    def come(self, count: int = 2) -> list[tuple[Caller, asyncio.Task[None]]]:
        callers = [Caller("GET", "/v2/echo/requests") for _ in range(count)]
        return [(caller, caller.call(self.app)) for caller in callers]


@pytest.fixture
def crowd(app: ASGIApp, plane: FakePlane) -> Crowd:
    return Crowd(app, plane)


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def free(http: httpx2.AsyncClient, crowd: Crowd) -> bool:
    crowd.may_answer.set()
    status = (await http.get("/v2/echo/requests")).status_code
    assert status in (200, 429)
    return status == 200


async def test_a_third_at_once_is_refused_and_let_in_after_an_answer(
    http: httpx2.AsyncClient, crowd: Crowd
) -> None:
    callers = crowd.come()
    await settled()
    refused = await http.get("/v2/echo/requests")
    assert refused.status_code == 429
    assert "/requests of endpoint echo takes at most 2 requests at once" in refused.json()["error"]
    assert rate_headers(refused) == ({"q": 2}, {"r": 0})
    assert refused.headers["ratelimit-policy"] == '"concurrent";q=2;qu="concurrent-requests"'
    assert refused.headers["retry-after"] == "1"
    crowd.may_answer.set()
    await asyncio.gather(*(task for _, task in callers))
    assert await free(http, crowd)


async def test_a_place_is_taken_until_the_answer_was_written(http: httpx2.AsyncClient, crowd: Crowd) -> None:
    callers = [Caller("GET", "/v2/echo/requests") for _ in range(2)]
    for caller in callers:
        caller.may_send = asyncio.Semaphore(1)  # the head goes out, the body is held up
    tasks = [caller.call(crowd.app) for caller in callers]
    crowd.may_answer.set()
    await settled()
    assert not await free(http, crowd)
    for caller in callers:
        caller.may_send.release()
    await asyncio.gather(*tasks)
    assert await free(http, crowd)


@pytest.mark.parametrize("error", [RuntimeError("a mistake"), Unavailable("the store is full")])
async def test_a_mistake_gives_the_place_back(
    http: httpx2.AsyncClient, crowd: Crowd, plane: FakePlane, error: Exception
) -> None:
    for _ in range(2):
        callers = crowd.come()
        await settled()
        crowd.errors += [error, error]
        crowd.may_answer.set()
        for caller, task in callers:
            await task
            assert (await caller.sent.get())["status"] in (500, 503)
        crowd.may_answer.clear()
    assert await free(http, crowd)


async def test_a_request_that_is_cancelled_gives_its_place_back(
    http: httpx2.AsyncClient, crowd: Crowd
) -> None:
    callers = crowd.come()
    await settled()
    for _, task in callers:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await free(http, crowd)


HELD = [("runsync", "POST"), ("status-sync/x", "GET"), ("stream/x", "GET")]


@pytest.fixture
def one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation has room for one."""
    small = {name: RateLimit(limit.window, 1) for name, limit in RATE_LIMITS.items()}
    monkeypatch.setattr("stoker.control.auth.rate_limits.RATE_LIMITS", small)


def held_caller(path: str, method: str) -> Caller:
    caller = Caller(method, f"/v2/echo/{path}")
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": b'{"input":{}}', "more_body": False})
    return caller


@pytest.mark.usefixtures("one_place")
@pytest.mark.parametrize(("path", "method"), HELD)
async def test_a_caller_that_leaves_while_it_is_held_gives_its_place_up(
    app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch, path: str, method: str
) -> None:
    monkeypatch.setattr(calls, "WATCH_AFTER_S", 0.0)
    plane.add(id="x", state=JobState.IN_PROGRESS)
    first, second, third = (held_caller(path, method) for _ in range(3))
    tasks = [first.call(app)]
    await plane.held.wait()
    await settled()
    await second.call(app)
    assert (await second.sent.get())["status"] == 429
    first.leave()
    await settled()
    tasks.append(third.call(app))
    await settled()
    assert third.sent.empty()  # it is held, and so was let in
    assert len(plane.waits) == 2
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(("path", "method"), HELD)
async def test_what_only_waits_for_a_caller_ends_when_it_leaves_and_a_submission_goes_on(
    app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch, path: str, method: str
) -> None:
    """Or a caller that hangs up at once could have any number of waits under way."""
    monkeypatch.setattr(calls, "WATCH_AFTER_S", 0.0)
    plane.add(id="x", state=JobState.IN_PROGRESS)
    caller = held_caller(path, method)
    task = caller.call(app)
    await plane.held.wait()
    await settled()
    caller.leave()
    await settled()
    assert task.done() == (path != "runsync")
    assert caller.sent.empty()
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.usefixtures("one_place")
@pytest.mark.parametrize(("path", "method"), HELD)
async def test_an_answer_that_was_watched_arrives_and_gives_its_place_up_once(
    app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch, path: str, method: str
) -> None:
    monkeypatch.setattr(calls, "WATCH_AFTER_S", 0.0)
    plane.add(id="x", state=JobState.IN_PROGRESS)
    for _ in range(3):
        caller = held_caller(path, method)
        plane.held.clear()
        task = caller.call(app)
        await plane.held.wait()
        await settled()
        for job in plane.jobs:
            await plane.change(job, state=JobState.COMPLETED)
        await task
        assert (await caller.sent.get())["status"] == 200
        assert "COMPLETED" in await caller.text()
        for job in plane.jobs:
            await plane.change(job, state=JobState.IN_PROGRESS)


@pytest.mark.usefixtures("one_place")
async def test_a_caller_that_hangs_up_on_a_real_server_gives_its_place_up(
    app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "WATCH_AFTER_S", 0.0)
    plane.add(id="x", state=JobState.IN_PROGRESS)
    async with await serve_http(app, "127.0.0.1", 0, grace_s=0) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        path = "/v2/echo/status-sync/x"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: {KEY}\r\n\r\n".encode())
        await writer.drain()
        await plane.held.wait()
        plane.patience = 0.0  # whoever comes now is not held
        async with httpx2.AsyncClient(
            base_url=server.url, headers={"Authorization": KEY}, timeout=60
        ) as caller:
            assert (await caller.get(path)).status_code == 429
            writer.close()
            await writer.wait_closed()
            async with asyncio.timeout(60):
                while (await caller.get(path)).status_code == 429:
                    pass
        assert plane.waits == [90.0, 90.0]  # the one that left, and the first that was let in


@pytest.mark.usefixtures("one_place")
async def test_an_event_stream_takes_its_place_until_its_reader_leaves(
    app: ASGIApp, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    events = {"Accept": "text/event-stream"}
    first, second, third = (Caller("GET", f"/v2/echo/stream/{job}", events) for _ in range(3))
    reading = first.call(app)
    plane.events.put_nowait(StreamEvent("chunk", 1, 0, b"1"))
    await first.text()
    await second.call(app)
    assert (await second.sent.get())["status"] == 429
    first.leave()
    await reading
    again = third.call(app)
    assert (await third.sent.get())["status"] == 200
    third.leave()
    await again


async def test_a_submission_that_takes_long_to_send_is_not_watched(
    app: ASGIApp, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch hears the caller's messages: before the body has come they are the body's."""
    monkeypatch.setattr(calls, "WATCH_AFTER_S", 0.0)
    caller = Caller("POST", "/v2/echo/runsync")
    caller.inbox.get_nowait()
    task = caller.call(app)
    for part in (b'{"input"', b":{", b"}}"):
        caller.inbox.put_nowait({"type": "http.request", "body": part, "more_body": part != b"}}"})
        await settled()
    await plane.held.wait()
    (job,) = plane.jobs
    assert plane.submitted[0].input == b"{}"
    await plane.change(job, state=JobState.COMPLETED)
    await task


async def test_openai_routes_share_a_row_of_their_own_and_refuse_in_their_shape(
    http: httpx2.AsyncClient, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {**RATE_LIMITS, "openai": RateLimit(2, 400)}
    monkeypatch.setattr("stoker.control.auth.rate_limits.RATE_LIMITS", small)
    for path in ("chat/completions", "embeddings"):
        plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", plane.add(state=JobState.COMPLETED)))
        assert (await http.post(f"/v2/echo/openai/v1/{path}", json={})).status_code == 200
    refused = await http.get("/v2/echo/openai/v1/models")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
    assert refused.json()["error"]["type"] == "rate_limit_error"
    assert (await http.post("/v2/echo/run", json={"input": {}})).status_code == 200
