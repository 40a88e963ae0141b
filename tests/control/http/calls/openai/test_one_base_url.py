"""`/openai/v1`, the base URL of all endpoints: the model is the endpoint, and each key has its own list."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from stoker.control.errors import BadRequest
from stoker.control.http.openai.requests import OpenAIRequest, at_endpoint
from stoker.control.rules.access import Access
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.types import LOAD_BALANCER, JobView
from stoker.models.talking_video.declaration import SCHEMA
from tests.control.http.calls.fake_plane import FakePlane, endpoint

CHAT = "/openai/v1/chat/completions"


def ended(output: Any) -> StreamEvent:
    view = JobView("j", "echo", JobState.COMPLETED, 7.5, attempt=1, output=json.dumps(output).encode())
    return StreamEvent("end", 1, 0, b"null", view)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("echo", "echo"),
        ("other-echo", "other-echo"),
        ("echo/tiny", "tiny"),
        ("echo/meta/tiny", "meta/tiny"),
    ],
)
async def test_the_model_is_the_endpoint_and_after_a_slash_its_handlers(
    model: str, given: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    plane.events.put_nowait(ended({"choices": []}))
    answer = await http.post(CHAT, json={"model": model, "messages": []})
    assert (answer.status_code, answer.json()) == (200, {"choices": []})
    [view], [submission] = plane.jobs.values(), plane.submitted
    assert view.endpoint == "echo"
    assert json.loads(submission.input) == {
        "openai_route": "/v1/chat/completions",
        "openai_input": {"model": given, "messages": []},
    }


async def test_the_list_is_what_the_key_may_call(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.endpoints.put(replace(endpoint("web"), type=LOAD_BALANCER))
    plane.endpoints.put(replace(endpoint("theirs"), account="other"))
    requested = {"replay": {"job": "j", "endpoint": "sized", "node": "n1", "stop_after": 0}}
    plane.endpoints.put(replace(endpoint("a-replay"), requested=requested))
    listed = (await http.get("/openai/v1/models")).json()
    assert (listed["object"], [one["id"] for one in listed["data"]]) == (
        "list",
        ["a-replay", "echo", "sized", "text-to-image", "web"],
    )
    rights = {"echo": "write", "sized": "read", "a-replay": "write"}
    plane.access["some"] = Access("restricted", endpoints=rights)
    some = {"authorization": "Bearer some"}
    assert [one["id"] for one in (await http.get("/openai/v1/models", headers=some)).json()["data"]] == [
        "echo"
    ]
    one = await http.get("/openai/v1/models/other-echo", headers=some)
    assert (one.json()["id"], one.json()["object"]) == ("echo", "model")
    for hidden in ("sized", "a-replay", "theirs", "web", "none"):
        refused = await http.get(f"/openai/v1/models/{hidden}", headers=some)
        assert (refused.status_code, refused.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        ("POST", CHAT, {}, {}, 400, "model must name an endpoint at this base URL"),
        ("POST", CHAT, {"model": 3}, {}, 400, "got 3"),
        ("POST", CHAT, {"model": "none"}, {}, 404, "no endpoint 'none'"),
        ("POST", CHAT, {"model": "web"}, {}, 400, "is load-balancing and takes no jobs"),
        ("POST", CHAT, {"model": "echo"}, {"authorization": "Bearer wrong"}, 401, "invalid api key"),
        ("POST", CHAT, {"model": "sized"}, {"authorization": "Bearer some"}, 401, "may not change anything"),
        ("GET", "/openai/v1/models", None, {"authorization": ""}, 401, "no token provided"),
        ("GET", "/openai/v1/files", None, {}, 404, "is of no endpoint at /openai"),
        ("GET", "/openai/v1/videos/none", None, {}, 404, "no video 'none'"),
        ("PUT", CHAT, {}, {}, 405, "PUT is not allowed here"),
        ("POST", "/openai/v1/videos", {"model": "text-to-image"}, {}, 404, "is not served by text-to-image"),
    ],
)
async def test_a_refusal_has_the_shape_that_the_clients_read(
    method: str,
    path: str,
    body: Any,
    headers: dict[str, str],
    status: int,
    message: str,
    http: httpx2.AsyncClient,
    plane: FakePlane,
) -> None:
    plane.endpoints.put(replace(endpoint("web"), type=LOAD_BALANCER))
    plane.access["some"] = Access("restricted", endpoints={"echo": "write"})
    answer = await http.request(method, path, json=body, headers=headers)
    error = answer.json()["error"]
    assert (answer.status_code, set(error)) == (status, {"message", "type", "param", "code"})
    assert message in error["message"]
    assert plane.submitted == []


async def test_a_video_is_found_by_its_id(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.endpoints.put(endpoint("talking-video", hosted=True, schema=SCHEMA))
    urls = {"input_reference": "https://a.test/i.png", "audio": "https://a.test/v.wav"}
    sent = {"model": "talking-video", "prompt": "a", **urls}
    made = (await http.post("/openai/v1/videos", json=sent)).json()
    found = (await http.get(f"/openai/v1/videos/{made['id']}")).json()
    assert (found["id"], found["model"], found["status"]) == (made["id"], "talking-video", "queued")
    assert (await http.get(f"/openai/v1/videos/{made['id']}/content")).status_code == 404, "not made yet"


async def test_a_form_names_its_endpoint_too(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.events.put_nowait(ended({"text": "hello"}))
    answer = await http.post(
        "/openai/v1/audio/transcriptions", data={"model": "echo/tiny"}, files={"file": ("a.wav", b"RIFF")}
    )
    assert answer.json() == {"text": "hello"}
    [view] = plane.jobs.values()
    assert view.endpoint == "echo"


def test_only_a_text_names_an_endpoint() -> None:
    for body in (None, {}, {"model": ""}, {"model": []}):
        with pytest.raises(BadRequest, match="model must name an endpoint"):
            at_endpoint(OpenAIRequest("/v1/x", body))
    assert at_endpoint(OpenAIRequest("/v1/x", {"model": "a/"}))[1].body == {"model": ""}
