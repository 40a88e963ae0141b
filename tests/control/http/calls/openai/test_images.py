"""Edits and streams of images at the hosted model: what becomes of a request as jobs, and its events."""

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
from starlette.types import ASGIApp

from stoker.control.errors import BadRequest
from stoker.control.http.openai import image_events
from stoker.control.http.openai.images import TAKE_SEVERAL, parse_edit, parse_images
from stoker.control.http.openai.requests import SentFile
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.types import JobView
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import DECLARATION, SCHEMA, schema_for
from stoker.wire.object_keys import attempt_prefix
from tests.control.http.calls.asgi_caller import Caller
from tests.control.http.calls.fake_plane import FakePlane, endpoint

BASE = "/v2/text-to-image/openai/v1/images"
EDITS, GENERATIONS = f"{BASE}/edits", f"{BASE}/generations"
PNG = ("a.png", b"\x89PNG", "image/png")
IMAGES = ("image", "images")


@pytest.fixture(autouse=True)
def _hosted(plane: FakePlane) -> None:
    plane.endpoints.put(endpoint("text-to-image", hosted=True, schema=SCHEMA))


def finished(url: str = "http://s3/a.png", seed: int = 7) -> StreamEvent:
    output = json.dumps({"image_url": url, "seed": seed}).encode()
    return StreamEvent(
        "end", 1, 0, b"null", JobView("j", "text-to-image", JobState.COMPLETED, 7.0, attempt=1, output=output)
    )


def inputs(plane: FakePlane) -> list[dict[str, Any]]:
    return [json.loads(one.input) for one in plane.submitted]


# -- edits


@pytest.mark.parametrize("name", ["image", "image[]"])
async def test_an_edit_starts_from_the_image_of_its_form(
    name: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    for seed in (5, 6):
        plane.events.put_nowait(finished(seed=seed))
    fields = {"prompt": "in ink", "n": "2", "seed": "5", "strength": "0.4", "size": "512x256", "model": "m"}
    answer = await http.post(EDITS, data=fields, files={name: PNG})
    assert (answer.status_code, [one["seed"] for one in answer.json()["data"]]) == (200, [5, 6])
    image = "https://objects.test/text-to-image/image"
    same = {"prompt": "in ink", "strength": 0.4, "width": 512, "height": 256, "image": image}
    assert inputs(plane) == [{**same, "seed": 5}, {**same, "seed": 6}]
    assert plane.kept == {"image": (b"\x89PNG", "image/png")}


async def test_an_edit_by_url_and_by_data_url(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    data = "data:image/png;base64," + base64.b64encode(b"\x89PNG").decode()
    for sent in ({"image": "https://a.test/i.png"}, {"images": [{"image_url": data}]}):
        plane.events.put_nowait(finished())
        assert (await http.post(EDITS, json={"prompt": "a", **sent})).status_code == 200
    assert [one["image"] for one in inputs(plane)] == [
        "https://a.test/i.png",
        "https://objects.test/text-to-image/image",
    ]


async def test_an_edit_of_a_part_has_a_mask(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    mask = ("m.png", b"\x89PNG mask", "image/png")
    plane.events.put_nowait(finished())
    assert (
        await http.post(EDITS, data={"prompt": "a"}, files={"image": PNG, "mask": mask})
    ).status_code == 200
    plane.events.put_nowait(finished())
    by_url = {"image": "https://a.test/i.png", "mask": {"image_url": "https://a.test/m.png"}}
    assert (await http.post(EDITS, json={"prompt": "a", **by_url})).status_code == 200
    kept = "https://objects.test/text-to-image"
    assert [(one["image"], one["mask_image"]) for one in inputs(plane)] == [
        (f"{kept}/image", f"{kept}/mask"),
        ("https://a.test/i.png", "https://a.test/m.png"),
    ]
    assert plane.kept["mask"] == (b"\x89PNG mask", "image/png")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "image is missing: an edit starts from an image"),
        ({"image": []}, "image is missing"),
        ({"images": ["http://a/"] * 5}, "image: the pipeline of text-to-image takes at most 4 images; got 5"),
        ({"images": ["http://a/", {"file_id": "f"}]}, "have an image_url and nothing else"),
        ({"images": ["http://a/"] * 2, "mask": "http://m/"}, "mask: a mask is for a single image; got 2"),
        ({"image": {"file_id": "f"}}, "have an image_url and nothing else"),
        ({"image": "http://a/", "mask": ""}, "mask is missing: a mask is a file, a URL or a data URL"),
        ({"image": "http://a/", "mask": {"file_id": "f"}}, "mask must be a file, or have an image_url"),
        ({"image": "http://a/", "strength": "much"}, "strength"),
        ({"image": "http://a/", "n": "eleven"}, "n must be a whole number from 1 to 10; got 'eleven'"),
        ({"image": "http://a/", "stream": "yes"}, "stream must be true or false; got 'yes'"),
    ],
)
async def test_an_edit_that_is_refused_names_the_field(
    fields: dict[str, Any], message: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    answer = await http.post(EDITS, json={"prompt": "a", **fields})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert (plane.submitted, plane.kept) == ([], {})


def with_schema_of(plane: FakePlane, pipeline: str) -> None:
    schema = schema_for(PIPELINES[pipeline])
    plane.endpoints.put(endpoint("text-to-image", hosted=True, schema=schema))


async def test_an_edit_of_several_images_looks_at_them(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    with_schema_of(plane, "flux-2-klein-4b")
    kept = "https://objects.test/text-to-image/image"
    for sent in ([PNG, ("b.png", b"\x89PNG 2", "image/png")], [PNG]):
        plane.events.put_nowait(finished())
        files = [("image[]", one) for one in sent]
        answer = await http.post(EDITS, data={"prompt": "a", "seed": "5"}, files=files)
        assert answer.status_code == 200
    plane.events.put_nowait(finished())
    urls = [{"image_url": "https://a.test/i.png"}, {"image_url": "https://a.test/j.png"}]
    assert (await http.post(EDITS, json={"prompt": "a", "images": urls})).status_code == 200
    assert inputs(plane) == [
        {"prompt": "a", "seed": 5, "images": [kept, kept]},
        {"prompt": "a", "seed": 5, "images": [kept]},
        {"prompt": "a", "images": ["https://a.test/i.png", "https://a.test/j.png"]},
    ]


async def test_a_pipeline_that_starts_from_one_image_says_which_take_several(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    with_schema_of(plane, "flux-1-dev")
    answer = await http.post(EDITS, data={"prompt": "a"}, files=[("image[]", PNG), ("image[]", PNG)])
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "image: the pipeline of text-to-image starts from one image; got 2: flux-2-klein-4b takes several",
    )
    assert (plane.submitted, plane.kept) == ([], {})
    able = tuple(name for name in DECLARATION.pipelines if PIPELINES[name].choices.references)
    assert able == TAKE_SEVERAL, "control does not import the pipelines"


async def test_a_pipeline_that_starts_from_no_image_says_so(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    properties = {name: rule for name, rule in SCHEMA["properties"].items() if name not in IMAGES}
    plane.endpoints.put(endpoint("text-to-image", hosted=True, schema={**SCHEMA, "properties": properties}))
    answer = await http.post(EDITS, data={"prompt": "a"}, files={"image": PNG})
    assert answer.json()["error"]["message"] == "image: the pipeline of text-to-image starts from no image"


async def test_a_pipeline_that_takes_no_mask_says_so(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    properties = {name: rule for name, rule in SCHEMA["properties"].items() if name != "mask_image"}
    plane.endpoints.put(endpoint("text-to-image", hosted=True, schema={**SCHEMA, "properties": properties}))
    answer = await http.post(EDITS, data={"prompt": "a"}, files={"image": PNG, "mask": PNG})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400,
        "mask: the pipeline of text-to-image makes no part of an image anew: leave it out",
    )
    assert (plane.submitted, plane.kept) == ([], {})


# -- streams


def preview(step: int, steps: int | None = 4, data: str = "cA==") -> StreamEvent:
    shown = {"step": step, "format": "jpeg", "width": 128, "height": 64, "data": data}
    return StreamEvent("chunk", 1, step, json.dumps({"preview": shown | {"steps": steps}}).encode())


def asked(app: ASGIApp, path: str, body: dict[str, Any]) -> tuple[Caller, asyncio.Task[None]]:
    caller = Caller("POST", path, {"content-type": "application/json"})
    caller.inbox.get_nowait()
    caller.inbox.put_nowait({"type": "http.request", "body": json.dumps(body).encode(), "more_body": False})
    return caller, caller.call(app)


def events_in(caller: Caller) -> list[tuple[str, dict[str, Any]]]:
    sent = [caller.sent.get_nowait() for _ in range(caller.sent.qsize())]
    found = []
    for text in b"".join(message.get("body", b"") for message in sent).decode().split("\n\n")[:-1]:
        name, _, data = text.rpartition("data: ")
        found.append((name.removeprefix("event: ").strip(), json.loads(data)))
    return found


@pytest.mark.parametrize(
    ("path", "more", "kind"),
    [(GENERATIONS, {}, "image_generation"), (EDITS, {"image": "http://a.test/"}, "image_edit")],
)
async def test_previews_are_events_and_the_image_is_the_last(
    path: str, more: dict[str, Any], kind: str, app: ASGIApp, plane: FakePlane
) -> None:
    body = {"prompt": "a", "stream": True, "partial_images": 2, "output_format": "png", **more}
    caller, request = asked(app, path, body)
    await plane.followed(1)
    [job] = plane.jobs
    key = attempt_prefix("text-to-image", job, 1) + "0-image.png"
    await plane.artifacts.put_bytes(key, b"the picture")
    output = json.dumps({"image_url": f"http://s3/bucket/{key}?a=b", "seed": 7}).encode()
    view = JobView(job, "text-to-image", JobState.COMPLETED, 7.0, attempt=1, output=output)
    for one in (StreamEvent("progress", 1, 0, b'{"step":1}'), *map(preview, range(1, 5))):
        plane.events.put_nowait(one)
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    await request
    found = events_in(caller)
    assert [(name, event["type"]) for name, event in found] == [
        (f"{kind}.partial_image", f"{kind}.partial_image"),
        (f"{kind}.partial_image", f"{kind}.partial_image"),
        (f"{kind}.completed", f"{kind}.completed"),
    ]
    assert [event["partial_image_index"] for _, event in found[:2]] == [0, 1]
    assert [event["size"] for _, event in found] == ["128x64", "128x64", "1024x1024"]
    last = found[-1][1]
    assert (base64.b64decode(last["b64_json"]), last["output_format"], last["seed"]) == (
        b"the picture",
        "png",
        7,
    )
    start = 4096 if kind == "image_edit" else 0
    assert last["usage"] == {
        "input_tokens": 1 + start,
        "input_tokens_details": {"image_tokens": start, "text_tokens": 1},
        "output_tokens": 4096,
        "total_tokens": 4097 + start,
    }


async def test_without_partial_images_there_is_the_image_alone(app: ASGIApp, plane: FakePlane) -> None:
    caller, request = asked(app, GENERATIONS, {"prompt": "a", "stream": True})
    for one in (preview(1), preview(4)):
        plane.events.put_nowait(one)
    view = JobView("j", "text-to-image", JobState.FAILED, 7.0, attempt=1, error="out of memory")
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    await request
    [(_, event)] = events_in(caller)
    assert event["error"]["message"] == "out of memory"


async def test_an_image_that_the_object_store_lacks_is_an_event(app: ASGIApp, plane: FakePlane) -> None:
    caller, request = asked(app, GENERATIONS, {"prompt": "a", "stream": True, "partial_images": 1})
    await plane.followed(1)
    [job] = plane.jobs
    key = attempt_prefix("text-to-image", job, 1) + "0-image.png"
    output = json.dumps({"image_url": f"http://s3/{key}", "seed": 7}).encode()
    plane.events.put_nowait(preview(1, None))
    view = JobView(job, "text-to-image", JobState.COMPLETED, 7.0, attempt=1, output=output)
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    await request
    (name, _), (_, event) = events_in(caller)
    assert name == "image_generation.partial_image"
    assert "error" in event


async def test_a_failure_before_the_first_preview_has_its_own_status(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    view = JobView("j", "text-to-image", JobState.FAILED, 7.0, attempt=1, error="out of memory")
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    answer = await http.post(GENERATIONS, json={"prompt": "a", "stream": True})
    assert (answer.status_code, answer.json()["error"]["message"]) == (500, "out of memory")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stream": True, "n": 2}, "n must be 1 with stream"),
        ({"stream": True, "response_format": "url"}, "response_format must be one of b64_json; got 'url'"),
        ({"stream": True, "partial_images": 4}, "partial_images must be a whole number from 0 to 3; got 4"),
        ({"partial_images": 1}, "1 needs stream=true"),
        ({"stream": 1}, "stream must be true or false; got 1"),
    ],
)
async def test_a_stream_that_is_refused_names_the_field(
    fields: dict[str, Any], message: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    answer = await http.post(GENERATIONS, json={"prompt": "a", **fields})
    assert (answer.status_code, plane.submitted) == (400, [])
    assert message in answer.json()["error"]["message"]


# -- pure


def test_usage_counts_begun_units_and_only_what_is_known() -> None:
    used = image_events.usage("a fox", 264, 256, images=1)
    assert used is not None
    assert (used["input_tokens_details"], used["output_tokens"]) == (
        {"image_tokens": 272, "text_tokens": 2},
        272,
    )
    two = image_events.usage("a fox", 264, 256, images=2)
    assert two is not None
    assert (two["input_tokens_details"]["image_tokens"], two["total_tokens"]) == (544, 818)
    assert image_events.usage("a fox", None, 256, images=0) is None
    assert image_events.usage(None, 256, 256, images=0) is None


@given(st.integers(1, 60), st.integers(0, 3), st.data())
def test_as_many_previews_are_sent_as_are_wanted_where_each_step_has_one(
    steps: int, wanted: int, data: st.DataObject
) -> None:
    has = sorted(data.draw(st.sets(st.integers(1, steps))) | {1, steps})
    sent: list[int] = []
    for step in has:
        one = image_events.Preview("", "jpeg", "1x1", step, steps)
        if one.is_due(len(sent), wanted):
            sent.append(step)
    assert len(sent) <= wanted
    assert not wanted or sent, "the last step has a preview, which is due"
    if has == list(range(1, steps + 1)) and wanted < steps:
        assert len(sent) == wanted


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda one: (
        st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(["preview", "data", "format"]), one)
    ),
    max_leaves=6,
)


@given(ANY)
def test_any_chunk_has_a_preview_or_none(chunk: Any) -> None:
    image_events.preview_of(chunk)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["1", "-1", "0.5", "true", "²", "1e999", "9" * 30])
    | st.text(max_size=10)
    | st.just(SentFile(b"a", "image/png"))
)
NAMES = [
    "prompt",
    "image",
    "images",
    "mask",
    "n",
    "seed",
    "stream",
    "partial_images",
    "size",
    "strength",
    "x",
]


@given(st.dictionaries(st.sampled_from(NAMES), VALUES | st.lists(VALUES, max_size=2)))
def test_any_fields_are_a_request_or_a_clear_refusal(fields: dict[str, Any]) -> None:
    for parse in (parse_images, parse_edit):
        with suppress(BadRequest):
            parse(fields)
