"""What the demo brings along, and the pictures that docs/ shows of its film."""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.media_files import tone, write_sound

ROOT = Path(__file__).parents[2]


def module(path: str) -> ModuleType:
    """One that lies in no package."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def write_video(out: Path, frames: int = 50, rate: int = 25, codec: str = "libx264") -> Path:
    """Grey frames that grow lighter, and a tone."""
    with av.open(str(out), "w") as made:
        video: Any = made.add_stream(codec, rate=rate)
        video.width = video.height = 64
        video.pix_fmt = "yuv420p"
        sound: Any = made.add_stream("aac", rate=16_000, layout="mono")
        for number in range(frames):
            pixels = np.full((64, 64, 3), number * 5, np.uint8)
            made.mux(video.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        wave = tone(16_000 * frames // rate, 16_000)
        part = av.AudioFrame.from_ndarray(wave, format="fltp", layout="mono")
        part.sample_rate, part.pts, part.time_base = 16_000, 0, Fraction(1, 16_000)
        made.mux([*video.encode(None), *sound.encode(part), *sound.encode(None)])
    return out


def test_the_speech_is_short_mono_and_loud_enough() -> None:
    speech = ROOT / "deploy" / "voice.flac"
    assert speech.stat().st_size < 50_000
    with av.open(str(speech)) as opened:
        track = opened.streams.audio[0]
        assert (track.codec_context.name, track.rate, track.layout.name) == ("flac", 16_000, "mono")
        samples = np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(audio=0)])
    assert 1.5 <= len(samples) / 16_000 <= 2.0
    assert np.abs(samples.astype(int)).max() > 3_000


def test_the_face_is_drawn_the_same_each_time(tmp_path: Path) -> None:
    draw_face = module("deploy/talking_picture.py").draw_face
    for name in ("one.png", "two.png"):
        draw_face(tmp_path / name)
    assert (tmp_path / "one.png").read_bytes() == (tmp_path / "two.png").read_bytes()
    with Image.open(tmp_path / "one.png") as face:
        assert (face.size, face.mode) == ((640, 640), "RGB")


def test_the_demo_refuses_a_video_that_is_not_the_requested_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = module("deploy/talking_picture.py")
    monkeypatch.setattr(demo, "SPEECH", write_sound(tmp_path / "voice.flac", tone(32_000, 16_000), 16_000))
    assert demo.check(write_video(tmp_path / "good.mp4")) == 50
    for name, wrong in (
        ("short", write_video(tmp_path / "short.mp4", frames=49)),
        ("slow", write_video(tmp_path / "slow.mp4", frames=48, rate=24)),
        ("old", write_video(tmp_path / "old.mp4", codec="mpeg4")),
    ):
        with pytest.raises(SystemExit, match=name):
            demo.check(wrong)


def test_the_clip_of_a_video_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    sample = module("docs/results.py")
    made = write_video(tmp_path / "film.mp4")
    for name in ("first.gif", "second.gif"):
        sample.clip(made, tmp_path / name)
    assert (tmp_path / "first.gif").read_bytes() == (tmp_path / "second.gif").read_bytes()
    with Image.open(tmp_path / "first.gif") as clip:
        assert clip.n_frames > 1
        assert clip.size == (240, 240)
    assert sample.CLIP.stat().st_size < 200_000


def test_images_of_any_size_stand_side_by_side(tmp_path: Path) -> None:
    sample = module("docs/results.py")
    for name, size in (("wide", (640, 320)), ("high", (300, 600))):
        Image.new("RGB", size, "red").save(tmp_path / f"{name}.png")
    sample.row([tmp_path / "wide.png", tmp_path / "high.png"], tmp_path / "both.jpg")
    with Image.open(tmp_path / "both.jpg") as both:
        assert both.size == (512 + 8 + 128, 256)
    assert sample.IMAGES.stat().st_size < 100_000
