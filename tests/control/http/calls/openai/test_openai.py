"""`/openai/...`: what becomes of a request as jobs; how ends, chunks and refusals read to OpenAI clients."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json
from starlette.types import ASGIApp

from stoker.control.errors import BadRequest
from stoker.control.http.calls.forms import form_fields
from stoker.control.http.openai import answers, completions
from stoker.control.http.openai.images import parse_images
from stoker.control.http.openai.requests import OpenAIRequest
from stoker.control.large_json import LargeJson
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.submissions import parse_submission
from stoker.control.rules.types import JobView
from stoker.wire.object_keys import attempt_prefix
from tests.control.http.calls.asgi_caller import Caller
from tests.control.http.calls.fake_plane import FakePlane

CHAT = "/v2/echo/openai/v1/chat/completions"
IMAGES = "/v2/text-to-image/openai/v1/images/generations"
MESSAGES = {"model": "m", "messages": []}


def ended(state: JobState = JobState.COMPLETED, output: Any = None, **fields: Any) -> StreamEvent:
    data = None if output is None else json.dumps(output).encode()
    view = JobView("j", "echo", state, 7.5, attempt=1, output=data, **fields)
    return StreamEvent("end", 1, 0, b"null", view)


def chunk(value: Any, n: int = 0) -> StreamEvent:
    return StreamEvent("chunk", 1, n, json.dumps(value).encode())


def lost() -> StreamEvent:
    return StreamEvent("reset", 2, -1, b"null")


async def test_a_request_is_a_job_that_holds_its_route_and_its_body(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    for event in (chunk({"old": 1}), lost(), ended(output=[{"choices": []}])):
        plane.events.put_nowait(event)
    answer = await http.post(CHAT, json=MESSAGES)
    assert (answer.status_code, answer.json()) == (200, {"choices": []})
    (submission,) = plane.submitted
    assert json.loads(submission.input) == {
        "openai_route": "/v1/chat/completions",
        "openai_input": MESSAGES,
    }
    plane.events.put_nowait(ended(output={"data": []}))
    assert (await http.get("/v2/echo/openai/v1/models")).json() == {"data": []}
    assert json.loads(plane.submitted[1].input) == {"openai_route": "/v1/models"}


async def test_what_a_generator_yielded_is_the_answer_where_there_is_no_output(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    for event in (chunk({"old": 1}), lost(), chunk({"new": 1}), ended()):
        plane.events.put_nowait(event)
    assert (await http.post(CHAT, json=MESSAGES)).json() == {"new": 1}


@pytest.mark.parametrize(
    ("end", "status", "message"),
    [
        (ended(JobState.FAILED, error="no such model"), 500, "no such model"),
        (ended(JobState.TIMED_OUT, reason="over its time"), 504, "over its time"),
        (ended(JobState.CANCELLED), 503, "the job ended CANCELLED"),
        (ended(output=[{"error": {"message": "bad", "code": 404}}]), 404, "bad"),
        (ended(output={"error": "too long"}), 400, "too long"),
        (ended(output={"object": "error", "message": "m", "code": 99}), 400, "m"),
    ],
)
async def test_a_failure_keeps_its_message(
    end: StreamEvent, status: int, message: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    for streams in (False, True):
        if streams and end.view is not None and end.view.state is JobState.COMPLETED:
            continue  # its status line is out by then
        plane.events.put_nowait(end)
        answer = await http.post(CHAT, json={**MESSAGES, "stream": streams})
        assert (answer.status_code, answer.json()["error"]["message"]) == (status, message)
        assert answer.headers.get("x-should-retry") == ("false" if status >= 500 else None)


def delta(**fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": fields, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


async def test_a_generator_that_does_not_aggregate_answers_one_completion(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    last = {**delta(), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"n": 2}}
    first = f"data: {json.dumps(delta(role='assistant', content='Good '))}\n\n"
    for event in (
        chunk(first),
        chunk([delta(content="morning")], 1),
        chunk(last, 2),
        chunk("data: [DONE]", 3),
    ):
        plane.events.put_nowait(event)
    plane.events.put_nowait(ended(output=[]))
    answer = (await http.post(CHAT, json=MESSAGES)).json()
    message = {"role": "assistant", "content": "Good morning"}
    assert answer == {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "usage": {"n": 2},
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
    }


async def test_the_chunks_in_an_aggregated_output_are_one_completion_too(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    bare = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in ("Good ", "morning")]
    for chunks, content in (
        ([delta(content="Good "), delta(content="morning")], "Good morning"),
        (bare, "Good morning"),
    ):
        for n, one in enumerate(chunks):
            plane.events.put_nowait(chunk(one, n))
        plane.events.put_nowait(ended(output=chunks))
        [choice] = (await http.post(CHAT, json=MESSAGES)).json()["choices"]
        assert choice["message"]["content"] == content
    plane.events.put_nowait(chunk({"seen": 1}))
    plane.events.put_nowait(ended(output=[[1], [2]]))
    assert (await http.post(CHAT, json=MESSAGES)).json() == [[1], [2]], "any other output is as it is"


def posting(app: ASGIApp, path: str, body: object) -> tuple[Caller, asyncio.Task[None]]:
    caller = Caller("POST", path, {"content-type": "application/json"})
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
    return caller, caller.call(app)


def streaming(app: ASGIApp) -> tuple[Caller, asyncio.Task[None]]:
    return posting(app, CHAT, {"stream": True})


async def test_chunks_are_events_as_they_come(app: ASGIApp, plane: FakePlane) -> None:
    caller, request = streaming(app)
    plane.events.put_nowait(StreamEvent("progress", 1, 0, b"1"))
    plane.events.put_nowait(chunk('data: {"a": 1}\n\n'))
    assert await caller.text() == 'data: {"a": 1}\n\n'
    plane.events.put_nowait(chunk([{"b": 2}, "data: x"], 1))
    assert await caller.text() == 'data: {"b":2}\n\ndata: x\n\n'
    plane.events.put_nowait(ended())
    assert await caller.text() == "data: [DONE]\n\n"
    await request
    assert [view.state for view in plane.jobs.values()] == [JobState.IN_QUEUE], "nothing was cancelled"


async def test_a_done_of_the_handlers_own_is_not_repeated(app: ASGIApp, plane: FakePlane) -> None:
    caller, request = streaming(app)
    for event in (chunk("data: 1\n\n"), chunk("data: [DONE]\n\n", 1), ended()):
        plane.events.put_nowait(event)
    await request
    assert await bodies(caller) == "data: 1\n\ndata: [DONE]\n\n"


async def bodies(caller: Caller) -> str:
    sent = [caller.sent.get_nowait() for _ in range(caller.sent.qsize())]
    return b"".join(message.get("body", b"") for message in sent).decode()


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (ended(JobState.FAILED, error="out of memory"), "out of memory"),
        (lost(), "the worker was lost; send the request again"),
        (StreamEvent("stop", 1, 0, b"null"), "the service is stopping; send the request again"),
    ],
)
async def test_a_failure_in_the_middle_is_the_last_event(
    event: StreamEvent, message: str, app: ASGIApp, plane: FakePlane
) -> None:
    caller, request = streaming(app)
    plane.events.put_nowait(chunk("data: 1"))
    plane.events.put_nowait(event)
    await request
    first, last, rest = (await bodies(caller)).split("\n\n")
    assert (first, rest) == ("data: 1", "")
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == message
    cancelled = event.kind != "end"
    assert [view.state is JobState.CANCELLED for view in plane.jobs.values()] == [cancelled]


async def test_a_job_that_sends_no_chunk_sends_its_output(app: ASGIApp, plane: FakePlane) -> None:
    caller, request = streaming(app)
    plane.events.put_nowait(ended(output={"choices": [1]}))
    await request
    assert await bodies(caller) == 'data: {"choices":[1]}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("first", [[], [chunk("data: 1")]])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_caller_that_leaves_cancels_the_job(
    first: list[StreamEvent], streams: bool, app: ASGIApp, plane: FakePlane
) -> None:
    caller, request = posting(app, CHAT, {"stream": streams})
    for event in first:
        plane.events.put_nowait(event)
        if streams:
            await caller.text()
    await plane.followed(1)
    caller.leave()
    await request
    assert [view.state for view in plane.jobs.values()] == [JobState.CANCELLED]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "message"),
    [
        (CHAT, b"[1]", {}, 400, "the body must be a JSON object"),
        (CHAT, b"{", {}, 400, "the body must be JSON (application/json)"),
        (CHAT, b'{"a": NaN}', {}, 400, "the body must be JSON (application/json)"),
        (
            CHAT,
            b"x",
            {"content-type": "multipart/form-data; boundary=a"},
            400,
            "the body is not multipart/form-data",
        ),
        (CHAT, b"{}", {"authorization": "Bearer wrong"}, 401, "invalid api key"),
        (CHAT, b"{}", {"authorization": ""}, 401, "no token provided"),
        ("/v2/echo/openai/v1/models", b"", {"authorization": ""}, 401, "no token provided"),
        ("/v2/none/openai/v1/models", b"{}", {}, 404, "no endpoint 'none'"),
        ("/v2/text-to-image/openai/v1/chat/completions", b"{}", {}, 404, "is not served by text-to-image"),
        (IMAGES, b'{"prompt": "a", "n": 11}', {}, 400, "n must be a whole number from 1 to 10; got 11"),
        (IMAGES, b'{"prompt": ""}', {}, 400, "prompt"),
        (IMAGES, b'{"prompt": "a", "mask": 1}', {}, 400, "mask is not known here"),
    ],
)
async def test_a_refusal_has_the_shape_that_the_clients_read(
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    message: str,
    http: httpx2.AsyncClient,
    plane: FakePlane,
) -> None:
    answer = await http.post(path, content=body, headers={"content-type": "application/json"} | headers)
    error = answer.json()["error"]
    assert (answer.status_code, set(error)) == (status, {"message", "type", "param", "code"})
    assert message in error["message"]
    assert plane.submitted == []


async def test_a_path_without_a_route_and_other_methods_are_refused(http: httpx2.AsyncClient) -> None:
    assert (await http.post("/v2/echo/openai", json={})).status_code == 404
    refused = await http.delete(CHAT)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, POST")
    assert refused.json()["error"]["message"] == "DELETE is not allowed here; allowed: GET, POST"
    assert (await http.get("/v2/echo/status/a/b")).status_code == 404, "other operations take no paths"


async def test_what_nobody_expected_has_the_shape_too(
    http: httpx2.AsyncClient, plane: FakePlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(plane.endpoints, "find", breaks)
    answer = await http.post(CHAT, json={"messages": []})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (500, "server_error")
    assert error["message"].startswith("something went wrong here; the log has it as error")


async def test_images_are_jobs_of_the_hosted_model(app: ASGIApp, plane: FakePlane) -> None:
    plane.ends_at_once = JobView("", "", JobState.COMPLETED, 7.0, attempt=2)
    body = {
        "prompt": "a cat",
        "n": 2,
        "size": "512x256",
        "seed": 5,
        "response_format": "b64_json",
        "model": "m",
    }
    caller, request = posting(app, IMAGES, body)
    await plane.followed(2)
    assert [json.loads(one.input) for one in plane.submitted] == [
        {"prompt": "a cat", "seed": seed, "width": 512, "height": 256} for seed in (5, 6)
    ]
    for seed, job in enumerate(plane.jobs, 5):
        key = attempt_prefix("text-to-image", job, 2) + "0-a.jpeg"
        await plane.artifacts.put_bytes(key, b"picture %d" % seed)
        output = {"image_url": f"http://s3/bucket/{key}?X-Amz-Signature=a", "seed": seed}
        view = JobView(
            job, "text-to-image", JobState.COMPLETED, 7.0, attempt=2, output=json.dumps(output).encode()
        )
        plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    await request
    answer = json.loads(await bodies(caller))
    images = [(base64.b64decode(one["b64_json"]), one["seed"]) for one in answer["data"]]
    assert (answer["created"], images) == (7, [(b"picture 5", 5), (b"picture 6", 6)])


async def test_one_image_that_fails_fails_the_request(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.events.put_nowait(ended(output={"image_url": "http://s3/a", "seed": 1}))
    assert (await http.post(IMAGES, json={"prompt": "a"})).json()["data"] == [
        {"url": "http://s3/a", "seed": 1}
    ]
    plane.events.put_nowait(ended(output={"image_url": "http://s3/a", "seed": 1}))
    plane.events.put_nowait(ended(JobState.FAILED, error="out of memory"))
    failed = await http.post(IMAGES, json={"prompt": "a", "n": 2})
    assert (failed.status_code, failed.json()["error"]["message"]) == (500, "out of memory")


async def test_the_hosted_model_is_listed(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    models = (await http.get("/v2/text-to-image/openai/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["text-to-image"]
    assert plane.submitted == []


async def test_an_endpoint_with_the_inputs_of_an_image_model_is_one(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    """Its schema refuses a job that holds a route and a body, and binds as at any other door."""
    ours = IMAGES.replace("text-to-image", "sized")
    plane.events.put_nowait(ended(output={"image_url": "http://s3/a"}))
    answer = await http.post(ours, json={"prompt": "a", "size": "512x256"})
    assert answer.json()["data"] == [{"url": "http://s3/a"}]
    (submission,) = plane.submitted
    assert json.loads(submission.input) == {"prompt": "a", "width": 512, "height": 256}
    refused = await http.post(ours, json={"prompt": "a", "size": "2048x256"})
    assert (refused.status_code, len(plane.submitted)) == (400, 1)
    assert "width must be at most 1536, got 2048" in refused.json()["error"]["message"]
    assert (await http.get("/v2/sized/openai/v1/models")).json()["data"][0]["id"] == "sized"
    unserved = await http.post("/v2/sized/openai/v1/completions", json={"prompt": "a"})
    assert "is not served by sized" in unserved.json()["error"]["message"]


@pytest.mark.parametrize(
    ("output", "response_format"),
    [([], "url"), ({"url": "http://s3/a"}, "url"), ({"image_url": "http://elsewhere/a"}, "b64_json")],
)
async def test_an_output_without_an_image_is_told(
    output: object, response_format: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    plane.events.put_nowait(ended(output=output))
    ours = IMAGES.replace("text-to-image", "sized")
    answer = await http.post(ours, json={"prompt": "a", "response_format": response_format})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (500, "false")
    assert "the output of sized has no image_url of a file" in answer.json()["error"]["message"]


# -- pure


def test_the_parts_of_tool_calls_are_joined() -> None:
    parts = [
        {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
        {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
    ]
    [choice] = completions.joined([delta(tool_calls=[part]) for part in parts])["choices"]
    assert [(one["id"], one["function"]["arguments"]) for one in choice["message"]["tool_calls"]] == [
        ("a", '{"x": 1}'),
        ("b", "{}"),
    ]


VALUE = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
NAMES = st.sampled_from(["index", "id", "function", "arguments", "name", "delta", "tool_calls", "content"])
CHOICE = st.recursive(
    VALUE, lambda one: st.lists(one, max_size=3) | st.dictionaries(NAMES, one), max_leaves=9
)


@given(
    st.lists(st.tuples(st.sampled_from([completions.CHAT, completions.TEXT]), st.lists(CHOICE)), max_size=4)
)
def test_any_chunks_are_one_answer(chunks: list[tuple[str, Any]]) -> None:
    completions.joined([{"object": kind, "choices": choices} for kind, choices in chunks])


def test_texts_are_joined_and_other_values_are_a_list() -> None:
    texts = [{"object": "text_completion", "choices": [{"index": 0, "text": one}]} for one in "ab"]
    assert completions.joined(texts)["choices"][0]["text"] == "ab"
    assert completions.joined([1, [2]]) == [1, 2]
    for odd in ({"object": []}, {"object": {}}, {"object": None}):
        assert completions.joined([odd, *texts]) == [odd, *texts], "a handler may yield anything"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_every_chunk_is_whole_events(value: Any) -> None:
    for event in answers.event(value).split(b"\n\n")[:-1]:
        assert event.startswith((b"data:", b"event:", b"id:", b":"))


@given(
    st.binary() | st.sampled_from([b'"\\ud800"', b'{"a":1e999}', b'{"a":' + b"9" * 400 + b"}"]),
    st.none() | st.text(),
)
def test_any_body_is_a_job_or_a_clear_refusal(body: bytes, media_type: str | None) -> None:
    with suppress(BadRequest):
        fields = asyncio.run(form_fields(media_type or "", body, LargeJson()))
        parse_submission(to_json({"input": OpenAIRequest("/v1/x", fields).job_input}))


@pytest.mark.parametrize("size", ["512", "512x", "x512", "-1x5", 512, "123456x1"])
def test_a_wrong_size_is_named(size: object) -> None:
    with pytest.raises(BadRequest, match="size must be"):
        parse_images({"prompt": "a", "size": size})


def test_a_drawn_seed_is_drawn_for_each_image() -> None:
    assert [one["seed"] for one in parse_images({"prompt": "a", "seed": -1, "n": 2}).inputs] == [-1, -1]
    assert [one["seed"] for one in parse_images({"prompt": "a", "seed": 2**63 - 1, "n": 2}).inputs] == [
        2**63 - 1,
        0,
    ]
