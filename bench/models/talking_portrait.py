"""Measures talk-mini: seconds of work for a second of video, by stage, against real time.

    python bench/models/talking_portrait.py [--seconds 8] [--json bench/results/talking-portrait.json]

From pixels and samples in memory to a checked file, in both sizes. The face is that of the demo, the audio a
tone whose level changes like that of speech: neither changes the cost. Below 1.0 a video is made faster than
it is played.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).parents[1]))
from measured_on import machine

from stoker.models.interface import VideoParameters
from stoker.models.talking_video.audio.speech import Samples
from stoker.models.talking_video.handler import _bytes
from stoker.models.talking_video.portrait import weights
from stoker.models.talking_video.portrait.engine import FPS, TalkMini
from stoker.models.talking_video.video.video_file import VideoFile

RATE = 16_000
SIZES = {"480p": 640, "720p": 960}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seconds", type=int, default=8)
    options.add_argument("--json", type=Path)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        weights.build(folder / "weights")
        began = time.perf_counter()
        pipeline = TalkMini(folder / "weights", "cpu")
        found: dict[str, Any] = {"machine": machine(), "load_s": round(time.perf_counter() - began, 2)}
        audio = speech_like(folder / "voice.wav", chosen.seconds)
        for size, side in SIZES.items():
            found[size] = measured(pipeline, folder, audio, size, side)
            print(
                f"{size}: {found[size]['seconds_per_second']} s for a second of video"
                f" ({found[size]['of_real_time']} of real time); first second after"
                f" {found[size]['first_part_s']} s; file {found[size]['file_s_per_second']} s of it"
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


def measured(pipeline: TalkMini, folder: Path, audio: Samples, size: str, side: int) -> dict[str, Any]:
    frames = len(audio.values) * FPS // RATE
    parameters = VideoParameters("a face", size, 1, face(folder, side), audio, frames)
    file = VideoFile(folder, folder / "voice.wav", side, side, frames)
    began, first, writing = time.perf_counter(), 0.0, 0.0
    for part in pipeline.generate(parameters, lambda step: None, lambda: True):
        at = time.perf_counter()
        file.add(_bytes(part.pixels))
        writing += time.perf_counter() - at
        first = first or time.perf_counter() - began
    file.finish()
    each = (time.perf_counter() - began) / (frames / FPS)
    return {
        "seconds_per_second": round(each, 3),
        "of_real_time": f"{each:.2f} x",
        "first_part_s": round(first, 2),
        "file_s_per_second": round(writing / (frames / FPS), 3),
    }


def face(folder: Path, side: int) -> Any:
    sys.path.insert(0, str(Path(__file__).parents[2] / "deploy"))
    import talking_picture

    talking_picture.draw_face(folder / "face.png")
    return np.asarray(Image.open(folder / "face.png").resize((side, side)))


def speech_like(path: Path, seconds: int) -> Samples:
    at = np.arange(seconds * RATE) / RATE
    values = (0.3 * np.sin(2 * math.pi * 140 * at) * np.sin(2 * math.pi * 2 * at)).astype(np.float32)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE)
        out.writeframes((values * 32_000).astype("<i2").tobytes())
    return Samples(values, float(values.mean()), float(values.std()))


if __name__ == "__main__":
    main()
