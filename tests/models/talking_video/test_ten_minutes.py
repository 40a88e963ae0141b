"""The longest voice that is allowed, spoken to its end by one job, at the smallest size that the parts can
draw."""

from __future__ import annotations

import wave
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from stoker.models.talking_video import film, sizes
from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.talking_video.limits import ENVIRONMENT
from stoker.models.talking_video.schedule import Guidance
from stoker.worker import Device, Job
from stoker.worker.testing import LocalJob

SECONDS = 600
RATE = 16_000
MIB = 1 << 20
MOST_GROWTH = 24 * MIB
"""Half of the sound alone would be more, let alone a frame of each second."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TalkingVideo:
    """One step of one forward, 32 x 32 drawn for a film of 64 x 64; nothing is left out."""
    import torch

    torch.set_num_threads(1)
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights"))
    for name in ("STOKER_PIPELINE", "STOKER_SAFETY_CHECKER", ENVIRONMENT):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sizes, "BUCKETS", {"480p": (sizes.Bucket(64, 64),)})
    model = TalkingVideo()
    model.setup(Device())
    model.profile = replace(model.profile, steps=1, guidance=Guidance(1.0, 1.0), shrink=2)
    return model


def write_voice(path: Path) -> None:
    """Noise that swells each second, written second by second."""
    rng = np.random.default_rng(0)
    swell = 0.3 * np.sin(np.linspace(0, np.pi, RATE))
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        for _ in range(SECONDS):
            out.writeframes((rng.uniform(-32_767, 32_767, RATE) * swell).astype("<i2").tobytes())


def own_memory() -> int:
    """Bytes of this process that lie in no file; what it reads through a mapping, the system takes back."""
    told = Path("/proc/self/status").read_text()
    return int(told.split("RssAnon:")[1].split()[0]) * 1024


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_minutes_take_the_memory_of_one(
    model: TalkingVideo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_voice(tmp_path / "voice.wav")
    Image.new("RGB", (128, 128), (180, 140, 120)).save(tmp_path / "face.png")
    fetch = Job.fetch

    def from_folder(job: Job, url: str, **limits: Any) -> Any:
        return fetch(job, str(tmp_path / url.rpartition("/")[2]), **limits)

    monkeypatch.setattr(Job, "fetch", from_folder)
    seen: list[int] = []

    def on_chunk(value: Any) -> None:
        """The job's own records would grow: they are dropped as they come."""
        seen.append(own_memory())
        job.chunks.clear()
        job.progress.clear()

    given = {
        "prompt": "a person talks",
        "image": "http://here/face.png",
        "audio": "http://here/voice.wav",
        "size": "480p",
    }
    job = LocalJob(model.run, given, on_chunk=on_chunk)
    job.run()
    assert job.error is None
    _check(job.output["video_url"].path)
    minute = len(seen) * 60 // SECONDS
    first, whole = max(seen[:minute]), max(seen)
    print(f"{len(seen)} pieces; memory {first / MIB:.0f} MiB in the first minute, {whole / MIB:.0f} in all")
    assert whole - first < MOST_GROWTH


def _check(path: Path) -> None:
    frames = SECONDS * 25
    assert film.checked(path, frames).seconds == SECONDS
    with av.open(str(path)) as video:
        times = [packet.pts * packet.time_base for packet in video.demux(video=0) if packet.size]  # type: ignore[operator]
    assert times == [Fraction(number, 25) for number in range(frames)]
