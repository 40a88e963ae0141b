"""The times of talk-tiny on one CPU thread, from two files on disk to a checked video, beside plain
diffusers: a part of `bench/models/talking_video.py`.

Without fetching the inputs and without the safety checker. Seconds are CPU time, which a busy machine changes
less than wall-clock time. `library` is one chunk in turns with the nearest that diffusers has: its pipeline
for videos from an image, with the same text and image encoders, the same autoencoder, and a network of the
same sizes without audio. Its steps take two forwards, ours three.
"""

from __future__ import annotations

import inspect
import math
import os
import resource
import statistics
import tempfile
import time
import wave
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stoker.models.talking_video.sampling.settings import SETTINGS

PROMPT = "somebody speaks"
SIDE = 160
"""Pixels of the frames that talk-tiny generates for 640 x 640."""
RUNS = 3


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
        library = beside_the_library(video_pipeline, folder / "weights")
    return {
        "seconds": seconds,
        "frames": frames,
        "took_s": round(whole, 2),
        "cpu_s": round(busy, 2),
        "seconds_per_second": {"cpu": round(busy / seconds, 2), "clock": round(whole / seconds, 2)},
        "first_part_s": {"cpu": round(first[0], 2), "clock": round(first[1], 2)},
        "parts_s": {name: round(spent, 3) for name, spent in parts},
        "library": library,
        "cold_start_s": cold_start(),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


def beside_the_library(video_pipeline: Any, weights: Path) -> dict[str, Any]:
    """The CPU seconds of the first chunk, from a prompt and an image to frames, and of diffusers' pipeline
    for as many frames; medians of RUNS, in turns."""
    import numpy as np
    import torch
    from PIL import Image

    from stoker.models.talking_video import pipeline
    from stoker.models.talking_video.audio.speech import EncodedSpeech, Samples

    settings = SETTINGS["tiny"]
    frames = settings.shape.frames
    library = library_of(video_pipeline, weights)
    picture = Image.linear_gradient("L").resize((SIDE, SIDE)).convert("RGB")
    samples = Samples(np.sin(np.arange(frames * 640) / 5).astype(np.float32), 0.0, 0.5)

    def ours() -> None:
        image = torch.from_numpy(np.array(picture)).permute(2, 0, 1).float() / 127.5 - 1
        scene = pipeline.encode_scene(video_pipeline, PROMPT, image)
        speech = EncodedSpeech(video_pipeline.speech_encoder, samples, frames)
        for _ in pipeline.generate(video_pipeline, scene, speech, settings, "480p", 1, lambda step: True):
            pass

    def theirs() -> None:
        library(
            image=picture,
            prompt=PROMPT,
            height=SIDE,
            width=SIDE,
            num_frames=frames,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance.text,
            generator=torch.Generator().manual_seed(1),
            output_type="pt",
        )

    seconds: dict[str, list[float]] = {"ours": [], "diffusers": []}
    for _ in range(RUNS + 1):
        for name, work in (("ours", ours), ("diffusers", theirs)):
            begun = time.process_time()
            work()
            seconds[name].append(time.process_time() - begun)
    medians = {name: statistics.median(several[1:]) for name, several in seconds.items()}
    return {
        "frames": frames,
        "side": SIDE,
        **{f"{name}_cpu_s": round(median, 3) for name, median in medians.items()},
        "ratio": round(medians["ours"] / medians["diffusers"], 3),
    }


def library_of(video_pipeline: Any, weights: Path) -> Any:
    """diffusers' pipeline, whose autoencoder is as the library has it: ours is changed for CPUs."""
    import diffusers
    import transformers

    talking = video_pipeline.network
    known = inspect.signature(diffusers.WanTransformer3DModel.__init__).parameters
    config = {name: value for name, value in talking.config.items() if name in known}
    network = diffusers.WanTransformer3DModel(**config)
    network.load_state_dict(
        {name: weight for name, weight in talking.state_dict().items() if name in network.state_dict()}
    )
    made = diffusers.WanImageToVideoPipeline(
        tokenizer=video_pipeline.tokenizer,
        text_encoder=video_pipeline.text_encoder,
        vae=diffusers.AutoencoderKLWan.from_pretrained(weights / "vae"),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        image_processor=transformers.CLIPImageProcessorPil(
            size={"shortest_edge": video_pipeline.image_encoder.config.image_size},
            crop_size=video_pipeline.image_encoder.config.image_size,
        ),
        image_encoder=video_pipeline.image_encoder,
        transformer=network.eval(),
    )
    made.set_progress_bar_config(disable=True)
    return made


def cold_start() -> dict[str, float]:
    """The stages before the first job, of a handler that is set up as in a worker."""
    from stoker.models.talking_video.handler import TalkingVideo
    from stoker.worker import Device

    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(STOKER_WEIGHTS_DIR=folder, STOKER_PIPELINE="talk-tiny")
        handler = TalkingVideo()
        handler.setup(Device())
    return {name: round(seconds, 3) for name, seconds in handler.cold_start_s.items()}


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
    beside = found["library"]
    print(
        f"  a chunk of {beside['frames']} frames: {beside['ours_cpu_s']} s of one thread, diffusers'"
        f" {beside['diffusers_cpu_s']} s, ratio {beside['ratio']}"
    )
    print(f"  cold start: {found['cold_start_s']}; peak memory {found['peak_mib']} MiB")
