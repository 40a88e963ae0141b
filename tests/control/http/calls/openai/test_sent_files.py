"""Forms at a queue endpoint: the handler gets the fields as they were sent, and a URL for each file."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import httpx2
import pytest

from stoker.control.http.openai.requests import SentFile
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.types import JobView
from stoker.models.text_to_image.declaration import SCHEMA
from tests.control.http.calls.fake_plane import FakePlane, endpoint

BASE = "/v2/echo/openai/v1"
WAV = ("said it.wav", b"RIFF", "audio/wav")


def ended(output: Any) -> StreamEvent:
    view = JobView("j", "echo", JobState.COMPLETED, 7.5, attempt=1, output=json.dumps(output).encode())
    return StreamEvent("end", 1, 0, b"null", view)


def submitted(plane: FakePlane) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.submitted[-1].input)
    return found


async def test_a_transcription_is_a_job_with_the_url_of_its_file(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    plane.events.put_nowait(ended({"text": "hello"}))
    fields = {"model": "m", "temperature": "0.2", "timestamp_granularities[]": ["word", "segment"]}
    answer = await http.post(f"{BASE}/audio/transcriptions", data=fields, files={"file": WAV})
    assert (answer.status_code, answer.json()) == (200, {"text": "hello"})
    assert submitted(plane) == {
        "openai_route": "/v1/audio/transcriptions",
        "openai_input": {
            "model": "m",
            "temperature": "0.2",
            "timestamp_granularities": ["word", "segment"],
            "file": "https://objects.test/echo/said it.wav",
        },
    }
    assert plane.kept == {"said it.wav": (b"RIFF", "audio/wav")}


@pytest.mark.parametrize(
    ("response_format", "output", "text", "media_type"),
    [
        ("text", "hello", "hello", "text/plain; charset=utf-8"),
        ("srt", "1\n", "1\n", "text/plain; charset=utf-8"),
        ("text", {"text": "a"}, '{"text":"a"}', "application/json"),
        ("json", "hello", '"hello"', "application/json"),
    ],
)
async def test_a_text_is_answered_as_it_is_where_a_text_was_wanted(
    response_format: str,
    output: Any,
    text: str,
    media_type: str,
    http: httpx2.AsyncClient,
    plane: FakePlane,
) -> None:
    plane.events.put_nowait(ended(output))
    data = {"response_format": response_format}
    answer = await http.post(f"{BASE}/audio/transcriptions", data=data, files={"file": WAV})
    assert (answer.text, answer.headers["content-type"]) == (text, media_type)


async def test_a_form_that_asks_for_a_stream_gets_one(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    delta = {"type": "transcript.text.delta", "delta": "hel"}
    plane.events.put_nowait(StreamEvent("chunk", 1, 0, json.dumps(delta).encode()))
    plane.events.put_nowait(ended(None))
    answer = await http.post(f"{BASE}/audio/transcriptions", data={"stream": "true"}, files={"file": WAV})
    assert answer.text == f"data: {json.dumps(delta, separators=(',', ':'))}\n\ndata: [DONE]\n\n"


async def test_lists_and_objects_of_files_have_a_url_each(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    plane.events.put_nowait(ended({}))
    files = [("image[]", ("a.png", b"a")), ("image[]", ("b.png", b"b")), ("extra[mask]", ("c.png", b"c"))]
    await http.post(f"{BASE}/images/edits", data={"prompt": "p"}, files=files)
    assert submitted(plane)["openai_input"] == {
        "prompt": "p",
        "image": ["https://objects.test/echo/a.png", "https://objects.test/echo/b.png"],
        "extra": {"mask": "https://objects.test/echo/c.png"},
    }


async def test_a_name_that_is_sent_twice_is_refused(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    files = [("image", ("a.png", b"a")), ("image", ("b.png", b"b"))]
    answer = await http.post(f"{BASE}/images/edits", files=files)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "image is sent twice; each value of a list is sent as image[]"
    both = await http.post(f"{BASE}/images/edits", files=[("a", (None, "1")), ("a[]", (None, "2"))])
    assert "a and a[] cannot both be sent" in both.text
    assert (plane.submitted, plane.kept) == ([], {})


@pytest.mark.parametrize("path", [f"{BASE}/images/edits", "/v2/text-to-image/openai/v1/images/edits"])
async def test_files_are_not_held_while_their_job_runs(
    path: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    plane.endpoints.put(endpoint("text-to-image", hosted=True, schema=SCHEMA))
    sending = asyncio.create_task(http.post(path, data={"prompt": "a"}, files={"image": WAV}))
    await plane.followed(1)
    assert [one for one in gc.get_objects() if type(one) is SentFile and one.data == b"RIFF"] == []
    view = JobView("j", "echo", JobState.FAILED, 7.5, attempt=1, error="no")
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    assert (await sending).status_code == 500
