"""Each operation's way through: what it asks of the plane, what it answers, what leaving does."""

import asyncio
import logging
from pathlib import Path

import httpx2
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.errors import Unavailable
from stoker.control.http.calls.app import make_app
from stoker.control.jobs.replay_rules import Wish
from stoker.control.rules.attempts import Attempt, JobAttempts
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import AttemptLog
from stoker.control.rules.types import EndpointHealth, JobView, Listing
from tests.control.http.calls.asgi_caller import Caller
from tests.control.http.calls.fake_plane import FakePlane

JSON = {"Content-Type": "application/json"}
DONE = JobView("", "", JobState.COMPLETED, 0.0, worker="w", delay_ms=1, execution_ms=2, output=b'{"x":1}')


async def test_run_answers_with_an_id(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    response = await http.post("/v2/echo/run", json={"input": {"x": 1}})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    job = response.json()["id"]
    assert response.json() == {"id": job, "status": "IN_QUEUE"}
    assert plane.jobs[job].sync is False
    assert plane.submitted[0].input == b'{"x":1}'


async def test_the_content_type_does_not_matter(http: httpx2.AsyncClient) -> None:
    response = await http.post(
        "/v2/echo/run", content=b'{"input":{}}', headers={"Content-Type": "text/plain"}
    )
    assert response.status_code == 200


async def test_runsync_answers_with_the_record(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.ends_at_once = DONE
    response = await http.post("/v2/echo/runsync", json={"input": {}})
    body = response.json()
    assert body.pop("id").startswith("sync-")
    assert body == {
        "status": "COMPLETED",
        "delayTime": 1,
        "executionTime": 2,
        "workerId": "w",
        "output": {"x": 1},
    }


@pytest.mark.parametrize(
    ("path", "seconds"),
    [
        ("/v2/echo/runsync", 90.0),
        ("/v2/echo/runsync?wait=1000", 1.0),
        ("/v2/echo/runsync?wait=300000", 300.0),
        ("/v2/text-to-image/runsync", 300.0),
        ("/v2/text-to-image/runsync?wait=2500", 2.5),
    ],
)
async def test_runsync_waits_as_requested(
    http: httpx2.AsyncClient, plane: FakePlane, path: str, seconds: float
) -> None:
    plane.ends_at_once = DONE
    assert (await http.post(path, json={"input": {"prompt": "x"}})).status_code == 200
    assert plane.waits == [seconds]


@pytest.mark.parametrize("state", [JobState.TIMED_OUT, JobState.CANCELLED, JobState.FAILED])
async def test_a_hosted_runsync_ends_completed_or_failed(
    http: httpx2.AsyncClient, plane: FakePlane, state: JobState
) -> None:
    plane.ends_at_once = JobView("", "", state, 0.0)
    hosted = await http.post("/v2/text-to-image/runsync", json={"input": {"prompt": "x"}})
    own = await http.post("/v2/echo/runsync", json={"input": {}})
    assert (hosted.status_code, hosted.json()["status"]) == (200, "FAILED")
    assert hosted.json()["error"]
    assert (own.status_code, own.json()["status"]) == (200, state.value)
    # Only the synchronous result is told so: the record keeps the state.
    status = await http.get(f"/v2/text-to-image/status/{hosted.json()['id']}")
    assert status.json()["status"] == state.value


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("/v2/text-to-image/runsync", "FAILED"),
        ("/v2/text-to-image/runsync?wait=1000", "IN_QUEUE"),  # the caller asked for the record by then
        ("/v2/echo/runsync", "IN_QUEUE"),
    ],
)
async def test_a_hosted_runsync_has_an_end_when_its_wait_passes(
    http: httpx2.AsyncClient, plane: FakePlane, path: str, reported: str
) -> None:
    plane.patience = 0.0
    record = (await http.post(path, json={"input": {"prompt": "x"}})).json()
    assert record["status"] == reported


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_status_and_status_sync(http: httpx2.AsyncClient, plane: FakePlane, method: str) -> None:
    job = plane.add(state=JobState.COMPLETED, output=b"7").id
    for operation in ("status", "status-sync"):
        response = await http.request(method, f"/v2/echo/{operation}/{job}?wait=1000")
        assert (response.status_code, response.json()["output"]) == (200, 7)
    assert plane.waits == [1.0]


async def test_status_sync_is_held_until_the_end(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    held = asyncio.create_task(http.get(f"/v2/echo/status-sync/{job}"))
    await plane.held.wait()
    assert not held.done()
    await plane.change(job, state=JobState.COMPLETED, output=b"1")
    assert (await held).json()["status"] == "COMPLETED"
    assert plane.waits == [90.0]


@pytest.mark.parametrize("content", [b"", b"{}", b"not json"])
async def test_cancel(http: httpx2.AsyncClient, plane: FakePlane, content: bytes) -> None:
    job = plane.add(state=JobState.IN_PROGRESS, worker="w", delay_ms=4).id
    response = await http.post(f"/v2/echo/cancel/{job}", content=content, headers=JSON)
    assert response.status_code == 200
    assert response.json() == {
        "id": job, "status": "CANCELLED", "delayTime": 4, "executionTime": 0, "workerId": "w"
    }  # fmt: skip


async def test_cancelling_what_has_ended_answers_with_its_record(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    job = plane.add(state=JobState.COMPLETED, output=b'{"x":1}', worker="w").id
    before = (await http.get(f"/v2/echo/status/{job}")).json()
    assert (await http.post(f"/v2/echo/cancel/{job}")).json() == before
    assert (before["status"], before["output"]) == ("COMPLETED", {"x": 1})


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.TIMED_OUT])
async def test_retry(http: httpx2.AsyncClient, plane: FakePlane, state: JobState) -> None:
    job = plane.add(state=state, error="boom").id
    response = await http.post(f"/v2/echo/retry/{job}", headers=JSON)
    assert (response.status_code, response.json()) == (200, {"id": job, "status": "IN_QUEUE"})
    assert plane.jobs[job].state is JobState.IN_QUEUE


async def test_what_did_not_fail_cannot_be_retried(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(state=JobState.COMPLETED).id
    response = await http.post(f"/v2/echo/retry/{job}")
    assert response.status_code == 400
    assert "FAILED and TIMED_OUT" in response.json()["error"]


@pytest.mark.parametrize("content", [b"", b"{}"])
async def test_purge_queue(http: httpx2.AsyncClient, plane: FakePlane, content: bytes) -> None:
    queued = [plane.add().id for _ in range(3)]
    running = plane.add(state=JobState.IN_PROGRESS).id
    response = await http.post("/v2/echo/purge-queue", content=content, headers=JSON)
    assert (response.status_code, response.json()) == (200, {"removed": 3, "status": "completed"})
    body = (await http.get(f"/v2/echo/status/{queued[0]}")).json()
    assert (body["status"], body["reason"]) == ("CANCELLED", "purged")
    assert plane.jobs[running].state is JobState.IN_PROGRESS
    assert (await http.post("/v2/echo/purge-queue")).json() == {"removed": 0, "status": "completed"}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("query", "ttl"),
    [("", None), ("?ttl=1000", 1000), ("?ttl=604800000", 604_800_000), ("?ttl=9&ttl=2000", 2000)],
)
async def test_status_may_shorten_a_jobs_life(
    http: httpx2.AsyncClient, plane: FakePlane, method: str, query: str, ttl: int | None
) -> None:
    job = plane.add().id
    assert (await http.request(method, f"/v2/echo/status/{job}{query}")).status_code == 200
    assert plane.ttls == [ttl]


async def test_requests_are_listed_newest_first_a_page_at_a_time(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    jobs = [plane.add(created_at=1.5 + n, state=JobState.COMPLETED, output=b"7").id for n in range(5)]
    plane.add(endpoint="sized")
    first = (await http.get("/v2/echo/requests?limit=2")).json()
    assert [record["id"] for record in first["requests"]] == [jobs[4], jobs[3]]
    assert first["requests"][0] == {
        "id": jobs[4], "status": "COMPLETED", "delayTime": 0, "executionTime": 0, "workerId": "",
        "createdAt": 5500,
    }  # fmt: skip
    second = (await http.get(f"/v2/echo/requests?limit=2&cursor={first['cursor']}")).json()
    last = (await http.get(f"/v2/echo/requests?limit=2&cursor={second['cursor']}")).json()
    assert [record["id"] for record in second["requests"] + last["requests"]] == jobs[2::-1]
    assert last["cursor"] is None


@pytest.mark.parametrize(
    ("query", "listing"),
    [
        ("", Listing()),
        ("?status=IN_QUEUE", Listing(state=JobState.IN_QUEUE)),
        ("?since=1700000000123&limit=1000", Listing(since=1700000000.123, limit=1000)),
        ("?since=0&cursor=17&unknown=x", Listing(since=0.0, before=17)),
        ("?until=1500&worker=w&node=n", Listing(until=1.5, worker="w", node="n")),
        ("?error=out%20of%20memory", Listing(error="out of memory")),
    ],
)
async def test_what_a_listing_asks_for(
    http: httpx2.AsyncClient, plane: FakePlane, query: str, listing: Listing
) -> None:
    assert (await http.get(f"/v2/echo/requests{query}")).json() == {"requests": [], "cursor": None}
    assert plane.listings == [listing]


async def test_logs_of_each_attempt(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job, silent = plane.add().id, plane.add().id
    timed = AttemptLog(1, "w1", ("a", "b"), times=(1_764_292_471_207, 1_764_292_474_018))
    plane.written[job] = (timed, AttemptLog(2, "w2", ()))
    assert (await http.get(f"/v2/echo/logs/{job}")).json() == {
        "id": job,
        "logs": [
            {"attempt": 1, "worker": "w1", "lines": ["a", "b"], "printedAt": [*timed.times]},
            {"attempt": 2, "worker": "w2", "lines": []},
        ],
    }
    assert (await http.get(f"/v2/echo/logs/{silent}")).json() == {"id": silent, "logs": []}


async def test_the_input_of_a_job(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add().id
    assert (await http.get(f"/v2/echo/input/{job}")).json() == {"id": job, "input": {"of": job}}
    assert (await http.get("/v2/echo/input/none")).status_code == 404


async def test_attempts_with_their_moments(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add().id
    lost = Attempt(1, "w1", "n1", 10.0, ended_at=12.5, cause="node_lost", reason="no word")
    ended = Attempt(2, "w2", None, 13.0, 20, 1_000, 13.5, 15.0, 16.0, "completed")
    plane.tried[job] = JobAttempts(9.0, 16.0, (lost, ended, Attempt(3, "w3", "n1", 17.0)))
    assert (await http.get(f"/v2/echo/attempts/{job}")).json() == {
        "id": job,
        "createdAt": 9_000,
        "endedAt": 16_000,
        "attempts": [
            {
                **{"attempt": 1, "worker": "w1", "node": "n1", "assignedAt": 10_000, "endedAt": 12_500},
                **{"end": "node_lost", "reason": "no word"},
            },
            {
                **{"attempt": 2, "worker": "w2", "assignedAt": 13_000, "startedAt": 13_020},
                **{"firstChunkAt": 13_500, "uploadingAt": 14_020, "endedAt": 16_000},
                **{"executionTime": 1_000, "end": "completed"},
            },
            {"attempt": 3, "worker": "w3", "node": "n1", "assignedAt": 17_000},
        ],
    }
    waiting = plane.add(created_at=9.0).id
    assert (await http.get(f"/v2/echo/attempts/{waiting}")).json() == {
        "id": waiting,
        "createdAt": 9_000,
        "attempts": [],
    }
    assert (await http.get("/v2/echo/attempts/none")).status_code == 404


@pytest.mark.parametrize("operation", ["run", "runsync"])
async def test_an_idempotency_key_makes_one_job(
    http: httpx2.AsyncClient, plane: FakePlane, operation: str
) -> None:
    plane.ends_at_once = DONE
    once = {"Idempotency-Key": "order-17"}
    body = [
        (await http.post(f"/v2/echo/{operation}", json={"input": {}}, headers=once)).json() for _ in range(3)
    ]
    assert body[0] == body[1] == body[2]
    assert len(plane.submitted) == 1
    other = await http.post(f"/v2/echo/{operation}", json={"input": {"x": 1}}, headers=once)
    assert (other.status_code, other.json()["title"]) == (422, "Unprocessable Entity")
    assert "order-17" in other.json()["error"]


async def test_a_key_of_run_does_not_serve_runsync(http: httpx2.AsyncClient) -> None:
    once = {"Idempotency-Key": "!" + "~" * 254}
    assert (await http.post("/v2/echo/run", json={"input": {}}, headers=once)).status_code == 200
    assert (await http.post("/v2/echo/runsync", json={"input": {}}, headers=once)).status_code == 422


async def test_health(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.counted = EndpointHealth(completed=27, throttled=1)
    body = (await http.get("/v2/echo/health")).json()
    assert (body["jobs"]["completed"], body["workers"]["throttled"]) == (27, 1)
    assert len(body["jobs"]) + len(body["workers"]) == 11


async def test_the_probe_needs_no_key(app: ASGIApp) -> None:
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker") as unauthenticated:
        assert (await unauthenticated.get("/ping")).json() == {"status": "ok"}


async def test_leaving_during_runsync_leaves_the_job_running(app: ASGIApp, plane: FakePlane) -> None:
    caller = Caller("POST", "/v2/echo/runsync")
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": b'{"input":{}}', "more_body": False})
    request = caller.call(app)
    await plane.held.wait()
    caller.leave()
    (job,) = plane.jobs
    assert plane.jobs[job].state is JobState.IN_QUEUE
    await plane.change(job, state=JobState.COMPLETED)
    await request


async def test_leaving_within_the_body_submits_nothing(app: ASGIApp, plane: FakePlane) -> None:
    caller = Caller("POST", "/v2/echo/run")
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": b'{"input":{}}', "more_body": True})
    caller.leave()
    await caller.call(app)
    assert plane.submitted == []
    assert caller.sent.empty()


async def test_a_full_store_is_a_503_that_says_when_to_come_back(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    plane.raises = Unavailable("the disk of the data folder is full", retry_after=7)
    response = await http.post("/v2/echo/run", json={"input": {}})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "7"
    assert response.json()["error"] == "the disk of the data folder is full"


async def test_what_nobody_expected_is_logged_and_named_by_an_id(
    http: httpx2.AsyncClient, plane: FakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.raises = RuntimeError("the secret detail")
    with caplog.at_level(logging.ERROR):
        response = await http.post("/v2/echo/run", json={"input": {}})
    assert response.status_code == 500
    body = response.json()
    assert set(body) == {"error", "status", "title", "detail"}
    assert "secret" not in response.text
    number = body["error"].rpartition(" ")[2]
    assert number in caplog.text
    assert "the secret detail" in caplog.text


async def test_a_request_that_is_cancelled_by_the_server_gets_a_503(app: ASGIApp, plane: FakePlane) -> None:
    plane.add(id="x")
    caller = Caller("GET", "/v2/echo/status-sync/x")
    request = caller.call(app)
    await plane.held.wait()
    request.cancel()
    await request
    assert (await caller.sent.get())["status"] == 503
    assert "stopping" in await caller.text()


async def test_the_document_lists_every_answer(http: httpx2.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    paths = document["paths"]
    assert set(paths["/v2/{endpoint_id}/run"]["post"]["responses"]) == {
        "200", "400", "401", "403", "404", "405", "408", "413", "415", "422", "429", "500", "503",
    }  # fmt: skip
    assert set(paths["/v2/{endpoint_id}/status/{job_id}"]) == {"get", "post"}
    assert set(paths) == {
        f"/v2/{{endpoint_id}}/{operation}"
        for operation in (
            "run", "runsync", "status/{job_id}", "status-sync/{job_id}", "stream/{job_id}",
            "cancel/{job_id}", "retry/{job_id}", "purge-queue", "requests", "logs/{job_id}", "files",
            "health", "case/{job_id}", "attempts/{job_id}", "input/{job_id}", "replay/{job_id}",
        )
    }  # fmt: skip
    for methods in paths.values():
        for described in methods.values():
            assert described["summary"]
            for answer in described["responses"].values():
                assert answer["content"]["application/json"]["schema"]
            assert described["security"] == [{"key": []}]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert (await http.get("/docs")).status_code == 200


def test_no_middleware_that_wraps_responses(app: ASGIApp) -> None:
    assert app.app.user_middleware == []
    source = Path(__file__).parents[4] / "control" / "http" / "calls"
    assert not [file.name for file in source.glob("*.py") if "BaseHTTPMiddleware" in file.read_text()]


async def test_a_file_is_kept_and_its_address_is_returned(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/v2/echo/files?name=a%20voice.wav", content=b"RIFF....")
    assert answer.status_code == 200
    kept = answer.json()
    assert kept["url"] == "https://objects.test/echo/a voice.wav"
    assert (kept["size"], kept["expiresAt"]) == (8, 86_400_000)
    for question, body, message in (
        ("name=x", b"", "the body must be a file; it is empty"),
        ("nam=x", b"x", "nam is not known here; allowed: name"),
    ):
        refused = await http.post(f"/v2/echo/files?{question}", content=body)
        assert (refused.status_code, refused.json()["error"]) == (400, message)
    assert (await http.post("/v2/nobody/files", content=b"x")).status_code == 404
    assert (await http.post("/v2/echo/files", content=b"x", headers={"Authorization": ""})).status_code == 401


@pytest.mark.parametrize("path", ["/v2/app/its/own/path", "/nothing"])
async def test_a_failure_below_the_routes_is_answered_in_our_shape(
    plane: FakePlane, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("nobody expected this")

    transport = httpx2.ASGITransport(make_app(plane, gateway=lambda otherwise: broken))
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker") as caller:
        response = await caller.get(path)
    assert (response.status_code, response.headers["content-type"]) == (500, "application/json")
    assert response.json()["error"].startswith("something went wrong here; the log has it as error ")
    assert len(caplog.records) == 1


async def test_a_replay_is_started_as_it_was_asked_for(plane: FakePlane, http: httpx2.AsyncClient) -> None:
    job = plane.add(state=JobState.FAILED).id
    answer = await http.post(f"/v2/echo/replay/{job}?node=gpu-1&fromStart=true&stopAfter=3&seed=7")
    assert answer.status_code == 200, answer.text
    assert plane.wishes == [Wish("gpu-1", from_start=True, stop_after=3, seed=7)]
    assert answer.json() == {"id": list(plane.jobs)[-1], "endpoint": "a-replay", "status": "IN_QUEUE"}
    for query, named in (
        ("", "node"),
        ("?node=a&stopAfter=-1", "stopAfter"),
        ("?node=a&fromStart=1", "fromStart"),
    ):
        answer = await http.post(f"/v2/echo/replay/{job}{query}")
        assert answer.status_code == 400
        assert named in answer.json()["error"]
