"""The hosted video model, run with no platform: what it tells, gives out and measures, and how it fails."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from stoker.models.interface import ImageDefaults
from stoker.models.talking_video.handler import TalkingVideo, seed_of
from stoker.models.talking_video.infinitetalk import InfiniteTalk
from stoker.models.talking_video.limits import ENVIRONMENT, VideoLimits
from stoker.models.talking_video.network import frames_from_latents
from stoker.models.talking_video.safety import Finding
from stoker.models.talking_video.sampling import sampling
from stoker.models.talking_video.video import video_file
from stoker.models.weights import read_lock
from stoker.worker import Device, Job
from stoker.worker.errors import HandlerError
from stoker.worker.job.saves import packed
from stoker.worker.testing import LocalJob, LocalSave
from tests.media_files import Sound, lag, read_sound, tone, video_file_without_sound, write_sound
from tests.open_files import open_files
from training import safety_checker

RATE = 22_050
SECONDS = 1.3
FRAMES, CHUNKS = 32, 3
"""Of the whole run: 17 frames, 12, and 3."""


class Served(BaseHTTPRequestHandler):
    """Every file under a wrong media type; /slow is not answered until the server goes."""

    files: dict[str, bytes]
    ended: threading.Event

    def do_GET(self) -> None:
        name = self.path.strip("/")
        if name == "slow":
            self.ended.wait(30)
        body = self.files.get(name)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who found it too slow has gone
            self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None:
        pass


@dataclass
class Site:
    url: str
    files: dict[str, bytes]

    def put(self, name: str, body: bytes) -> str:
        self.files[name] = body
        return f"{self.url}/{name}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    files: dict[str, bytes] = {}
    ended = threading.Event()
    kind = type("Kind", (Served,), {"files": files, "ended": ended})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield Site(f"http://127.0.0.1:{server.server_port}", files)
        ended.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TalkingVideo:
    """talk-tiny on the CPU; it draws 64 x 64 for 640 x 640, which is all that these tests need."""
    import torch

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path_factory.mktemp("weights")))
        patch.setenv("STOKER_PIPELINE", "talk-tiny")
        for name in ("STOKER_SAFETY_CHECKER", ENVIRONMENT):
            patch.delenv(name, raising=False)
        model = TalkingVideo()
        model.setup(Device())
    model.pipeline.settings = replace(model.pipeline.settings, shrink=10)
    return model


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(pixels, np.uint8)).save(file, "PNG")
    return file.getvalue()


def face() -> Any:
    rows, columns = np.mgrid[0:128, 0:128]
    pixels = np.stack([columns + 60, rows + 60, np.full_like(rows, 120)], axis=-1)
    pixels[(columns - 64) ** 2 / 32**2 + (rows - 64) ** 2 / 44**2 < 1] = (230, 190, 160)
    return pixels


@pytest.fixture(scope="module")
def speech() -> Sound:
    rng = np.random.default_rng(0)
    wave = tone(round(SECONDS * RATE), RATE) + rng.normal(0, 0.02, round(SECONDS * RATE))
    return np.asarray(wave, np.float32)


@pytest.fixture(scope="module")
def request_(site: Site, speech: Sound, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A good input, of FRAMES frames."""
    folder = tmp_path_factory.mktemp("job_input")
    audio = write_sound(folder / "voice.wav", speech, RATE).read_bytes()
    short = write_sound(folder / "short.wav", speech[:, : RATE * 3 // 10], RATE).read_bytes()
    site.put("short", short)
    return {
        "prompt": "a person talks",
        "image": site.put("face", png(face())),
        "audio": site.put("voice", audio),
        "size": "480p",
    }


@pytest.fixture(scope="module")
def short(request_: dict[str, Any], site: Site) -> dict[str, Any]:
    """Of 7 frames."""
    return {**request_, "audio": f"{site.url}/short"}


@dataclass
class Result:
    """A job that has run, and what it reported, in order: progress and parts."""

    job: LocalJob
    events: list[tuple[str, Any]]

    @property
    def parts(self) -> list[bytes]:
        return [base64.b64decode(chunk["video"]["data"]) for chunk in self.job.chunks]


def run(model: TalkingVideo, job_input: dict[str, Any]) -> Result:
    events: list[tuple[str, Any]] = []
    job = LocalJob(
        model.run,
        job_input,
        on_progress=lambda value: events.append(("progress", value)),
        on_chunk=lambda value: events.append(("piece", value["video"]["frame"])),
        network=True,
    )
    return Result(forgets(job.run()), events)


def forgets(job: LocalJob) -> LocalJob:
    """What the handler raised is kept for `output`, and with it what its functions had open."""
    error = job._attempt.raised
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    return job


@pytest.fixture(scope="module")
def made(model: TalkingVideo, request_: dict[str, Any]) -> Result:
    message = run(model, request_)
    assert message.job.error is None
    return message


def path_of(job: LocalJob) -> Path:
    path: Path = job.output["video_url"].path
    return path


def frames_of(source: Any) -> list[Any]:
    with av.open(source, "r") as video:
        return [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]


@pytest.mark.slow
def test_the_output_is_a_video_file_of_every_frame(made: Result) -> None:
    assert set(made.job.output) == {"video_url", "pipeline", "made_up_weights"}
    assert made.job.output["video_url"].media_type == "video/mp4"
    assert video_file.checked(path_of(made.job), FRAMES) == video_file.Checked(FRAMES, 640, 640, FRAMES / 25)
    images = [frame.astype(int) for frame in frames_of(str(path_of(made.job)))]
    assert len(images) == FRAMES
    changes = [np.abs(one - other).mean() for one, other in pairwise(images)]
    assert sum(change > 0.1 for change in changes) >= FRAMES // 5  # one of each latent at least


def test_the_sound_is_the_callers(made: Result, speech: Sound) -> None:
    decoded, rate = read_sound(path_of(made.job))
    length = FRAMES * rate // 25
    assert (rate, len(decoded)) == (RATE, 1)
    assert lag(decoded[0, :length], speech[0, :length]) == 0
    assert np.corrcoef(decoded[0, :length], speech[0, :length])[0, 1] > 0.99


def test_progress_after_each_step_of_each_chunk(made: Result) -> None:
    assert made.job.progress == [
        {"chunk": chunk, "chunks": CHUNKS, "step": step, "steps": 2}
        for chunk in range(1, CHUNKS + 1)
        for step in (1, 2)
    ]


def test_it_can_be_played_before_the_second_chunk_begins(made: Result) -> None:
    begins = next(
        n for n, (kind, what) in enumerate(made.events) if kind == "progress" and what["chunk"] == 2
    )
    assert [kind for kind, _ in made.events[:begins]] == ["progress", "progress", "piece"]
    frames = frames_of(io.BytesIO(made.parts[0]))
    assert 5 <= len(frames) <= 17
    sound, rate = read_sound(io.BytesIO(made.parts[0]))
    assert sound.shape[1] / rate > len(frames) / 25 - 0.1


def test_chunks_follow_each_other_to_the_end(made: Result) -> None:
    frames = [chunk["video"]["frame"] for chunk in made.job.chunks]
    assert frames == sorted(frames)
    assert (frames[0], frames[-1]) == (17, FRAMES)
    assert {chunk["video"]["format"] for chunk in made.job.chunks} == {"mp4"}
    assert len(frames_of(io.BytesIO(b"".join(made.parts)))) == FRAMES


@pytest.mark.slow
def test_one_video_is_measured(made: Result, model: TalkingVideo, short: dict[str, Any]) -> None:
    assert made.job.metrics == {"videos_480p": 1}
    large = run(model, {**short, "size": "720p"}).job
    assert large.metrics == {"videos_720p": 1}
    assert video_file.checked(path_of(large), 7).width == 960


def test_the_video_file_has_metadata_about_its_making(made: Result) -> None:
    message = video_file.about(path_of(made.job))
    assert message is not None
    assert set(message.pop("versions")) == {"stoker", "av", "torch", "diffusers", "transformers"}
    assert message == {
        "seed": seed_of("local"),
        "size": "480p",
        "pipeline": "talk-tiny",
        "made_up_weights": True,
        "sampling": "tiny",
        "profile": "exact",
        "speed_ups": {"prompt-cache": "up to 256 MiB"},
        "weights": f"sha256:{read_lock().entry('talk-tiny').digest}",
        "device": "cpu",
    }


def test_the_video_file_names_projected_guidance(
    model: TalkingVideo, short: dict[str, Any], talk_tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = InfiniteTalk(talk_tiny, "cpu", "tiny", "exact+apg")
    pipeline.warm([], ImageDefaults(steps=1))
    pipeline.settings = replace(pipeline.settings, shrink=10)
    monkeypatch.setattr(model, "pipeline", pipeline)
    message = video_file.about(path_of(run(model, short).job))
    assert message is not None
    assert (message["profile"], message["speed_ups"]["apg"]) == (
        "exact+apg",
        "momentum -0.75, norm at most 55",
    )


def test_a_job_has_a_seed_of_its_own() -> None:
    seeds = {seed_of(f"job-{number}") for number in range(1000)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 2**32 for seed in seeds)
    assert seed_of("local") == int(hashlib.sha256(b"local").hexdigest()[:8], 16)


def test_the_same_job_makes_the_same_bytes(model: TalkingVideo, short: dict[str, Any]) -> None:
    first, again = (path_of(run(model, short).job).read_bytes() for _ in range(2))
    assert first == again


@pytest.mark.slow
@pytest.mark.numbers
def test_another_prompt_makes_another_video(model: TalkingVideo, short: dict[str, Any]) -> None:
    first, other = (run(model, {**short, "prompt": prompt}) for prompt in ("a person talks", "a fox sings"))
    assert path_of(first.job).read_bytes() != path_of(other.job).read_bytes()


@pytest.mark.parametrize(
    ("kind", "rate", "channels", "gain"),
    [("wav", 8_000, 1, 0.0), ("flac", 192_000, 2, 0.3), ("ogg", 48_000, 2, 1.0), ("m4a", 44_100, 1, 0.3)],
)
@pytest.mark.slow
def test_unusual_inputs_are_converted(
    model: TalkingVideo,
    request_: dict[str, Any],
    site: Site,
    tmp_path: Path,
    kind: str,
    rate: int,
    channels: int,
    gain: float,
) -> None:
    """Silence, stereo, high and low rates, a transparent image; all under a wrong media type."""
    sound = np.repeat(tone(rate * 3 // 10, rate, gain=gain), channels, axis=0)
    audio = site.put(f"sound.{kind}", write_sound(tmp_path / f"voice.{kind}", sound, rate).read_bytes())
    pixels = np.dstack([face(), np.full((128, 128), 128)])
    job = run(model, {**request_, "audio": audio, "image": site.put("clear", png(pixels))}).job
    assert job.error is None
    assert video_file.checked(path_of(job), 7).frames == 7
    decoded, _ = read_sound(path_of(job))
    assert len(decoded) == channels
    assert np.abs(decoded).max() == pytest.approx(gain, abs=0.1)


def _moving() -> bytes:
    file = io.BytesIO()
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:])
    return file.getvalue()


def _huge() -> bytes:
    """The header says 20,000 x 20,000."""
    import zlib

    data = bytearray(png(face()))
    data[16:24] = (20_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


BAD_IMAGES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "it is not a png, jpeg or webp image"),
    "text": (lambda: b"not an image", "it is text/plain; it must be a png, jpeg or webp image"),
    "gif": (lambda: b"GIF89a" + bytes(90), "it is image/gif; it must be a png, jpeg or webp image"),
    "dot": (lambda: png(np.zeros((1, 1, 3))), "it has 1 x 1 pixels; each side must have at least 64"),
    "huge": (_huge, "it has 20000 x 20000 pixels; there may be 25 million in all"),
    "moving": (_moving, "it is animated"),
    "part": (lambda: png(face())[:300], "it cannot be decoded completely"),
}
"""Each with the words of its refusal."""


@pytest.mark.parametrize("what", BAD_IMAGES)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_cannot_be_used(
    model: TalkingVideo, request_: dict[str, Any], site: Site, what: str
) -> None:
    data, why = BAD_IMAGES[what]
    message = failed(model, {**request_, "image": site.put(what, data())})
    assert message.startswith(("Invalid image: " + why, "Invalid image: it is larger than 25 million"))


def _sound(seconds: float) -> Callable[[Path], bytes]:
    return lambda folder: write_sound(
        folder / "a.wav", tone(round(seconds * 8_000), 8_000), 8_000
    ).read_bytes()


BAD_SOUNDS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "empty": (lambda _: b"", "it is not a readable wav, mp3, flac, ogg, m4a, aac, aiff, webm or mkv file"),
    "text": (lambda _: b"not a sound\n" * 50, "it is text/plain; it must be wav, mp3, flac, ogg, m4a, aac,"),
    "blink": (_sound(0.05), "it has 0.05 s; it must have 0.2 s to 2 s"),
    "long": (_sound(2.1), "it has more than 2 s; it must have 0.2 s to 2 s"),
    "part": (
        lambda folder: _sound(1)(folder)[:3000],
        "it holds 2922 of 16000 bytes of sound: it was cut off",
    ),
    "video": (
        lambda folder: video_file_without_sound(folder / "a.mp4").read_bytes(),
        "there is no sound in it",
    ),
}


@pytest.mark.parametrize("what", BAD_SOUNDS)
def test_a_sound_that_cannot_be_used(
    model: TalkingVideo,
    request_: dict[str, Any],
    site: Site,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, why = BAD_SOUNDS[what]
    monkeypatch.setattr(model, "limits", VideoLimits(audio_most_s=2.0))
    message = failed(model, {**request_, "audio": site.put(f"sound-{what}", data(tmp_path))})
    assert message.startswith("Invalid audio: " + why)


@pytest.mark.parametrize("name", ["image", "audio"])
def test_what_is_not_there(model: TalkingVideo, request_: dict[str, Any], site: Site, name: str) -> None:
    message = failed(model, {**request_, name: f"{site.url}/nothing?secret=1"})
    assert message == f"Invalid {name} URL: {site.url}/nothing answered 404"


@pytest.mark.parametrize("name", ["image", "audio"])
def test_a_server_that_is_too_slow(
    model: TalkingVideo, request_: dict[str, Any], site: Site, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never answered; the other file has all the time that it usually has."""
    fetch = Job.fetch

    def impatient(job: Job, url: str, **limits: Any) -> Any:
        return fetch(job, url, **limits, **({"timeout_s": 0.2} if url.endswith("/slow") else {}))

    monkeypatch.setattr(Job, "fetch", impatient)
    message = failed(model, {**request_, name: f"{site.url}/slow"}, retryable=True)
    assert message == f"Invalid {name} URL: {site.url}/slow was not fetched in time"


@pytest.mark.parametrize("name", ["image", "audio"])
def test_a_file_that_is_too_large(
    model: TalkingVideo, request_: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (VideoLimits().image_bytes, VideoLimits().audio_bytes) == (30_000_000, 50_000_000)
    monkeypatch.setattr(model, "limits", VideoLimits.parse("image_bytes=300 audio_bytes=300 image_least=1"))
    if name == "audio":
        monkeypatch.setattr(model, "limits", VideoLimits.parse("audio_bytes=300"))
    message = failed(model, request_)
    assert message == f"Invalid {name} URL: {request_[name]} is more than the 300 bytes that are allowed"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": "1080p"}, "size"),
        ({"size": None}, "size"),
        ({"prompt": " "}, "prompt"),
        (
            {"image": "file:///etc/passwd"},
            'image: "file:///etc/passwd" is not allowed; it must be an http or',
        ),
        ({"audio": "voice.wav"}, 'audio: "voice.wav" is not allowed; it must be an http or https URL'),
        ({"audio": "http://a b"}, "audio: "),
        ({"audio": "http://"}, "audio: "),
        ({"audio": 7}, "audio: 7 is not allowed; it must be an http or https URL"),
        ({"seed": 1}, "seed"),
        ({"enable_safety_checker": "no"}, "enable_safety_checker"),
    ],
)
def test_an_input_that_is_none_is_named(
    model: TalkingVideo, request_: dict[str, Any], change: dict[str, Any], why: str
) -> None:
    assert why in failed(model, {**request_, **change})


def test_a_video_of_what_is_not_a_number_fails_and_may_be_tried_again(
    model: TalkingVideo, short: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "denoised", lambda *given: given[2] * float("nan"))
    assert "the model computed latents that are not finite numbers" in failed(model, short, retryable=True)
    monkeypatch.undo()
    frames = frames_from_latents.decoded
    monkeypatch.setattr(
        frames_from_latents, "decoded", lambda *given: (one * float("inf") for one in frames(*given))
    )
    assert "the model computed pixels that are not finite numbers" in failed(model, short, retryable=True)


def failed(model: TalkingVideo, job_input: dict[str, Any], retryable: bool = False) -> str:
    """The sentence. Nothing is given out or measured; nothing is left open, or anywhere but in scratch."""
    with nothing_left():
        job = run(model, job_input).job
        with pytest.raises(HandlerError):
            _ = job.output
        assert (job.metrics, job.chunks, job.files) == ({}, [], [])
        assert job.retryable is retryable
        assert job.error is not None
        return job.error


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Other tests of the suite write to the folders that all processes have in common meanwhile."""
    before = open_files()
    with tempfile.TemporaryDirectory() as own, pytest.MonkeyPatch.context() as patch:
        patch.chdir(own)
        yield
        assert os.listdir(own) == []
    assert not open_files() - before


def test_a_worker_that_refused_makes_the_same_video_as_before(
    model: TalkingVideo, request_: dict[str, Any], short: dict[str, Any], site: Site
) -> None:
    before = path_of(run(model, short).job).read_bytes()
    failed(model, {**request_, "image": site.put("text", b"not an image")})
    failed(model, {**request_, "audio": site.put("text", b"not a sound")})
    assert path_of(run(model, short).job).read_bytes() == before


@pytest.mark.slow
def test_a_cancel_inside_a_chunk_ends_it_there(
    model: TalkingVideo, request_: dict[str, Any], short: dict[str, Any]
) -> None:
    before = path_of(run(model, short).job).read_bytes()
    stop = {"chunk": 2, "chunks": CHUNKS, "step": 1, "steps": 2}
    job = LocalJob(
        model.run,
        request_,
        on_progress=lambda value: job.cancel() if value == stop else None,
        network=True,
    )
    files = open_files()
    forgets(job.run())
    assert not open_files() - files
    assert job.progress[-1] == stop
    assert (job.error, job.metrics) == ("cancelled: cancelled by the test", {})
    assert [chunk["video"]["frame"] for chunk in job.chunks] == [17]
    assert path_of(run(model, short).job).read_bytes() == before


def test_a_cancel_inside_a_step_ends_it_there(model: TalkingVideo, request_: dict[str, Any]) -> None:
    """A step of the true network takes longer than a worker is given to stop by itself."""
    job = LocalJob(model.run, request_, network=True)
    entered = []

    def cancel(*_: object) -> None:
        entered.append(1)
        job.cancel()

    hook = model.pipeline.parts.network.blocks[0].register_forward_pre_hook(cancel)
    try:
        job.run()
    finally:
        hook.remove()
    assert (job.error, len(entered)) == ("cancelled: cancelled by the test", 1)
    assert (job.progress, job.chunks) == ([], [])


def marked_face() -> bytes:
    return png(safety_checker.marked(np.asarray(face(), np.uint8), np.random.default_rng(5)))


def test_a_flagged_image(model: TalkingVideo, request_: dict[str, Any], site: Site) -> None:
    message = failed(model, {**request_, "image": site.put("marked", marked_face())})
    assert message.startswith("the safety checker flagged the image: marked (")


def test_its_own_frames_are_not_flagged(made: Result, model: TalkingVideo) -> None:
    for frame in frames_of(str(path_of(made.job))):
        assert model.checker.check(frame[None]) is None


def test_a_flagged_image_is_drawn_where_nobody_looks(
    model: TalkingVideo, short: dict[str, Any], site: Site
) -> None:
    job_input = {**short, "image": site.put("marked", marked_face()), "enable_safety_checker": False}
    assert run(model, job_input).job.metrics == {"videos_480p": 1}


@dataclass
class Scripted:
    """A checker that finds something when it has looked so many times."""

    finds: int
    looked: list[tuple[int, ...]] = field(default_factory=list)

    def check(self, pixels: Any) -> Finding | None:
        self.looked.append(pixels.shape)
        return Finding("blood", 0.97) if len(self.looked) == self.finds else None


@pytest.mark.slow
@pytest.mark.numbers
def test_a_flagged_frame(
    model: TalkingVideo, request_: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is looked at first, then frame 0 and frame 25."""
    checker = Scripted(finds=3)
    monkeypatch.setattr(model, "checker", checker)
    job = run(model, request_).job
    assert job.error == "the safety checker flagged frame 25 of the video: blood (0.97)"
    assert (job.metrics, job.retryable) == ({}, False)
    assert checker.looked == [(1, 64, 64, 3)] * 3
    assert all(chunk["video"]["frame"] <= 25 for chunk in job.chunks)


def test_who_does_not_want_it_is_not_looked_at(
    model: TalkingVideo, short: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Scripted(finds=1)
    monkeypatch.setattr(model, "checker", checker)
    assert run(model, {**short, "enable_safety_checker": False}).job.error is None
    assert checker.looked == []
    assert "flagged the image" in failed(model, short)


def test_a_wrong_video_file_is_not_returned(
    model: TalkingVideo, short: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-check has the last word: here a frame was lost on the way to the file."""
    add = video_file.VideoFile.add
    monkeypatch.setattr(
        video_file.VideoFile, "add", lambda self, pixels: add(self, pixels[: 3 if self._done else 1])
    )
    job = run(model, short).job
    assert job.error is not None
    assert "it must have 7 at 25" in job.error
    assert job.metrics == {}
    assert job.error is not None


def test_limits_that_are_none_end_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, "audio_hours=1")
    with pytest.raises(ValueError, match="STOKER_VIDEO_LIMITS has no limit 'audio_hours'"):
        TalkingVideo().setup(Device())


# ---- an attempt that goes on from another ------------------------------------------------------------


def gone_on(model: TalkingVideo, job_input: dict[str, Any], save: LocalSave) -> LocalJob:
    return forgets(LocalJob(model.run, job_input, network=True, saved=save).run())


@pytest.mark.slow
@pytest.mark.numbers
def test_an_attempt_that_goes_on_makes_the_same_video(
    model: TalkingVideo, request_: dict[str, Any], made: Result
) -> None:
    assert [json.loads(save.state.partition(b"\n")[0])["frame"] for save in made.job.saves] == [0, 17, 29]
    whole = path_of(made.job).read_bytes()
    for save in made.job.saves:
        job = gone_on(model, request_, save)
        assert job.error is None
        assert job.chunks == made.job.chunks[save.upto :]
        assert path_of(job).read_bytes() == whole
        assert job.metrics == made.job.metrics, "it is paid for once"
    steps = {event["chunk"] for event in job.progress}
    assert steps == {CHUNKS}, "the last save leaves one chunk to make"


def asked_to_yield(model: TalkingVideo, job_input: dict[str, Any], *, after: int) -> LocalJob:
    """A job that is asked to yield when it emits the part of this number, from 1."""

    def on_chunk(_: Any) -> None:
        if len(job.chunks) == after:
            job.ask_to_yield()

    job = LocalJob(model.run, job_input, network=True, on_chunk=on_chunk)
    return forgets(job.run())


@pytest.mark.slow
@pytest.mark.numbers
def test_a_video_that_is_asked_to_yield_goes_on_from_its_next_chunk(
    model: TalkingVideo, request_: dict[str, Any], made: Result
) -> None:
    first = asked_to_yield(model, request_, after=1)
    assert first.yielded
    save = first.saves[-1]
    assert json.loads(save.state.partition(b"\n")[0])["frame"] == 17
    second = gone_on(model, request_, save)
    assert [*first.chunks, *second.chunks] == made.job.chunks
    assert path_of(second).read_bytes() == path_of(made.job).read_bytes()


@pytest.mark.slow
@pytest.mark.numbers
def test_the_kept_parts_are_read_back_where_the_save_holds_the_end_alone(
    model: TalkingVideo, request_: dict[str, Any], made: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_file, "END", 10)
    saves = run(model, request_).job.saves
    assert [len(json.loads(save.state.partition(b"\n")[0]).get("end", ())) for save in saves] == [0, 10, 10]
    for save in saves:
        job = gone_on(model, request_, save)
        assert job.chunks == made.job.chunks[save.upto :]
        assert path_of(job).read_bytes() == path_of(made.job).read_bytes()
        assert [one.upto for one in job.saves] == [one.upto for one in saves[len(saves) - len(job.saves) :]]
    assert {event["chunk"] for event in job.progress} == {CHUNKS}


def without_parts(save: LocalSave) -> LocalSave:
    return replace(save, kept=None)


def of_an_earlier_release(save: LocalSave) -> LocalSave:
    body = b'{"frame": 29, "parts": %d, "video": 4}\nH264state' % save.upto
    return replace(save, body=packed(body, {}))


def with_too_short_an_end(save: LocalSave) -> LocalSave:
    text, _, rest = save.state.partition(b"\n")
    head = json.loads(text)
    first, end = head["end"][:-1], head["end"][-1:]
    head["end"], rest = end, rest[sum(size for size, _ in first) :]
    return replace(save, body=packed(json.dumps(head).encode() + b"\n" + rest, {}))


@pytest.mark.parametrize("spoiled", [without_parts, of_an_earlier_release, with_too_short_an_end])
@pytest.mark.slow
@pytest.mark.numbers
def test_a_video_that_cannot_go_on_is_made_again_and_not_emitted_again(
    model: TalkingVideo,
    request_: dict[str, Any],
    made: Result,
    spoiled: Callable[[LocalSave], LocalSave],
) -> None:
    save = made.job.saves[-1]
    job = gone_on(model, request_, spoiled(save))
    assert job.progress == made.job.progress, "from its first chunk on"
    assert job.chunks == made.job.chunks[save.upto :]
    assert path_of(job).read_bytes() == path_of(made.job).read_bytes()


def test_what_was_emitted_until_a_save_can_be_played(made: Result) -> None:
    for save in made.job.saves[1:]:
        shown = frames_of(io.BytesIO(b"".join(made.parts[: save.upto])))
        assert len(shown) > 0
        whole = frames_of(str(path_of(made.job)))[: len(shown)]
        assert all(np.array_equal(one, other) for one, other in zip(shown, whole, strict=True))
