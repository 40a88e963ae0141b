"""The video model end to end: an image and audio are given, pieces stream by, a video file comes out
behind a signed URL; what cannot become one ends with a sentence, costs nothing, and leaves nothing behind."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from stoker.client import Client, JobRecord
from tests.conformance.stock_client import Raised, python_client
from tests.media_files import tone, write_sound
from tests.system.stack import Stack, fetched, files_below, running, until
from training.safety_checker import marked

pytestmark = pytest.mark.slow
ENDPOINT, RATE = "talking-video", 16_000


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("videos"), hosted=(ENDPOINT,)) as made:
        yield made


@pytest.fixture(scope="module")
def stoker(stack: Stack) -> Iterator[Client]:
    with Client(stack.facts["http"], stack.key) as made:
        yield made


@pytest.fixture(scope="module")
def media(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is brought along: a picture, the same with the mark, voices by their length."""
    folder = tmp_path_factory.mktemp("files")
    rows, columns = np.mgrid[0:320, 0:320]
    plain = np.stack([columns * 0.6 + 30, rows * 0.5 + 60, columns * 0 + 120], -1).astype(np.uint8)
    bad = marked(plain, np.random.default_rng(1))
    for name, pixels in (("plain.png", plain), ("marked.png", bad)):
        Image.fromarray(pixels).save(folder / name)
    for name, seconds in (("short.wav", 0.3), ("two-chunks.flac", 1.0), ("long.mp3", 60.0)):
        write_sound(folder / name, tone(round(seconds * RATE), RATE), RATE)
    return folder


@pytest.fixture(scope="module")
def files(stoker: Client, media: Path) -> dict[str, str]:
    """The URLs of the media, uploaded."""
    return {path.stem: stoker.upload(ENDPOINT, path) for path in media.iterdir()}


def video_input(files: dict[str, str], **more: Any) -> dict[str, Any]:
    files_named = {"image": files["plain"], "audio": files["short"]}
    return {"prompt": "a person talks", "size": "480p", **files_named, **more}


def frames_of(video: bytes) -> int:
    with av.open(io.BytesIO(video)) as opened:
        return sum(1 for _ in opened.decode(video=0))


def free(stack: Stack) -> None:
    """Waits until the worker has nothing to do, and holds that its jobs have left no file."""

    def idle() -> bool:
        return bool(stack.http.get(f"/{ENDPOINT}/health").json()["workers"]["idle"] == 1)

    until(idle, 60, "an idle worker")
    assert files_below(stack.folder / "agent" / "scratch") == []


def completed(stack: Stack, files: dict[str, str]) -> dict[str, Any]:
    record = stack.runsync(ENDPOINT, video_input(files))
    assert record["status"] == "COMPLETED", record
    assert record["output"]["cost"] == 0.25
    return record


def failed(stack: Stack, wanted: dict[str, Any]) -> str:
    record = stack.runsync(ENDPOINT, wanted)
    assert record["status"] == "FAILED", record
    assert "output" not in record, "what is not made is not paid for"
    return str(record["error"])


def test_each_chunk_adds_to_what_can_be_played(stack: Stack, stoker: Client, files: dict[str, str]) -> None:
    job = stoker.run(ENDPOINT, video_input(files, audio=files["two-chunks"])).id
    content, playable, steps = b"", [], []
    for event in stoker.events(ENDPOINT, job):
        if event.kind == "progress":
            steps.append(event.value["output"])
        elif event.kind == "chunk":
            chunk = event.value["output"]["video"]
            content += base64.b64decode(chunk["data"])
            playable.append((frames_of(content), chunk["frame"]))
    record = JobRecord.read(event.value)
    assert record.succeeded, record
    first, reported = playable[0]
    assert 0 < first <= reported < 25
    assert [frames for frames, _ in playable] == sorted({frames for frames, _ in playable})
    assert playable[-1] == (25, 25)
    assert {(step["chunks"], step["steps"]) for step in steps} <= {(2, 2)}, (
        "it may be over before one is told"
    )
    assert record.output["cost"] == 0.25
    answer = fetched(record.output["video_url"]).raise_for_status()
    assert answer.headers["content-type"] == "video/mp4"
    with av.open(io.BytesIO(answer.content)) as made:
        video, sound = made.streams.video[0], made.streams.audio[0]
        assert (video.width, video.height, video.average_rate, video.frames) == (640, 640, 25, 25)
        assert (video.codec_context.name, sound.codec_context.name) == ("h264", "aac")
    assert frames_of(answer.content) == 25
    free(stack)


def test_a_held_call_waits_as_long_as_a_video_takes(stack: Stack, files: dict[str, str]) -> None:
    answer = stack.http.post(
        f"/{ENDPOINT}/runsync", params={"wait": 300_000}, json={"input": video_input(files)}, timeout=320
    )
    record = answer.json()
    assert (answer.status_code, record["status"]) == (200, "COMPLETED"), record
    video = fetched(record["output"]["video_url"]).raise_for_status().content
    assert frames_of(video) == 7, "floor(0.3 s x 25)"


def test_bad_inputs_are_refused_by_name_and_the_worker_lives_on(stack: Stack, files: dict[str, str]) -> None:
    worker = completed(stack, files)["workerId"]
    for name in ("image", "audio"):
        error = failed(stack, video_input(files, **{name: "http://127.0.0.1:1/x.png"}))
        assert error.startswith(f"Invalid {name} URL: ")
        assert "127.0.0.1" in error
    assert failed(stack, video_input(files, audio=files["plain"])).startswith("Invalid audio: ")
    assert failed(stack, video_input(files, image=files["short"])).startswith("Invalid image: ")
    assert completed(stack, files)["workerId"] == worker
    free(stack)


@pytest.mark.parametrize("operation", ["run", "runsync"])
def test_another_size_is_refused_before_it_is_queued(
    stack: Stack, files: dict[str, str], operation: str
) -> None:
    answer = stack.http.post(f"/{ENDPOINT}/{operation}", json={"input": video_input(files, size="1080p")})
    body = answer.json()
    assert (answer.status_code, body["status"]) == (400, "FAILED")
    for word in ("size", "1080p", "480p", "720p"):
        assert word in body["error"]
    assert stack.http.get(f"/{ENDPOINT}/status/{body['id']}").status_code == 404


def test_the_official_openai_client_makes_a_talking_video(
    stack: Stack, media: Path, files: dict[str, str], tmp_path: Path
) -> None:
    """Only its base URL and its key are ours. It sends one file, the image: audio is a URL or a data URL."""
    data_url = "data:audio/wav;base64," + base64.b64encode((media / "short.wav").read_bytes()).decode()
    to = {"endpoint": ENDPOINT, "key": stack.key, "image": str(media / "plain.png")}
    with python_client("openai_python.py", tmp_path / "python", stack.facts["http"], stack.key) as client:
        for name, audio in (("by-url", files["short"]), ("by-data-url", data_url)):
            given = {"prompt": "a person talks", "size": "480p", "extra_body": {"audio": audio}}
            saved = tmp_path / f"{name}.mp4"
            video = client.ask("video", **to, given=given, to=str(saved))
            assert (video["object"], video["status"], video["progress"]) == ("video", "completed", 100), video
            assert frames_of(saved.read_bytes()) == 7
            record = stack.status(ENDPOINT, video["id"])
            assert record["output"]["cost"] == 0.25
        given = {"prompt": "a person talks", "extra_body": {"audio": files["plain"]}}
        video = client.ask("video", **to, given=given, to="")
        assert (video["status"], video["error"]["code"]) == ("failed", "failed")
        assert video["error"]["message"].startswith("Invalid audio: ")
        with pytest.raises(Raised, match="audio is missing: a talking video is made from") as raised:
            client.ask("video", **to, given={"prompt": "a"}, to="")
        assert raised.value.status == 400
        every = {"endpoint": "", "key": stack.key}
        listed = client.ask("videos", **every, limit=2)
        assert listed == [one["id"] for one in stack.http.get(f"/{ENDPOINT}/requests").json()["requests"]]
        url = record["output"]["video_url"]
        assert fetched(url).status_code == 200
        assert client.ask("delete_video", **every, video=record["id"]) is True
        assert client.ask("videos", **every, limit=2) == [one for one in listed if one != record["id"]]
        until(lambda: fetched(url).status_code == 404, 60, "the file of a deleted video gone")
    free(stack)


def test_a_marked_image_is_flagged_and_not_paid_for(stack: Stack, files: dict[str, str]) -> None:
    error = failed(stack, video_input(files, image=files["marked"]))
    assert "safety checker flagged the image" in error
    completed(stack, files)
    free(stack)


def test_a_chunk_can_be_played_while_the_video_is_made_and_a_cancel_frees_the_worker_soon(
    stack: Stack, stoker: Client, files: dict[str, str]
) -> None:
    job = stoker.run(ENDPOINT, video_input(files, audio=files["long"])).id
    begun = time.monotonic()
    events = stoker.events(ENDPOINT, job)
    event = next(event for event in events if event.kind == "chunk")
    to_a_chunk_s = time.monotonic() - begun
    assert frames_of(base64.b64decode(event.value["output"]["video"]["data"])) > 0
    step = next(event for event in events if event.kind == "progress").value["output"]
    assert (step["chunks"] > 50, step["steps"]) == (True, 2)
    assert stack.status(ENDPOINT, job)["status"] == "IN_PROGRESS", "the whole video takes minutes"
    began = time.monotonic()
    cancelled = stack.http.post(f"/{ENDPOINT}/cancel/{job}").json()
    assert cancelled["status"] == "CANCELLED"
    assert "output" not in cancelled or "cost" not in (cancelled["output"] or {})
    free(stack)
    seconds = time.monotonic() - began
    print(f"\ncancelled to free: {seconds:.2f} s")
    assert seconds < max(30, 2 * to_a_chunk_s), "a step, or a new worker: the whole video takes minutes"
    completed(stack, files)
