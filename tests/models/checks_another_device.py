"""Both hosted models on another device, in a process of its own: prints, check by check, what went wrong.

python checks_another_device.py FOLDER      {"a video": null, "a forgotten move": "RuntimeError: …", …}
"""

from __future__ import annotations

import json
import os
import sys
import wave
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np
import torch
from PIL import Image

from stoker.models.talking_video import loading, memory, pipeline
from stoker.models.talking_video.audio.speech import EncodedSpeech, Samples, TwoSpeakers
from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.talking_video.sampling.settings import SETTINGS
from stoker.models.talking_video.video import sizes
from stoker.models.text_to_image import previews
from stoker.models.text_to_image.handler import TextToImage
from stoker.worker import Job
from stoker.worker.testing import LocalJob
from tests.models.another_device import Elsewhere, another_device

SIDE, FRAMES = 32, 7


@dataclass(frozen=True)
class Gpu:
    """The device as a worker gets it."""

    torch_device: str
    kind: str = "gpu"


def made_inputs(folder: Path) -> dict[str, str]:
    """An image and half a second of a tone."""
    Image.linear_gradient("L").convert("RGB").save(folder / "face.png")
    tone = np.sin(np.arange(8_000) / 5) * 9_000
    with wave.open(str(folder / "voice.wav"), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16_000)
        out.writeframes(tone.astype("<i2").tobytes())
    return {"image": "http://here/face.png", "audio": "http://here/voice.wav"}


def a_video(name: str, folder: Path) -> None:
    """The handler's whole job."""
    fetch = Job.fetch
    sizes.BUCKETS = {"480p": (sizes.Bucket(64, 64),)}  # type: ignore[misc]
    torch.cuda.mem_get_info = lambda device: (80 << 30, 80 << 30)  # type: ignore[assignment]
    Job.fetch = lambda job, url, **limits: fetch(job, str(folder / Path(url).name), **limits)  # type: ignore[method-assign]
    model = TalkingVideo()
    model.setup(Gpu(name))  # type: ignore[arg-type]
    model.pipeline.settings = replace(model.pipeline.settings, steps=1, shrink=2)
    lies_there(
        model.pipeline.parts.network, model.pipeline.parts.autoencoder, model.pipeline.parts.text_encoder
    )
    job_input = {"prompt": "somebody speaks", "size": "480p", **made_inputs(folder)}
    job = LocalJob(model.run, job_input).run()
    assert job.error is None, job.error
    assert job.files[0].path.stat().st_size > 1000


def lies_there(*modules: Any) -> None:
    for module in modules:
        assert all(isinstance(one, Elsewhere) for one in module.parameters())


def video_pipeline_of(name: str, placement: memory.MemoryUse) -> Any:
    folder = Path(os.environ["STOKER_WEIGHTS_DIR"]) / "talk-tiny"
    return loading.load(folder, name, SETTINGS["tiny"], memory.MemoryPlan(placement))


def talked(video_pipeline: Any, masks: torch.Tensor | None = None) -> None:
    scene = pipeline.encode_scene(video_pipeline, "two people", torch.zeros(3, SIDE, SIDE), masks)
    samples = Samples(np.linspace(-1, 1, FRAMES * 640, dtype=np.float32), 0.0, 0.5)
    one = EncodedSpeech(video_pipeline.speech_encoder, samples, FRAMES)
    speech = one if masks is None else TwoSpeakers(one, one)
    shown = list(
        pipeline.generate(video_pipeline, scene, speech, SETTINGS["tiny"], "480p", 1, lambda step: True)
    )
    assert sum(len(frames.pixels) for frames in shown) == FRAMES
    assert all(frames.pixels.device.type == "cpu" for frames in shown)


def a_video_with_encoders_that_come_to_work(name: str, folder: Path) -> None:
    video_pipeline = video_pipeline_of(name, memory.MemoryUse.IN_TURN)
    talked(video_pipeline)
    assert not any(isinstance(one, Elsewhere) for one in video_pipeline.text_encoder.parameters())


def a_video_of_two(name: str, folder: Path) -> None:
    masks = torch.zeros(2, SIDE, SIDE)
    masks[0, :, : SIDE // 2] = masks[1, :, SIDE // 2 :] = 1.0
    talked(video_pipeline_of(name, memory.MemoryUse.RESIDENT), masks)


def an_image(name: str, folder: Path) -> None:
    """The handler's whole job, previews and both kinds of guidance."""
    previews._FIT_SIDE, previews._FIT_PROMPTS = 256, ("a red flower",)  # type: ignore[misc]
    model = TextToImage()
    model.setup(Gpu(name))  # type: ignore[arg-type]
    lies_there(model.pipeline.pipe.transformer, model.pipeline.pipe.vae, model.pipeline.pipe.text_encoder_2)
    small = {"prompt": "a lighthouse", "width": 256, "height": 256, "num_inference_steps": 1, "seed": 1}
    for more in ({}, {"negative_prompt": "blurred"}):
        job = LocalJob(model.run, small | more).run()
        assert job.error is None, job.error
        assert job.files[0].path.stat().st_size > 1000


def a_forgotten_move(name: str, folder: Path) -> None:
    talked(replace(video_pipeline_of(name, memory.MemoryUse.RESIDENT), device="cpu"))


def a_generator_of_the_cpu(name: str, folder: Path) -> None:
    torch.randn(2, device=name, generator=torch.Generator("cpu"))


CHECKS: tuple[Callable[[str, Path], None], ...] = (
    a_video,
    a_video_with_encoders_that_come_to_work,
    a_video_of_two,
    an_image,
    a_forgotten_move,
    a_generator_of_the_cpu,
)


def main(folder: Path) -> None:
    os.environ["STOKER_WEIGHTS_DIR"] = str(folder / "weights")
    os.environ["STOKER_PIPELINE"] = "flux-tiny,talk-tiny"
    torch.set_num_threads(1)
    found: dict[str, str | None] = {}
    with another_device() as name:
        for check in CHECKS:
            title = check.__name__.replace("_", " ")
            try:
                check(name, folder)
                found[title] = None
            except Exception as error:
                found[title] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
