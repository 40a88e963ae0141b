"""Each operation's way through: what it asks of the plane, what it answers, what leaving does."""

import asyncio
import logging
from pathlib import Path

import httpx
import pytest
from asgi_caller import Caller
from fake_plane import FakePlane
from fastapi import FastAPI

from stoker.control.errors import Unavailable
from stoker.control.types import Health, JobState, JobView

DONE = JobView("", "", JobState.COMPLETED, 0.0, worker="w", delay_ms=1, execution_ms=2, output=b'{"x":1}')


async def test_run_answers_with_an_id(http: httpx.AsyncClient, plane: FakePlane) -> None:
    response = await http.post("/v2/echo/run", json={"input": {"x": 1}})
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    job = response.json()["id"]
    assert response.json() == {"id": job, "status": "IN_QUEUE"}
    assert plane.jobs[job].sync is False
    assert plane.submitted[0].input == b'{"x":1}'


async def test_the_content_type_does_not_matter(http: httpx.AsyncClient) -> None:
    response = await http.post(
        "/v2/echo/run", content=b'{"input":{}}', headers={"Content-Type": "text/plain"}
    )
    assert response.status_code == 200


async def test_runsync_answers_with_the_record(http: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.ends_at_once = DONE
    response = await http.post("/v2/echo/runsync", json={"input": {}})
    told = response.json()
    assert told.pop("id").startswith("sync-")
    assert told == {
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
async def test_runsync_waits_as_asked(
    http: httpx.AsyncClient, plane: FakePlane, path: str, seconds: float
) -> None:
    plane.ends_at_once = DONE
    assert (await http.post(path, json={"input": {"prompt": "x"}})).status_code == 200
    assert plane.waits == [seconds]


@pytest.mark.parametrize("state", [JobState.TIMED_OUT, JobState.CANCELLED, JobState.FAILED])
async def test_a_hosted_runsync_ends_completed_or_failed(
    http: httpx.AsyncClient, plane: FakePlane, state: JobState
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


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_status_and_status_sync(http: httpx.AsyncClient, plane: FakePlane, method: str) -> None:
    job = plane.add(state=JobState.COMPLETED, output=b"7").id
    for operation in ("status", "status-sync"):
        response = await http.request(method, f"/v2/echo/{operation}/{job}?wait=1000")
        assert (response.status_code, response.json()["output"]) == (200, 7)
    assert plane.waits == [1.0]


async def test_status_sync_is_held_until_the_end(http: httpx.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(state=JobState.IN_PROGRESS).id
    held = asyncio.create_task(http.get(f"/v2/echo/status-sync/{job}"))
    await plane.held.wait()
    assert not held.done()
    await plane.change(job, state=JobState.COMPLETED, output=b"1")
    assert (await held).json()["status"] == "COMPLETED"
    assert plane.waits == [90.0]


async def test_cancel(http: httpx.AsyncClient, plane: FakePlane) -> None:
    job, ended = plane.add().id, plane.add(state=JobState.COMPLETED).id
    response = await http.post(f"/v2/echo/cancel/{job}", json={})
    assert response.json() == {"id": job, "status": "CANCELLED"}
    assert (await http.post(f"/v2/echo/cancel/{ended}")).json() == {"id": ended, "status": "COMPLETED"}


async def test_health(http: httpx.AsyncClient, plane: FakePlane) -> None:
    plane.counted = Health(completed=27, throttled=1)
    told = (await http.get("/v2/echo/health")).json()
    assert (told["jobs"]["completed"], told["workers"]["throttled"]) == (27, 1)
    assert len(told["jobs"]) + len(told["workers"]) == 11


async def test_the_probe_needs_no_key(app: FastAPI) -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://stoker") as stranger:
        assert (await stranger.get("/ping")).json() == {"status": "ok"}


async def test_leaving_during_runsync_leaves_the_job_running(app: FastAPI, plane: FakePlane) -> None:
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


async def test_leaving_within_the_body_submits_nothing(app: FastAPI, plane: FakePlane) -> None:
    caller = Caller("POST", "/v2/echo/run")
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": b'{"input":{}}', "more_body": True})
    caller.leave()
    await caller.call(app)
    assert plane.submitted == []
    assert caller.sent.empty()


async def test_a_full_store_is_a_503_that_says_when_to_come_back(
    http: httpx.AsyncClient, plane: FakePlane
) -> None:
    plane.raises = Unavailable("the disk of the data folder is full", retry_after=7)
    response = await http.post("/v2/echo/run", json={"input": {}})
    assert response.status_code == 503
    assert response.headers["retry-after"] == "7"
    assert response.json()["error"] == "the disk of the data folder is full"


async def test_what_nobody_expected_is_logged_and_named_by_an_id(
    http: httpx.AsyncClient, plane: FakePlane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.raises = RuntimeError("the secret detail")
    with caplog.at_level(logging.ERROR):
        response = await http.post("/v2/echo/run", json={"input": {}})
    assert response.status_code == 500
    told = response.json()
    assert set(told) == {"error", "status", "title", "detail"}
    assert "secret" not in response.text
    number = told["error"].rpartition(" ")[2]
    assert number in caplog.text
    assert "the secret detail" in caplog.text


async def test_a_request_that_is_cancelled_by_the_server_gets_a_503(app: FastAPI, plane: FakePlane) -> None:
    plane.add(id="x")
    caller = Caller("GET", "/v2/echo/status-sync/x")
    request = caller.call(app)
    await plane.held.wait()
    request.cancel()
    await request
    assert (await caller.sent.get())["status"] == 503
    assert "stopping" in await caller.text()


async def test_the_document_lists_every_answer(http: httpx.AsyncClient) -> None:
    document = (await http.get("/openapi.json")).json()
    paths = document["paths"]
    assert set(paths["/v2/{endpoint_id}/run"]["post"]["responses"]) == {
        "200", "400", "401", "404", "405", "413", "500", "503",
    }  # fmt: skip
    assert set(paths["/v2/{endpoint_id}/status/{job_id}"]) == {"get", "post"}
    assert set(paths) == {
        f"/v2/{{endpoint_id}}/{operation}"
        for operation in (
            "run", "runsync", "status/{job_id}", "status-sync/{job_id}", "stream/{job_id}",
            "cancel/{job_id}", "health",
        )
    }  # fmt: skip
    for methods in paths.values():
        for described in methods.values():
            assert described["summary"]
            for answer in described["responses"].values():
                assert answer["content"]["application/json"]["examples"]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert (await http.get("/docs")).status_code == 200


def test_no_middleware_that_wraps_responses(app: FastAPI) -> None:
    assert app.user_middleware == []
    source = Path(__file__).parents[2] / "control" / "api"
    assert not [file.name for file in source.glob("*.py") if "BaseHTTPMiddleware" in file.read_text()]
