"""Measures talk-tiny on one CPU thread, from two files on disk to a checked video: a part of
`bench/models/talking_video.py`.

Without fetching the inputs and without the safety checker. Seconds are CPU time, which a busy machine changes
less than wall-clock time.
"""

from __future__ import annotations

import math
import tempfile
import time
import wave
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stoker.models.talking_video.sampling.settings import SETTINGS


class Times:
    """CPU seconds by name, of calls that are not nested."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.spent[name] += time.process_time() - start

    def watch(self, name: str, module: Any) -> None:
        """Adds the time of every call of a part of the model."""
        starts: list[float] = []
        module.register_forward_pre_hook(lambda *_: starts.append(time.process_time()))

        def after(*_: object) -> None:
            self.spent[name] += time.process_time() - starts.pop()

        module.register_forward_hook(after)


def tiny(seconds: float) -> dict[str, Any]:
    import torch

    from stoker.models.talking_video import loading
    from stoker.models.talking_video.tiny.tiny import build

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, times = Path(name), Times()
        build(folder / "weights")
        video_pipeline = loading.load(folder / "weights", "cpu", SETTINGS["tiny"])
        for what, module in {
            "network": video_pipeline.network,
            "network: audio projector": video_pipeline.network.audio_proj,
            "autoencoder: decode": video_pipeline.autoencoder.decoder,
            "autoencoder: encode": video_pipeline.autoencoder.encoder,
            "speech: convolutions": video_pipeline.speech_encoder.feature_extractor,
            "speech: layers": video_pipeline.speech_encoder.encoder,
            "text encoder": video_pipeline.text_encoder,
            "image encoder": video_pipeline.image_encoder,
        }.items():
            times.watch(what, module)
        make_inputs(folder, seconds)
        start, cpu = time.perf_counter(), time.process_time()
        first, frames = make_video(video_pipeline, folder, times)
        whole, busy = time.perf_counter() - start, time.process_time() - cpu
    times.spent["the rest"] = busy - sum(times.spent.values())
    parts = sorted(times.spent.items(), key=lambda item: -item[1])
    return {
        "seconds": seconds,
        "frames": frames,
        "took_s": round(whole, 2),
        "cpu_s": round(busy, 2),
        "seconds_per_second": {"cpu": round(busy / seconds, 2), "clock": round(whole / seconds, 2)},
        "first_part_s": {"cpu": round(first[0], 2), "clock": round(first[1], 2)},
        "parts_s": {name: round(spent, 3) for name, spent in parts},
    }


def make_inputs(folder: Path, seconds: float) -> None:
    """A gradient, and a tone of changing loudness."""
    from PIL import Image

    Image.linear_gradient("L").resize((512, 512)).convert("RGB").save(folder / "face.png")
    rate = 22_050
    with wave.open(str(folder / "voice.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        for position in range(round(seconds * rate)):
            height = 0.3 * math.sin(position / rate * 1400) * math.sin(position / rate * 9)
            out.writeframesraw(round(height * 32_000).to_bytes(2, "little", signed=True))


def make_video(video_pipeline: Any, folder: Path, times: Times) -> tuple[tuple[float, float], int]:
    """CPU and wall-clock seconds until the first part, and the number of frames."""
    import torch

    from stoker.models import input_image
    from stoker.models.talking_video import handler, pipeline
    from stoker.models.talking_video.audio import normalization
    from stoker.models.talking_video.audio.speech import EncodedSpeech
    from stoker.models.talking_video.video import image
    from stoker.models.talking_video.video.video_file import VideoFile

    start = [time.process_time(), time.perf_counter()]
    first: list[float] = []
    settings = SETTINGS["tiny"]
    with times.of("reading the files"):
        bucket, pixels = image.cut(input_image.opened(folder / "face.png"), "480p", settings.shrink)
        audio = normalization.normalized(folder / "voice.wav", folder)
    scene = pipeline.encode_scene(
        video_pipeline,
        "somebody speaks",
        torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1,
    )
    speech = EncodedSpeech(video_pipeline.speech_encoder, audio.samples, audio.frames)
    file = VideoFile(folder, folder / "voice.wav", bucket.width, bucket.height, audio.frames)
    for frames in pipeline.generate(video_pipeline, scene, speech, settings, "480p", 1, lambda step: True):
        with times.of("scaling up"):
            large = handler._pixels(frames, bucket)
        with times.of("video file"):
            file.add(large)
            if file.take() and not first:
                first = [time.process_time(), time.perf_counter()]
    with times.of("video file: finish and check"):
        file.finish()
    first = first or [time.process_time(), time.perf_counter()]
    return (first[0] - start[0], first[1] - start[1]), audio.frames


def show_tiny(found: dict[str, Any]) -> None:
    rate, first = found["seconds_per_second"], found["first_part_s"]
    print(
        f"{found['seconds']} s of video in {found['cpu_s']} s of one thread ({found['took_s']} by the clock):"
    )
    print(f"  {rate['cpu']} s/s ({rate['clock']}); first part after {first['cpu']} s ({first['clock']})")
    for name, spent in found["parts_s"].items():
        print(f"  {name:32}{spent:8.3f} s {spent / found['cpu_s']:7.1%}")
