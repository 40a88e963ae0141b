"""Requests to a load-balancing endpoint, on virtual time: a real plane, workers in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
import pytest
from msgspec.structs import replace

from stoker.control.http.calls.answers import RECEIVED_TRAILERS
from stoker.control.http.gateway import exchange
from stoker.control.rules.nodes.ways import Reach
from stoker.wire.messages import WorkerState
from tests.control.http.gateway.memory_worker import Caller, Serve, Served, app_endpoint, site
from tests.control.plane_world import endpoint, story

LIMIT = 300_000


async def told(served: Served) -> None:
    """Responds with what came."""
    request = {"method": served.request.method.decode(), "target": served.request.target.decode()}
    served.respond(json.dumps({**request, "headers": served.headers, "body": served.body.decode()}).encode())


def error(caller: Caller) -> tuple[int, str, str]:
    body = json.loads(caller.body)
    return caller.status, body["error"], body["detail"]


@story
async def test_a_request_reaches_a_worker_without_the_key_and_its_response_names_the_worker() -> None:
    async with site(told) as s:
        [worker] = await s.ready()
        caller = await s.caller("/v2/app/a%20b/c?x=1&y=", "POST", content_length="4", x_own="1").run(
            b"bo", b"dy"
        )
        seen = json.loads(caller.body)
        assert (seen["method"], seen["target"], seen["body"]) == ("POST", "/a%20b/c?x=1&y=", "body")
        assert seen["headers"]["x-own"] == "1"
        assert seen["headers"]["x-forwarded-prefix"] == "/v2/app"
        assert "authorization" not in seen["headers"]
        assert (caller.status, caller.headers["x-runpod-worker-id"]) == (200, worker)
        await s.get()
        assert s.workers.connects == [worker]  # the connection was used again


@story
async def test_by_host_every_path_is_the_workers() -> None:
    async with site(told, app_endpoint(), endpoint("echo")) as s:
        await s.ready()
        for path in ("/run", "/health", "/v2/echo/run", "/"):
            seen = json.loads((await s.get(path, host="app.lb.example.org:8443")).body)
            assert seen["target"] == path
            assert "x-forwarded-prefix" not in seen["headers"]
        assert (await s.get("/", host="other.lb.example.org")).status == 404
        assert error(await s.get("/", host="echo.lb.example.org"))[1].startswith("not allowed for QB API")


@story
async def test_every_path_of_the_path_form_is_the_workers() -> None:
    async with site() as s:
        await s.ready()
        for method, path in (
            ("POST", "run"),
            ("GET", "status/j-1"),
            ("POST", "openai/v1/x"),
            ("GET", "run/x/y"),
            ("GET", "health"),
            ("GET", "health/x"),
            ("GET", "requests"),
            ("POST", "purge-queue"),
        ):
            answered = await s.caller(f"/v2/app/{path}", method).run()
            assert (answered.status, answered.body.split()[-1]) == (200, f"/{path}".encode())


@story
async def test_the_health_of_an_endpoint_is_controls_at_another_path() -> None:
    async with site() as s:
        await s.ready()
        await s.get()
        health = json.loads((await s.get("/v1/endpoints/app/health")).body)
        assert health["jobs"] == {"completed": 1, "failed": 0, "inProgress": 0, "inQueue": 0, "retried": 0}
        assert (health["workers"]["ready"], health["workers"]["idle"]) == (1, 1)


@story
async def test_without_a_key_there_is_nothing() -> None:
    async with site() as s:
        await s.ready()
        refused = await s.get(authorization="")
        assert error(refused) == (401, "no token provided", "no token provided")
        assert (await s.get(authorization="Bearer sk_no")).status == 401
        assert s.workers.connects == []


@story
async def test_another_worker_serves_beside_one_whose_ping_fails() -> None:
    async with site() as s:
        [ill] = await s.ready()
        assert (await s.get()).headers["x-runpod-worker-id"] == ill
        await s.tell(ill, "unhealthy", "GET /ping: status 500")
        began, waiting = s.w.loop.time(), asyncio.create_task(s.get())
        await asyncio.sleep(0.5)
        there = {one.worker for one in s.w.plane.cluster.of_endpoint("app")}
        assert ill in there, "it may become well"
        assert len(there) == 2
        served = await waiting
        assert served.status == 200
        assert served.headers["x-runpod-worker-id"] in there - {ill}
        assert s.w.loop.time() - began < 10.0, "about a cold start, and not the 120 s of a 503"


@story
async def test_no_worker_for_two_minutes_is_a_503() -> None:
    async with site(workers_max=0, workers_min=0) as s:
        began = s.w.loop.time()
        refused = await s.get()
        assert s.w.loop.time() - began == 120.0
        assert error(refused)[:2] == (503, "no workers available")
        assert "workersMax is 0" in error(refused)[2]


@story
async def test_a_request_waits_for_a_worker_and_brings_it_about() -> None:
    async with site(workers_min=0) as s:
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(s.get())
            await s.ready()
        assert waiting.result().status == 200
        await asyncio.sleep(60.0)
        assert s.agent.specs == {}  # idle for too long


@story
async def test_it_is_scaled_by_its_requests_in_flight() -> None:
    go = asyncio.Event()

    async def held(served: Served) -> None:
        await go.wait()
        served.respond(b"done")

    async with site(held, workers_max=5, scaler_value=2) as s, asyncio.TaskGroup() as tasks:
        await s.ready()
        for _ in range(5):
            tasks.create_task(s.get())
        await asyncio.sleep(3.0)
        assert len(s.agent.specs) == 3
        health = json.loads((await s.get("/v1/endpoints/app/health")).body)
        assert (health["jobs"]["inProgress"], health["workers"]["running"]) == (5, 1)
        go.set()
        await asyncio.sleep(60.0)
        assert len(s.agent.specs) == 1


@story
async def test_scaled_down_under_load_no_request_fails() -> None:
    go = asyncio.Event()

    async def held(served: Served) -> None:
        await go.wait()
        served.respond(b"done")

    async with site(held, workers_max=2, workers_min=2) as s, asyncio.TaskGroup() as tasks:
        workers = set(await s.ready(2))
        running = [tasks.create_task(s.get()) for _ in range(8)]
        await asyncio.sleep(1.0)
        plane = s.w.plane
        plane.endpoints.put(replace(plane.endpoints.by_id["app"], workers_max=1, workers_min=1))
        plane.scaling.wake.set()
        await asyncio.sleep(30.0)
        assert set(s.agent.specs) == workers
        later = tasks.create_task(s.get())
        await asyncio.sleep(1.0)
        go.set()
        answers = [await one for one in running]
        assert {one.status for one in answers} == {200}
        assert {one.headers["x-runpod-worker-id"] for one in answers} == workers
        await asyncio.sleep(5.0)
        assert set(s.agent.specs) == {later.result().headers["x-runpod-worker-id"]}


@story
async def test_workers_that_a_load_does_not_need_go_though_each_gets_some_of_it() -> None:
    go = asyncio.Event()

    async def soon(served: Served) -> None:
        await (go.wait() if served.request.target == b"/held" else asyncio.sleep(0.1))
        served.respond(b"done")

    async with site(soon, workers_max=3, workers_min=1) as s, asyncio.TaskGroup() as tasks:
        await s.ready()
        first = [tasks.create_task(s.get("/v2/app/held")) for _ in range(3)]
        await s.ready(3)
        go.set()
        answers = [await one for one in first]
        seen = set()
        for _ in range(600):
            answers.append(await s.get())
            seen.add(answers[-1].headers["x-runpod-worker-id"])
        assert {one.status for one in answers} == {200}
        assert len(seen) == 3
        assert len(s.agent.specs) == 1


@story
async def test_a_caller_that_leaves_while_it_waits_is_no_demand() -> None:
    async with site(workers_min=0) as s:
        caller = s.caller()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(caller.run())
            await asyncio.sleep(1.0)
            assert s.w.plane.requests.samples()["app"].queued == 1
            caller.leave()
            await running
        assert s.w.plane.requests.samples() == {}
        assert caller.status == 0


@story
async def test_a_response_that_takes_too_long_is_a_504() -> None:
    async def never(served: Served) -> None:
        await served.event()  # until the gateway closes the connection

    async with site(never) as s:
        [worker] = await s.ready()
        began = s.w.loop.time()
        late = await s.get()
        assert s.w.loop.time() - began == 330.0
        assert (late.status, late.headers["x-runpod-worker-id"]) == (504, worker)
        assert all(pipe.closed for pipe in s.workers.pipes)


@story
async def test_a_request_may_take_as_long_as_its_endpoint_allows() -> None:
    ended: list[object] = []

    async def never(served: Served) -> None:
        ended.append(await served.event())

    async with site(never, execution_timeout_ms=5_000) as s:
        [worker] = await s.ready()
        began = s.w.loop.time()
        late = await s.get()
        assert s.w.loop.time() - began == 5.0
        assert (late.status, late.headers["x-runpod-worker-id"]) == (504, worker)
        assert b"did not respond within 5 s" in late.body
        assert all(pipe.closed for pipe in s.workers.pipes), "the worker hears it, and ends the request"


@story
async def test_a_worker_that_breaks_fails_its_own_requests_alone() -> None:
    async def by_path(served: Served) -> None:
        match served.request.target:
            case b"/breaks":
                served.pipe.close()
            case b"/half":
                served.head(content_length="10")
                served.send(h11.Data(b"half"))
                await asyncio.sleep(1.0)
                served.pipe.close()
            case b"/nonsense":
                served.pipe.write(b"220 hello\r\n\r\n")
            case _:
                await asyncio.sleep(2.0)
                served.respond(b"whole")

    async with site(by_path) as s, asyncio.TaskGroup() as tasks:
        [worker] = await s.ready()
        whole = tasks.create_task(s.get())
        half = tasks.create_task(s.get("/v2/app/half"))
        for path in ("breaks", "nonsense"):
            failed = await s.get(f"/v2/app/{path}")
            assert (failed.status, failed.headers["x-runpod-worker-id"]) == (502, worker)
        assert ((await half).status, half.result().body, half.result().complete) == (200, b"half", False)
        assert ((await whole).status, whole.result().body) == (200, b"whole")
        assert s.w.plane.requests.failed["app"] == 3
        await asyncio.sleep(1.5)  # no connection is kept for so long
        s.workers.refuses[worker] = b"502 Bad Gateway"
        failed = await s.get()
        assert (failed.status, failed.headers["x-runpod-worker-id"]) == (502, worker)


@story
async def test_a_worker_that_cannot_be_reached_is_passed_over() -> None:
    async with site(workers_min=2) as s:
        first, second = await s.ready(2)
        s.workers.refuses[first] = b"404 Not Found"
        answers = [await s.get() for _ in range(6)]
        assert {(one.status, one.headers["x-runpod-worker-id"]) for one in answers} == {(200, second)}
        assert first in s.workers.connects
        assert (await s.get(x_runpod_worker_id=f"strict {first}")).status == 502
        assert s.w.plane.requests.in_progress("app") == 0


@story
async def test_what_a_dead_worker_never_received_waits_for_the_new_one() -> None:
    """Control hears of the death a moment after the requests."""
    async with site(told) as s, asyncio.TaskGroup() as tasks:
        [dead] = await s.ready()
        s.workers.refuses[dead] = b"502 Bad Gateway"
        posts = [
            tasks.create_task(s.caller(method="POST", content_length="4").run(b"wo", b"rk")) for _ in "ab"
        ]
        named = tasks.create_task(s.get(x_runpod_worker_id=f"strict {dead}"))
        await asyncio.sleep(0.5)
        assert not any(one.done() for one in (*posts, named))
        await s.agent.report(WorkerState(dead, "app", s.agent.specs[dead].version, "gone"))
        answers = [await one for one in posts]
        assert {one.status for one in answers} == {200}
        assert {json.loads(one.body)["body"] for one in answers} == {"work"}
        assert dead not in {one.headers["x-runpod-worker-id"] for one in answers}
        assert error(await named)[:2] == (404, "affinity_worker_gone")


async def dies_of(served: Served) -> None:
    if served.request.target == b"/die":
        return served.pipe.close()
    served.respond(b"lives")


@story
async def test_what_a_worker_died_of_kills_no_other() -> None:
    async with site(dies_of, workers_min=2) as s:
        first, _ = await s.ready(2)
        await s.get(x_runpod_worker_id=first)
        s.workers.refuses[first] = b"502 Bad Gateway"
        lost = await s.get("/v2/app/die", x_runpod_worker_id=first)
        assert (lost.status, lost.headers["x-runpod-worker-id"]) == (502, first)
        assert s.workers.connects == [first, first]


@story
async def test_a_worker_that_is_reached_again_gets_what_waits() -> None:
    async with site(told) as s, asyncio.TaskGroup() as tasks:
        [worker] = await s.ready()
        s.workers.refuses[worker] = b"502 Bad Gateway"
        waiting = tasks.create_task(s.get())
        await asyncio.sleep(2.5)
        del s.workers.refuses[worker]
        assert ((await waiting).status, s.w.plane.requests.in_progress("app")) == (200, 0)
        assert len(s.workers.connects) < 6


async def late_surplus(served: Served) -> None:
    """A second response, which nobody asked for, while the connection is kept."""
    served.respond(served.request.target)
    await asyncio.sleep(0.2)
    served.pipe.write(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nprivate")


@story
async def test_what_comes_unasked_while_a_connection_is_kept_closes_it() -> None:
    async with site(late_surplus) as s:
        await s.ready()
        for n in range(3):
            assert (await s.get(f"/v2/app/{n}")).body == b"/%d" % n
            await asyncio.sleep(0.3)
        assert len(s.workers.connects) == 3


async def rules_the_origin(served: Served) -> None:
    served.head(
        content_length="0", service_worker_allowed="/", set_cookie="a=1; Path=/", clear_site_data='"cookies"'
    )
    served.send(h11.EndOfMessage())


@story
async def test_by_path_a_worker_rules_nothing_beyond_its_endpoint() -> None:
    async with site(rules_the_origin) as s:
        await s.ready()
        by_path = await s.get()
        assert by_path.headers.keys().isdisjoint({"service-worker-allowed", "clear-site-data"})
        assert by_path.headers["set-cookie"] == "a=1; Path=/v2/app"
        by_name = await s.get("/", host="app.lb.example.org")
        assert by_name.headers["service-worker-allowed"] == "/"
        assert by_name.headers["set-cookie"] == "a=1; Path=/"
        refused = await s.get("/v2/app", service_worker="script")
        assert (refused.status, b"below /v2/app/" in refused.body) == (400, True)
        assert (await s.get("/v2/app/", service_worker="script")).status == 200


@story
async def test_what_cannot_be_passed_on_is_refused_without_a_parser_s_words() -> None:
    async with site() as s:
        await s.ready()
        none = error(await s.get(host=""))
        assert none[0] == 400
        assert "must have one Host header" in none[2]
        odd = error(await s.get(x_odd="a\0b"))
        assert (odd[0], "control characters" in odd[2], "\0" in odd[2]) == (400, True, False)


@story
async def test_an_unhealthy_worker_gets_no_requests_until_it_is_healthy_again() -> None:
    async with site(workers_min=2) as s:
        first, second = await s.ready(2)
        await s.tell(first, "unhealthy", "its health check answers 500")
        answers = [await s.get() for _ in range(6)]
        assert {one.headers["x-runpod-worker-id"] for one in answers} == {second}
        await s.tell(first, "ready")
        answers = [await s.get() for _ in range(12)]
        assert {one.headers["x-runpod-worker-id"] for one in answers} == {first, second}


@story
async def test_affinity() -> None:
    async with site(workers_min=2) as s:
        first, second = await s.ready(2)
        for form in ("{}", "strict {}", "strict-resume {}"):
            named = [await s.get(x_runpod_worker_id=form.format(first)) for _ in range(4)]
            assert {one.headers["x-runpod-worker-id"] for one in named} == {first}
        await s.tell(first, "unhealthy", "ill")
        assert (await s.get(x_runpod_worker_id=first)).headers["x-runpod-worker-id"] == second
        assert error(await s.get(x_runpod_worker_id="strict gone"))[:2] == (404, "affinity_worker_gone")
        assert (await s.get(x_runpod_worker_id="gone")).status == 200
        assert (await s.get(x_runpod_worker_id="strict a b")).status == 400
        began = s.w.loop.time()
        late = await s.get(x_runpod_worker_id=f"strict {first}")
        assert s.w.loop.time() - began == 300.0
        assert error(late) == (400, "worker_timeout", "timed out waiting for worker")


@story
async def test_bodies_have_a_limit() -> None:
    async def by_path(served: Served) -> None:
        if served.request.target == b"/large":
            served.head(content_length=str(LIMIT + 1))
        elif served.request.target == b"/endless":
            served.head(transfer_encoding="chunked")
            for _ in range(4):
                served.send(h11.Data(bytes(LIMIT // 3)))
                await asyncio.sleep(0.01)
        else:
            served.respond(str(len(served.body)).encode())

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exchange, "GATEWAY_BYTES", LIMIT)
        await _bodies(by_path)


async def _bodies(by_path: Serve) -> None:
    async with site(by_path) as s:
        await s.ready()
        third = bytes(LIMIT // 3)
        up = await s.caller("/v2/app/up", "POST", transfer_encoding="chunked").run(*[third] * 3)
        assert (up.status, up.body) == (200, str(LIMIT).encode())
        over = await s.caller("/v2/app/up", "POST", transfer_encoding="chunked").run(*[third] * 4)
        assert over.status == 413
        declared = await s.caller("/v2/app/up", "POST", content_length=str(LIMIT + 1)).run()
        assert declared.status == 413
        assert (await s.get("/v2/app/large")).status == 502
        endless = await s.get("/v2/app/endless")
        assert (endless.status, endless.complete, len(endless.body) <= LIMIT) == (200, False, True)


@story
async def test_each_piece_passes_before_the_next_is_made() -> None:
    go = asyncio.Event()

    async def events(served: Served) -> None:
        served.head(transfer_encoding="chunked", content_type="text/event-stream")
        served.send(h11.Data(b"data: first\n\n"))
        await go.wait()
        served.send(h11.Data(b"data: last\n\n"), h11.EndOfMessage())

    async with site(events) as s, asyncio.TaskGroup() as tasks:
        await s.ready()
        caller = s.caller()
        running = tasks.create_task(caller.run())
        await caller.until(b"first")
        assert b"last" not in caller.body
        go.set()
        await running
        assert (caller.complete, caller.headers["content-type"]) == (True, "text/event-stream")


@story
async def test_the_worker_knows_when_its_caller_left() -> None:
    left = asyncio.Event()

    async def held(served: Served) -> None:
        assert isinstance(await served.event(), h11.ConnectionClosed)
        left.set()
        raise h11.RemoteProtocolError("over")

    async with site(held) as s, asyncio.TaskGroup() as tasks:
        await s.ready()
        caller = s.caller()
        running = tasks.create_task(caller.run())
        await asyncio.sleep(1.0)
        caller.leave()
        await running
        await left.wait()
        assert s.w.plane.requests.samples() == {}


@story
async def test_a_response_may_end_before_the_request_does() -> None:
    async def at_once(served: Served) -> None:
        served.respond(b"enough", 413)

    async with site(at_once) as s, asyncio.TaskGroup() as tasks:
        await s.ready()
        caller = s.caller("/v2/app/up", "POST", content_length="4")
        running = tasks.create_task(caller.send_only())
        caller.put(b"bo")
        await asyncio.sleep(0.5)
        caller.put(b"dy", more=False)
        await running
        assert (caller.status, caller.body) == (413, b"enough")


@story
async def test_where_no_node_can_be_reached_it_says_so() -> None:
    async with site(workers_min=0) as s:
        s.w.plane.cluster.nodes["node-1"].reach = Reach()
        refused = await s.get()
        assert error(refused)[0] == 503
        assert "cannot be reached for requests" in error(refused)[2]


@story
async def test_callers_that_are_not_admitted_are_not_counted() -> None:
    """Their hosts are names of their choice: what was kept of each would fill the memory."""
    async with site() as s:
        await s.ready()
        for n in range(20):
            stranger = await s.get("/", host=f"x{n}.lb.example.org", authorization="")
            assert stranger.status == 401
        requests = s.w.plane.requests
        assert (list(requests.failed), list(requests.completed)) == ([], [])


async def one_byte_at_a_time(served: Served) -> None:
    match served.request.target:
        case b"/chunks":
            served.head(transfer_encoding="chunked", content_length="7")
            for _ in range(500):
                served.send(h11.Data(b"x"))
            served.send(h11.EndOfMessage())
        case _:
            served.pipe.write(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n")


@story
async def test_many_small_chunks_are_passed_on_as_what_one_read_brought() -> None:
    async with site(one_byte_at_a_time) as s:
        await s.ready()
        one = s.caller("/v2/app/chunks")
        sent: list[int] = []
        send = one._send

        async def count(message: dict[str, Any]) -> None:
            sent.append(len(message.get("body", b"")))
            await send(message)

        one._send = count  # type: ignore[method-assign]
        await one.run()
        assert (one.status, one.body, one.complete) == (200, b"x" * 500, True)
        assert len(sent) < 10
        assert "content-length" not in one.headers
        assert (await s.get("/v2/app/odd")).status == 502


async def with_trailers(served: Served) -> None:
    names = b" ".join(name for name, _ in served.trailers)
    served.head(transfer_encoding="chunked", trailer="x-sum")
    served.send(h11.Data(names + b"|" + served.headers.get("te", "").encode()))
    served.send(h11.EndOfMessage(headers=[("X-Sum", "9"), ("Connection", "x"), ("X-Runpod-Worker-Id", "w9")]))


@story
async def test_trailers_pass_both_ways_but_for_those_that_would_be_dropped_as_headers() -> None:
    async with site(with_trailers) as s:
        await s.ready()
        one = s.caller("/v2/app/up", "POST", transfer_encoding="chunked", te="trailers, gzip")
        received = [(b"x-sum", b"3"), (b"authorization", b"sk"), (b"content-type", b"a")]
        one.scope["state"][RECEIVED_TRAILERS] = received
        await one.run(b"abc")
        assert (one.body, one.complete) == (b"x-sum content-type|trailers", True)
        assert one.trailers == [(b"x-sum", b"9")]
        assert one.headers["trailer"] == "x-sum"
        await s.caller("/v2/app/up", "POST", transfer_encoding="chunked").run()
        assert len(s.workers.connects) == 1  # the connection was used again
