"""Ten minutes spoken by one job, in this process: `python checks_ten_minutes.py FOLDER`.

Leaves video.mp4 in the folder and prints, as JSON, the most memory of each minute of the video: `held` as
its parts came, and `hearing` while a stretch of the audio was encoded."""

from __future__ import annotations

import json
import os
import shutil
import sys
import wave
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.talking_video.sampling.chunks import FPS, ChunkShape
from stoker.models.talking_video.sampling.schedule import Guidance
from stoker.models.talking_video.video import sizes
from stoker.worker import Device, Job
from stoker.worker.testing import LocalJob

MINUTES = 10
RATE = 16_000
JOB_INPUT = {
    "prompt": "a person talks",
    "image": "http://here/face.png",
    "audio": "http://here/voice.wav",
    "size": "480p",
}


@dataclass
class Looks:
    """Bytes, the most of each minute."""

    held: list[int] = field(default_factory=lambda: [0] * MINUTES)
    hearing: list[int] = field(default_factory=lambda: [0] * MINUTES)
    frames: int = 0

    def at_chunk(self, chunk: Any) -> None:
        self.frames = chunk["video"]["frame"]
        self._look(self.held, self.frames - 1)

    def while_hearing(self, *_: object) -> None:
        self._look(self.hearing, self.frames)

    def _look(self, most: list[int], frame: int) -> None:
        minute = frame // (60 * FPS)
        most[minute] = max(most[minute], own_memory())


def own_memory() -> int:
    """Bytes of this process that lie in no file; what it reads through a mapping, the system takes back."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def main(folder: Path) -> None:
    write_speech(folder / "voice.wav")
    Image.new("RGB", (128, 128), (180, 140, 120)).save(folder / "face.png")
    fetch = Job.fetch
    Job.fetch = lambda job, url, **limits: fetch(job, str(folder / url.rpartition("/")[2]), **limits)  # type: ignore[method-assign]
    looks, model = Looks(), loaded(folder)
    for part in model.pipeline.parts.speech_encoder.modules():
        part.register_forward_hook(looks.while_hearing)

    def on_chunk(chunk: Any) -> None:
        """The job's own records would grow: they are dropped as they come."""
        looks.at_chunk(chunk)
        job.chunks.clear()
        job.progress.clear()
        job.saves.clear()

    job = LocalJob(model.run, JOB_INPUT, on_chunk=on_chunk)
    job.run()
    shutil.move(job.output["video_url"].path, folder / "video.mp4")
    print(json.dumps({"held": looks.held, "hearing": looks.hearing}))


def loaded(folder: Path) -> TalkingVideo:
    """One step of one forward, 32 x 32 drawn for a video file of 64 x 64; nothing is left out. Its chunks are
    as long as those of the true model."""
    import torch

    torch.set_num_threads(1)
    os.environ |= {"STOKER_WEIGHTS_DIR": str(folder / "weights"), "STOKER_PIPELINE": "talk-tiny"}
    sizes.BUCKETS = {"480p": (sizes.Bucket(64, 64),)}
    model = TalkingVideo()
    model.setup(Device())
    shape = ChunkShape(whole_tail=False)
    model.pipeline.settings = replace(
        model.pipeline.settings, steps=1, guidance=Guidance(1.0, 1.0), shape=shape, shrink=2
    )
    return model


def write_speech(path: Path) -> None:
    """Noise that swells each second, written second by second."""
    rng = np.random.default_rng(0)
    swell = 0.3 * np.sin(np.linspace(0, np.pi, RATE))
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        for _ in range(60 * MINUTES):
            out.writeframes((rng.uniform(-32_767, 32_767, RATE) * swell).astype("<i2").tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
