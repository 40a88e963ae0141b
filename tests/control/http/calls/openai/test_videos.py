"""`/openai/v1/videos` of the hosted model: what becomes of a request as a job, and how the job reads."""

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

from stoker.control.errors import BadRequest
from stoker.control.http.calls.forms import form_fields
from stoker.control.http.openai.requests import SentFile
from stoker.control.http.openai.videos import parse_video, video_object
from stoker.control.large_json import LargeJson
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import StreamEvent
from stoker.control.rules.types import JobView
from stoker.models.talking_video.declaration import SCHEMA
from tests.control.http.calls.fake_plane import FakePlane, endpoint

VIDEOS = "/v2/talking-video/openai/v1/videos"
URLS = {"input_reference": "https://a.test/i.png", "audio": "https://a.test/v.wav"}


@pytest.fixture(autouse=True)
def _hosted(plane: FakePlane) -> None:
    plane.endpoints.put(endpoint("talking-video", hosted=True, schema=SCHEMA))


def submitted(plane: FakePlane) -> dict[str, Any]:
    [submission] = plane.submitted
    found: dict[str, Any] = json.loads(submission.input)
    return found


async def test_files_of_a_form_are_kept_and_their_urls_are_the_jobs_input(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    files = {"input_reference": ("i.png", b"\x89PNG\r\n--x", "image/png"), "audio": ("v.wav", b"RIFF")}
    fields = {"prompt": "ü talks", "size": "480x854", "model": "sora-2", "enable_safety_checker": "false"}
    fields["face"] = "assume"
    answer = await http.post(VIDEOS, data=fields, files=files)
    video = answer.json()
    assert (answer.status_code, video["object"], video["status"]) == (200, "video", "queued")
    assert submitted(plane) == {
        "prompt": "ü talks",
        "size": "480p",
        "enable_safety_checker": False,
        "face": "assume",
        "image": "https://objects.test/talking-video/image",
        "audio": "https://objects.test/talking-video/audio",
    }
    assert [(name, kept) for name, kept in plane.kept.items()] == [
        ("image", (b"\x89PNG\r\n--x", "image/png")),
        ("audio", (b"RIFF", "audio/x-wav")),
    ]
    assert video["id"] in plane.jobs
    assert not plane.jobs[video["id"]].sync, "its record is kept for as long as that of /run"


@pytest.mark.parametrize("nested", ["json", "form"])
async def test_urls_and_data_urls(nested: str, http: httpx2.AsyncClient, plane: FakePlane) -> None:
    audio = "data:audio/wav;base64," + base64.b64encode(b"RIFF").decode()
    image = "https://a.test/i.png"
    if nested == "json":
        fields = {"prompt": "a", "audio": audio, "input_reference": {"image_url": image}}
        answer = await http.post(VIDEOS, json=fields)
    else:
        form = {"prompt": "a", "audio": audio, "input_reference[image_url]": image}
        answer = await http.post(VIDEOS, files={name: (None, text) for name, text in form.items()})
    assert answer.status_code == 200
    assert submitted(plane) == {
        "prompt": "a",
        "size": "720p",
        "image": image,
        "audio": "https://objects.test/talking-video/audio",
    }
    assert plane.kept == {"audio": (b"RIFF", "audio/wav")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "prompt is missing"),
        ({"prompt": "a"}, "input_reference is missing: a talking video is made from"),
        ({"prompt": "a", "input_reference": "https://a.test/i"}, "audio is missing"),
        ({"prompt": "", **URLS}, "prompt"),
        ({"prompt": "a", **URLS, "size": "large"}, "size must be 480p, 720p or WIDTHxHEIGHT"),
        ({"prompt": "a", **URLS, "seed": 1}, "seed is not known here"),
        ({"prompt": "a", **URLS, "audio": "data:audio/wav,RIFF"}, "audio must be a data URL of the form"),
        ({"prompt": "a", **URLS, "audio": "data:;base64,?"}, "audio is a data URL with wrong base64"),
        ({"prompt": "a", **URLS, "audio": "data:;base64,"}, "audio is an empty file"),
        ({"prompt": "a", **URLS, "input_reference": {"file_id": "f"}}, "have an image_url and nothing else"),
        ({"prompt": "a", **URLS, "enable_safety_checker": "x"}, "must be true or false; got 'x'"),
        ({"prompt": "a", **URLS, "face": "mine"}, "face must be find or assume; got 'mine'"),
    ],
)
async def test_a_refusal_names_the_field(
    fields: dict[str, Any], message: str, http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    answer = await http.post(VIDEOS, json=fields)
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert (plane.submitted, plane.kept) == ([], {})


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"x", "multipart/form-data"),
        (b"x", "multipart/form-data; boundary=a"),
        (
            b'--a\r\nContent-Disposition: form-data; name="x[y]"\r\n\r\n1\r\n--a--',
            "multipart/form-data; boundary=a",
        ),
        (b"[]", "application/json"),
        (b"\xff", "text/plain"),
    ],
)
async def test_a_body_that_is_no_form_is_refused(
    body: bytes, media_type: str, http: httpx2.AsyncClient
) -> None:
    answer = await http.post(VIDEOS, content=body, headers={"content-type": media_type})
    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_video_is_read_until_it_can_be_fetched(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(endpoint="talking-video", created_at=100.5).id
    first = await http.get(f"{VIDEOS}/{job}")
    assert (first.json()["status"], first.headers["openai-poll-after-ms"]) == ("queued", "1000")
    await plane.change(
        job, state=JobState.IN_PROGRESS, progress=b'{"chunk": 2, "chunks": 4, "step": 3, "steps": 6}'
    )
    running = (await http.get(f"{VIDEOS}/{job}")).json()
    assert (running["status"], running["progress"], running["completed_at"]) == ("in_progress", 37, None)
    early = await http.get(f"{VIDEOS}/{job}/content")
    assert (early.status_code, "its job is IN_PROGRESS" in early.text) == (404, True)
    await plane.change(
        job,
        state=JobState.COMPLETED,
        output=b'{"video_url": "http://s3.test/v.mp4?a=b"}',
        delay_ms=500,
        execution_ms=2_000,
    )
    video = (await http.get(f"{VIDEOS}/{job}")).json()
    assert (video["status"], video["progress"], video["completed_at"]) == ("completed", 100, 103)
    content = await http.get(f"{VIDEOS}/{job}/content")
    assert (content.status_code, content.headers["location"]) == (302, "http://s3.test/v.mp4?a=b")
    assert (await http.get(f"{VIDEOS}/{job}/content?variant=thumbnail")).status_code == 400


async def test_a_video_that_was_not_made_says_why(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(endpoint="talking-video", state=JobState.FAILED, error="Invalid audio: no sound").id
    video = (await http.get(f"{VIDEOS}/{job}")).json()
    assert (video["status"], video["error"]) == (
        "failed",
        {"code": "failed", "message": "Invalid audio: no sound"},
    )


async def test_videos_are_listed_page_by_page(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    empty = {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    assert (await http.get(VIDEOS)).json() == empty
    plane.add(endpoint="echo")
    jobs = [plane.add(endpoint="talking-video", created_at=float(at)).id for at in range(3)]
    first = (await http.get(f"{VIDEOS}?limit=2&order=desc")).json()
    assert [one["id"] for one in first["data"]] == [jobs[2], jobs[1]]
    assert (first["first_id"], first["last_id"], first["has_more"]) == (jobs[2], jobs[1], True)
    second = (await http.get(f"{VIDEOS}?limit=2&after={first['last_id']}")).json()
    assert ([one["id"] for one in second["data"]], second["has_more"]) == ([jobs[0]], False)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit must be a whole number from 1 to 100; got '0'"),
        ("limit=" + "9" * 5000, "limit must be a whole number"),
        ("limit=x", "limit must be a whole number"),
        ("order=asc", "order must be desc"),
        ("before=a", "before is not known here"),
    ],
)
async def test_a_list_that_is_refused_names_the_parameter(
    query: str, message: str, http: httpx2.AsyncClient
) -> None:
    answer = await http.get(f"{VIDEOS}?{query}")
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


async def test_a_deleted_video_is_gone(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(endpoint="talking-video").id
    deleted = await http.delete(f"{VIDEOS}/{job}")
    assert deleted.json() == {"id": job, "object": "video.deleted", "deleted": True}
    assert (await http.get(f"{VIDEOS}/{job}")).status_code == 404


async def test_one_base_url_lists_and_deletes_too(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    job = plane.add(endpoint="talking-video").id
    assert [one["id"] for one in (await http.get("/openai/v1/videos")).json()["data"]] == [job]
    plane.endpoints.put(endpoint("talk-mini", hosted=True, schema=SCHEMA))
    two = await http.get("/openai/v1/videos")
    assert (two.status_code, "one of talk-mini, talking-video" in two.text) == (400, True)
    assert (await http.get("/openai/v1/videos?model=talking-video")).json()["first_id"] == job
    assert (await http.delete(f"/openai/v1/videos/{job}")).json()["deleted"] is True
    assert (await http.delete(f"/openai/v1/videos/{job}")).status_code == 404
    for name in ("talk-mini", "talking-video"):
        plane.endpoints.drop(name)
    assert (await http.get("/openai/v1/videos")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "/v2/text-to-image/openai/v1/videos/j"),
        ("DELETE", "/v2/echo/openai/v1/videos/j"),
        ("DELETE", f"{VIDEOS}/unknown"),
        ("GET", f"{VIDEOS}?after=unknown"),
        ("GET", f"{VIDEOS}/j/thumbnail"),
        ("POST", f"{VIDEOS}/edits"),
        ("GET", "/v2/text-to-image/openai/v1/videos/j"),
        ("GET", f"{VIDEOS}/unknown"),
    ],
)
async def test_what_there_is_not(method: str, path: str, http: httpx2.AsyncClient) -> None:
    answer = await http.request(method, path, json={})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


async def test_at_a_queue_endpoint_the_route_is_its_handlers(
    http: httpx2.AsyncClient, plane: FakePlane
) -> None:
    view = JobView("j", "echo", JobState.COMPLETED, 7.5, output=b'{"object": "video"}')
    plane.events.put_nowait(StreamEvent("end", 1, 0, b"null", view))
    answer = await http.get("/v2/echo/openai/v1/videos/j")
    assert answer.json() == {"object": "video"}
    assert submitted(plane) == {"openai_route": "/v1/videos/j"}


async def test_a_file_of_a_strange_type_is_a_file(http: httpx2.AsyncClient, plane: FakePlane) -> None:
    files = {"input_reference": ("i", b"a", "text/html; x=\xff"), "audio": ("v", b"b", "audio/wav")}
    assert (await http.post(VIDEOS, data={"prompt": "a"}, files=files)).status_code == 200
    assert plane.kept == {"image": (b"a", "application/octet-stream"), "audio": (b"b", "audio/wav")}


async def test_a_field_that_is_a_text_and_an_object_is_refused(http: httpx2.AsyncClient) -> None:
    both = {"input_reference": (None, "a"), "input_reference[image_url]": (None, "b")}
    answer = await http.post(VIDEOS, files=both)
    assert "input_reference and input_reference[image_url] cannot both be sent" in answer.text


PARTS = [
    b"--",
    b"a",
    b"\r\n",
    b"\n",
    b'Content-Disposition: form-data; name="x"',
    b'; filename="',
    b'"',
    b":",
    b"\xff",
]


@given(
    st.sampled_from(["a", "", '"', "a" * 300, "\xff", "a; charset=x", "a; charset=utf-16"]),
    st.lists(st.sampled_from(PARTS), max_size=12).map(b"".join),
)
def test_any_form_is_fields_or_a_clear_refusal(boundary: str, body: bytes) -> None:
    with suppress(BadRequest):
        asyncio.run(form_fields(f"multipart/form-data; boundary={boundary}", body, LargeJson()))


# -- pure

VALUES = st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(SentFile(b"a", "a/b"))
FIELDS = st.dictionaries(
    st.sampled_from(["prompt", "input_reference", "audio", "size", "enable_safety_checker", "x"]),
    VALUES | st.dictionaries(st.sampled_from(["image_url", "x"]), VALUES),
)


@given(FIELDS)
def test_any_fields_are_a_request_or_a_clear_refusal(fields: dict[str, Any]) -> None:
    with suppress(BadRequest):
        parse_video(fields)


@given(
    st.none()
    | st.recursive(
        st.integers(-3, 3),
        lambda one: (
            st.lists(one) | st.dictionaries(st.sampled_from(["chunk", "chunks", "step", "steps"]), one)
        ),
    )
)
def test_progress_is_a_percentage_whatever_was_reported(progress: Any) -> None:
    view = JobView("j", "e", JobState.IN_PROGRESS, 0.0, progress=json.dumps(progress).encode())
    assert 0 <= video_object(view)["progress"] <= 99


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("480p", "480p"),
        ("854x480", "480p"),
        ("1280x720", "720p"),
        ("720x1280", "720p"),
        ("1792x1024", "720p"),
    ],
)
def test_the_size_follows_the_shorter_side(size: str, expected: str) -> None:
    assert parse_video({"prompt": "a", **URLS, "size": size}).rest["size"] == expected


async def test_a_form_is_read_as_utf_8_whatever_codec_it_names() -> None:
    part = b'--a\r\nContent-Disposition: form-data; name="prompt"\r\n\r\n\\ud800 \xc3\xa9\r\n--a--\r\n'
    for charset in ("unicode_escape", "punycode", "utf-8"):
        fields = await form_fields(f"multipart/form-data; boundary=a; charset={charset}", part, LargeJson())
        assert fields == {"prompt": "\\ud800 é"}
    with pytest.raises(BadRequest, match="names no boundary"):
        await form_fields("multipart/form-data", part, LargeJson())
