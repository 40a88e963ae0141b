"""`stoker talk` against a scripted service on loopback."""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hosted_service import RESULT, Service, serving

from stoker.cli import hosted_call, talk
from stoker.cli.errors import CliError
from stoker.cli.main import main
from stoker.cli.talk import TalkRequest, advance_of, run
from stoker.cli.terminal import plain_console
from stoker.client import BadRequest, Client, Event, JobFailed
from stoker.control.api.seam import ApiSettings


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("STOKER_API_KEY", "sk_1_2")


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service("talking-video", {"cost": 0.25}, "video_url")
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
def voice(tmp_path: Path) -> Path:
    made = tmp_path / "voice.mp3"
    made.write_bytes(b"a voice")
    return made


def ask(service: Service, image: object, audio: object, out: Path, **fields: Any) -> str:
    said = io.StringIO()
    request = TalkRequest(str(image), str(audio), out, "a person talks", url=service.url, **fields)
    run(request, out.parent, plain_console(file=said, width=1000))
    return said.getvalue()


def test_files_are_brought_along_and_the_video_is_there(
    service: Service, face: Path, voice: Path, tmp_path: Path
) -> None:
    said = ask(service, face, voice, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").read_bytes() == RESULT
    assert "chunk 2 of 2, step" in said
    assert "4/4" in said, "the last step is not told, and done nevertheless"
    assert "out.mp4: 0.25000000 USD, made in 0.81 s" in said
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
    assert service.asked[-1] == ("GET", "/signed", None), "the signed URL gets no key"


def test_a_file_whose_name_is_no_text_is_brought_along(service: Service, face: Path, tmp_path: Path) -> None:
    """From a disk of Windows, or out of an old archive."""
    voice = tmp_path / os.fsdecode(b"caf\xe9.mp3")
    voice.write_bytes(b"a voice")
    ask(service, face, voice, tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").read_bytes() == RESULT
    assert ("POST", "/v2/talking-video/files?name=caf%3F.mp3", ("audio/mpeg", b"a voice")) in service.asked


def test_urls_are_passed_on_as_they_are(service: Service, tmp_path: Path) -> None:
    urls = ("https://pictures.test/face.png?sig=1", "http://sounds.test/voice")
    ask(service, *urls, tmp_path / "out.mp4", size="720p", check=False)
    assert service.posted("/v2/talking-video/files") == []
    (body,) = service.posted("/v2/talking-video/run")
    given = body["input"]
    assert (given["image"], given["audio"]) == urls
    assert (given["size"], given["enable_safety_checker"]) == ("720p", False)


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
def test_a_missing_file_is_named_before_anything_is_asked(
    service: Service, face: Path, voice: Path, tmp_path: Path, missing: str
) -> None:
    (tmp_path / missing).unlink()
    with pytest.raises(CliError, match=f"there is no file .*{missing}; give a file or an http URL"):
        ask(service, face, voice, tmp_path / "out.mp4")
    assert service.asked == []


@pytest.mark.parametrize("name", ["face.png", "voice.mp3"])
def test_an_empty_file_is_named_before_anything_is_asked(
    service: Service, face: Path, voice: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(CliError, match=rf"{name} is empty"):
        ask(service, face, voice, tmp_path / "out.mp4")
    assert service.asked == []


@pytest.mark.parametrize("name", ["face.png", "voice.mp3"])
def test_a_file_that_is_too_large_is_named_before_anything_is_read(
    service: Service, face: Path, voice: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ApiSettings().file_bytes == talk.MOST
    os.truncate(tmp_path / name, talk.MOST + 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(CliError, match=rf"{name} has 62,914,561 bytes; .* brought along may have 62,914,560"):
        ask(service, face, voice, tmp_path / "out.mp4")
    assert service.asked == []


def test_another_ending_is_refused_before_anything_is_asked(
    service: Service, face: Path, voice: Path, tmp_path: Path
) -> None:
    with pytest.raises(CliError, match=r"out\.avi must end in one of \.mp4"):
        ask(service, face, voice, tmp_path / "out.avi")
    assert service.asked == []


def test_a_folder_in_the_videos_place_is_named_before_anything_is_asked(
    service: Service, face: Path, voice: Path, tmp_path: Path
) -> None:
    (tmp_path / "out.mp4").mkdir()
    with pytest.raises(CliError, match=r"out\.mp4 is a folder; name a file to write the video to"):
        ask(service, face, voice, tmp_path / "out.mp4")
    assert service.asked == []


def test_a_folder_that_cannot_be_written_to_is_named_before_anything_is_asked(
    service: Service, face: Path, voice: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(CliError, match=r"nothing can be written to .*: permission denied"):
        ask(service, face, voice, face.parent / "out.mp4")
    assert service.asked == []


@pytest.mark.parametrize("size", ["1080p", "", "480"])
def test_another_size_is_refused_before_anything_is_asked(
    service: Service, face: Path, tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["talk", str(face), "http://a.test/v", "-o", str(tmp_path / "o.mp4"), "--size", size])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert all(word in said for word in (f"'{size}'", "480p", "720p", "--size"))
    assert service.asked == []


def test_a_job_that_failed_is_told_and_nothing_is_written(
    service: Service, face: Path, voice: Path, tmp_path: Path
) -> None:
    service.record = {"id": "j-u1", "status": "FAILED", "error": "Invalid audio: it has 0.05 s"}
    with pytest.raises(JobFailed, match=r"FAILED: Invalid audio: it has 0\.05 s"):
        ask(service, face, voice, tmp_path / "out.mp4")
    assert {path.name for path in tmp_path.iterdir()} == {"face.png", "voice.mp3"}


def test_a_refused_size_is_told(service: Service, face: Path, voice: Path, tmp_path: Path) -> None:
    service.run_answer = (400, {"id": "j", "status": "FAILED", "error": "size is '1080p'"})
    with pytest.raises(BadRequest, match="size is '1080p'"):
        ask(service, face, voice, tmp_path / "out.mp4", size="1080p")


# ---- what the calls of hosted models share


def call(service: Service, tmp_path: Path, **given: Any) -> Any:
    return hosted_call.run(
        service.url, "talking-video", lambda _: given, advance_of, tmp_path, plain_console(file=io.StringIO())
    )


def test_a_stream_that_breaks_off_loses_nothing(service: Service, tmp_path: Path) -> None:
    service.breaks = 2
    assert call(service, tmp_path).succeeded
    assert service.asked.count(("GET", service.stream, "Bearer sk_1_2")) == 3


def test_a_ctrl_c_cancels_the_job(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "events", interrupted)
    with pytest.raises(CliError, match="cancelled job j-u1"):
        call(service, tmp_path)
    assert service.asked[-1][:2] == ("POST", "/v2/talking-video/cancel/j-u1")


def test_a_result_that_is_gone_leaves_what_was_there(service: Service, tmp_path: Path) -> None:
    out = tmp_path / "out.mp4"
    out.write_bytes(b"the one before")
    service.result_status = 404
    with pytest.raises(CliError, match=r"the video at .*/signed could not be downloaded: .*404"):
        hosted_call.download(f"{service.url}/signed", out, "video")
    assert out.read_bytes() == b"the one before"
    assert list(tmp_path.iterdir()) == [out]


def test_a_video_that_finds_no_room_is_told_where_it_is(
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
    ("kind", "value", "told"),
    [
        ("progress", {"output": {"step": 1}}, {"step": 1}),
        ("chunk", {"output": {"video": {}}}, {"video": {}}),
        ("progress", {"output": "half"}, {}),
        ("progress", "half", {}),
        ("reset", {"output": {"step": 1}}, {}),
        ("end", {"output": {"video_url": "x"}}, {}),
    ],
)
def test_what_a_handler_told(kind: str, value: Any, told: dict[str, Any]) -> None:
    assert hosted_call.told(Event(kind, "1-0", value)) == told


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
    advance = advance_of(Event("progress", "1-0", {"output": value}))
    assert (None if advance is None else (advance.what, advance.done, advance.of)) == found
