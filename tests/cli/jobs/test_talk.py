"""`stoker talk` against a scripted service on loopback."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.consoles import plain_console
from stoker.cli.errors import CliError
from stoker.cli.jobs import hosted_call, local_sources
from stoker.cli.jobs.talk_job import TalkOptions, run, steps_of
from stoker.cli.jobs.watch import watch
from stoker.cli.main import main
from stoker.client import AsyncClient, BadRequest, Event, JobFailed, JobRecord
from stoker.control.http.calls.settings import ApiSettings
from tests.cli.jobs.hosted_service import RESULT, Service, at_once, serving


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted_call, "AsyncClient", partial(AsyncClient, sleep=at_once))
    monkeypatch.setattr(hosted_call, "watch", partial(watch, sleep=at_once))
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")


@pytest.fixture
def service() -> Iterator[Service]:
    output = {"cost": 0.25, "pipeline": "talk-tiny", "made_up_weights": True}
    made = Service("talking-video", output, "video_url")
    made.events = [
        ("progress", {"output": {"chunk": 1, "chunks": 2, "step": 2, "steps": 2}}),
        ("chunk", {"output": {"video": {"format": "mp4", "frame": 17, "data": "AAAA"}}}),
        ("progress", {"output": {"chunk": 2, "chunks": 2, "step": 1, "steps": 2}}),
    ]
    with serving(made):
        yield made


@pytest.fixture
def face(tmp_path: Path) -> Path:
    made = tmp_path / "face.png"
    made.write_bytes(b"a picture")
    return made


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    made = tmp_path / "voice.mp3"
    made.write_bytes(b"a voice")
    return made


def run_talk(service: Service, image: object, audio: object, out: Path, **fields: Any) -> str:
    printed = io.StringIO()
    request = TalkOptions(str(image), str(audio), out, "a person talks", url=service.url, **fields)
    run(request, out.parent, plain_console(file=printed, width=1000))
    return printed.getvalue()


def test_files_are_brought_along_and_the_video_is_there(
    service: Service, face: Path, speech: Path, tmp_path: Path
) -> None:
    printed = run_talk(service, face, speech, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").read_bytes() == RESULT
    assert "chunk 2 of 2, step" in printed
    assert "4/4" in printed, "the last step is not reported, but done"
    assert "out.mp4, by talk-tiny, whose weights are made up: 0.25000000 USD, made in 0.81 s" in printed
    assert service.posted("/v2/talking-video/files") == [
        ("image/png", b"a picture"),
        ("audio/mpeg", b"a voice"),
    ]
    assert service.posted("/v2/talking-video/run") == [
        {
            "input": {
                "prompt": "a person talks",
                "image": f"{service.url}/given/face.png",
                "audio": f"{service.url}/given/voice.mp3",
                "size": "480p",
                "enable_safety_checker": True,
            }
        }
    ]
    assert service.requests[-1] == ("GET", "/signed", None), "the signed URL gets no key"


def test_a_file_whose_name_is_no_text_is_brought_along(service: Service, face: Path, tmp_path: Path) -> None:
    """From a disk of Windows, or out of an old archive."""
    speech = tmp_path / os.fsdecode(b"caf\xe9.mp3")
    speech.write_bytes(b"a voice")
    run_talk(service, face, speech, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").read_bytes() == RESULT
    assert ("POST", "/v2/talking-video/files?name=caf%3F.mp3", ("audio/mpeg", b"a voice")) in service.requests


def test_urls_are_passed_on_as_they_are(service: Service, tmp_path: Path) -> None:
    urls = ("https://pictures.test/face.png?sig=1", "http://sounds.test/voice")
    run_talk(service, *urls, tmp_path / "out.mp4", size="720p", check=False, assume_face=True)
    assert service.posted("/v2/talking-video/files") == []
    (body,) = service.posted("/v2/talking-video/run")
    job_input = body["input"]
    assert (job_input["image"], job_input["audio"]) == urls
    assert (job_input["size"], job_input["enable_safety_checker"]) == ("720p", False)
    assert job_input["face"] == "assume"


def test_the_command_takes_its_options(service: Service, face: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    options = ["--prompt", "a fox sings", "--size", "720p", "--no-check", "--url", service.url]
    with pytest.raises(SystemExit) as ended:
        main(["talk", str(face), "http://a.test/v", "-o", str(out), *options, "--data-dir", str(tmp_path)])
    assert ended.value.code == 0
    assert out.read_bytes() == RESULT
    (body,) = service.posted("/v2/talking-video/run")
    assert body["input"]["prompt"] == "a fox sings"
    assert (body["input"]["size"], body["input"]["enable_safety_checker"]) == ("720p", False)


@pytest.mark.parametrize("missing", ["face.png", "voice.mp3"])
def test_a_missing_file_is_named_before_any_request(
    service: Service, face: Path, speech: Path, tmp_path: Path, missing: str
) -> None:
    (tmp_path / missing).unlink()
    with pytest.raises(CliError, match=f"there is no file .*{missing}; give a file or an http URL"):
        run_talk(service, face, speech, tmp_path / "out.mp4")
    assert service.requests == []


@pytest.mark.parametrize("name", ["face.png", "voice.mp3"])
def test_an_empty_file_is_named_before_any_request(
    service: Service, face: Path, speech: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CliError, match=rf"{name} is empty"):
        run_talk(service, face, speech, tmp_path / "out.mp4")
    assert service.requests == []


@pytest.mark.parametrize("name", ["face.png", "voice.mp3"])
def test_a_file_that_is_too_large_is_named_before_anything_is_read(
    service: Service, face: Path, speech: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ApiSettings().file_bytes == local_sources.UPLOAD_MAX_BYTES
    os.truncate(tmp_path / name, local_sources.UPLOAD_MAX_BYTES + 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(CliError, match=rf"{name} has 62,914,561 bytes; a file to upload may have 62,914,560"):
        run_talk(service, face, speech, tmp_path / "out.mp4")
    assert service.requests == []


def test_another_extension_is_refused_before_any_request(
    service: Service, face: Path, speech: Path, tmp_path: Path
) -> None:
    with pytest.raises(CliError, match=r"out\.avi must end in one of \.mp4"):
        run_talk(service, face, speech, tmp_path / "out.avi")
    assert service.requests == []


def test_a_folder_as_output_is_named_before_any_request(
    service: Service, face: Path, speech: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.mp4").mkdir()
    with pytest.raises(CliError, match=r"out\.mp4 is a folder; name a file to write the video to"):
        run_talk(service, face, speech, tmp_path / "out.mp4")
    assert service.requests == []


def test_a_folder_that_cannot_be_written_to_is_named_before_any_request(
    service: Service, face: Path, speech: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(CliError, match=r"nothing can be written to .*: permission denied"):
        run_talk(service, face, speech, face.parent / "out.mp4")
    assert service.requests == []


@pytest.mark.parametrize("size", ["1080p", "", "480"])
def test_another_size_is_refused_before_any_request(
    service: Service, face: Path, tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["talk", str(face), "http://a.test/v", "-o", str(tmp_path / "o.mp4"), "--size", size])
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert all(word in printed for word in (f"'{size}'", "480p", "720p", "--size"))
    assert service.requests == []


def test_a_job_that_failed_is_reported_and_nothing_is_written(
    service: Service, face: Path, speech: Path, tmp_path: Path
) -> None:
    service.record = {"id": "j-u1", "status": "FAILED", "error": "Invalid audio: it has 0.05 s"}
    with pytest.raises(JobFailed, match=r"FAILED: Invalid audio: it has 0\.05 s"):
        run_talk(service, face, speech, tmp_path / "out.mp4")
    assert {path.name for path in tmp_path.iterdir()} == {"face.png", "voice.mp3"}


def test_a_refused_size_is_reported(service: Service, face: Path, speech: Path, tmp_path: Path) -> None:
    service.run_answer = (400, {"id": "j", "status": "FAILED", "error": "size is '1080p'"})
    with pytest.raises(BadRequest, match="size is '1080p'"):
        run_talk(service, face, speech, tmp_path / "out.mp4", size="1080p")


# ---- what the calls of hosted models share


MakeInput = Callable[[AsyncClient], Coroutine[Any, Any, dict[str, Any]]]


async def nothing(_: AsyncClient) -> dict[str, Any]:
    return {}


def call(service: Service, tmp_path: Path, job_input: MakeInput = nothing) -> tuple[JobRecord, str]:
    printed = io.StringIO()
    console = plain_console(file=printed, width=60)
    record = hosted_call.run(service.url, "talking-video", job_input, steps_of, tmp_path, console)
    return record, printed.getvalue()


def test_a_stream_that_breaks_off_loses_nothing(service: Service, tmp_path: Path) -> None:
    service.breaks = 2
    assert call(service, tmp_path)[0].succeeded
    assert service.requests.count(("GET", service.stream, "Bearer sk_1_2")) == 3


def waiting(reason: str) -> dict[str, Any]:
    return {"id": "j-u1", "status": "IN_QUEUE", "reason": reason}


def test_why_a_job_waits_is_reported_and_a_countdown_once(service: Service, tmp_path: Path) -> None:
    crash = "crash loop: No module named 'av', which reads and writes every kind of sound and film"
    service.looks = [
        waiting("starting"),
        *(waiting(f"{crash}; backing off for {left} s") for left in (29, 28.5, 27)),
        {"id": "j-u1", "status": "IN_PROGRESS", "workerId": "w-1"},
    ]
    service.looked_at = 6
    _, printed = call(service, tmp_path)
    reported = [line for line in printed.splitlines() if line.startswith("waiting: ")]
    assert reported == ["waiting: starting", f"waiting: {crash}; backing off for 29 s"]


def test_an_attempt_that_begins_anew_is_reported(service: Service, tmp_path: Path) -> None:
    service.events.append(("reset", {"attempt": 2}))
    assert "attempt 2 begins: what came before is void\n" in call(service, tmp_path)[1]


SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[signal.Signals], None]:
    """The job of the next call gets this signal instead of an end."""

    def arrange(number: signal.Signals) -> None:
        async def watch(*_: object) -> None:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()

        monkeypatch.setattr(hosted_call, "watch", watch)

    return arrange


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_cancels_the_job(
    service: Service, tmp_path: Path, interrupted: Callable[[signal.Signals], None], number: signal.Signals
) -> None:
    interrupted(number)
    service.record["status"] = "CANCELLED"
    with pytest.raises(CliError, match=r"^cancelled job j-u1$"):
        call(service, tmp_path)
    assert service.requests[-1][:2] == ("POST", "/v2/talking-video/cancel/j-u1")


def test_a_signal_during_the_submission_cancels_the_job(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = AsyncClient.run

    async def interrupted(stoker: AsyncClient, *job_input: Any) -> JobRecord:
        os.kill(os.getpid(), signal.SIGTERM)
        return await submit(stoker, *job_input)

    monkeypatch.setattr(AsyncClient, "run", interrupted)
    service.looks, service.looked_at = [waiting("starting")], 1_000
    with pytest.raises(CliError, match=r"^cancelled job j-u1$"):
        call(service, tmp_path)
    assert service.requests[-1][:2] == ("POST", "/v2/talking-video/cancel/j-u1")
    service.looked.release(1_000)


def test_a_signal_before_the_submission_leaves_no_job(service: Service, tmp_path: Path) -> None:
    async def interrupted(_: AsyncClient) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.Future()

    with pytest.raises(CliError, match="stopped before the job was submitted"):
        call(service, tmp_path, interrupted)
    assert service.requests == []


def test_a_job_that_ended_before_it_was_cancelled_is_reported_as_it_ended(
    service: Service, tmp_path: Path, interrupted: Callable[[signal.Signals], None]
) -> None:
    interrupted(signal.SIGTERM)
    service.cancel_answer = (200, service.record)
    with pytest.raises(CliError, match=r"^job j-u1 COMPLETED"):
        call(service, tmp_path)


def test_a_job_that_could_not_be_cancelled_is_named(
    service: Service, tmp_path: Path, interrupted: Callable[[signal.Signals], None]
) -> None:
    interrupted(signal.SIGTERM)
    service.cancel_answer = (500, {"error": "the store is away"})
    with pytest.raises(CliError, match=r"job j-u1 may go on: .*: stoker job cancel talking-video j-u1"):
        call(service, tmp_path)


def test_a_result_that_is_gone_leaves_what_was_there(service: Service, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"the one before")
    service.result_status = 404
    with pytest.raises(CliError, match=r"the video at .*/signed could not be downloaded: .*404"):
        hosted_call.download(f"{service.url}/signed", out, "video")
    assert out.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [out]


def test_a_video_that_finds_no_room_is_reported_where_it_is(
    service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paid for: whoever has made room can fetch it."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        CliError, match=r"could not be written: No space left .*; the video is at http.*/signed"
    ):
        hosted_call.download(f"{service.url}/signed", tmp_path / "out.mp4", "video")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "value", "reported"),
    [
        ("progress", {"output": {"step": 1}}, {"step": 1}),
        ("chunk", {"output": {"video": {}}}, {"video": {}}),
        ("progress", {"output": "half"}, {}),
        ("progress", "half", {}),
        ("reset", {"output": {"step": 1}}, {}),
        ("end", {"output": {"video_url": "x"}}, {}),
    ],
)
def test_the_output_of_a_handler_in_an_event(kind: str, value: Any, reported: dict[str, Any]) -> None:
    assert hosted_call.handler_output(Event(kind, "1-0", value)) == reported


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"chunk": 1, "chunks": 3, "step": 1, "steps": 40}, ("chunk 1 of 3, step", 1, 120)),
        ({"chunk": 3, "chunks": 3, "step": 40, "steps": 40}, ("chunk 3 of 3, step", 120, 120)),
        ({"step": 1, "steps": 40}, None),
        ({"chunk": "1", "chunks": 3, "step": 1, "steps": 40}, None),
        ({"video": {"format": "mp4", "frame": 17, "data": ""}}, None),
    ],
)
def test_steps_are_counted_over_all_chunks(value: Any, found: tuple[str, int, int] | None) -> None:
    advance = steps_of(Event("progress", "1-0", {"output": value}))
    assert (None if advance is None else (advance.what, advance.done, advance.of)) == found
