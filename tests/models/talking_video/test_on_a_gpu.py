"""The video model on a GPU: the whole job in the number format that it has there, and block by block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from stoker.models.talking_video.handler import TalkingVideo
from stoker.models.talking_video.memory import MemoryPlan, MemoryUse
from stoker.worker import Device, Job
from stoker.worker.testing import LocalJob
from tests.media_files import tone, write_sound

pytestmark = pytest.mark.gpu


@pytest.fixture
def talk(gpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Jobs of one model; talk-tiny draws 64 x 64 for 640 x 640."""
    monkeypatch.setenv("STOKER_WEIGHTS_DIR", str(tmp_path / "weights"))
    monkeypatch.setenv("STOKER_PIPELINE", "talk-tiny")
    fetch = Job.fetch
    monkeypatch.setattr(
        Job, "fetch", lambda job, url, **limits: fetch(job, str(tmp_path / Path(url).name), **limits)
    )
    Image.linear_gradient("L").convert("RGB").save(tmp_path / "face.png")
    write_sound(tmp_path / "voice.wav", tone(28_665, 22_050), 22_050)
    model = TalkingVideo()
    model.setup(gpu)
    model.pipeline.settings = replace(model.pipeline.settings, shrink=10)

    def run() -> LocalJob:
        urls = {"image": "http://here/face.png", "audio": "http://here/voice.wav"}
        return LocalJob(model.run, {"prompt": "somebody speaks", "size": "480p", **urls}).run()

    run.model = model  # type: ignore[attr-defined]
    return run


def frames_of(path: Path) -> Any:
    with av.open(str(path)) as video_file:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in video_file.decode(video=0)])


def test_a_video_on_a_gpu(talk: Any) -> None:
    import torch

    for name in ("network", "autoencoder", "text_encoder", "image_encoder", "speech_encoder"):
        part = getattr(talk.model.pipeline.parts, name)
        assert {parameter.device.type for parameter in part.parameters()} == {"cuda"}
    assert talk.model.pipeline.parts.network.dtype == torch.bfloat16
    first, again = talk(), talk()
    assert (first.error, again.error) == (None, None)
    video_files = [frames_of(job.output["video_url"].path) for job in (first, again)]
    assert video_files[0].shape == (32, 640, 640, 3)
    assert np.array_equal(*video_files)
    assert video_files[0].std() > 10, "a video file of NaN or of nothing is flat"
    assert len(first.chunks) >= 3


@pytest.mark.parametrize("placement", [MemoryUse.IN_TURN, MemoryUse.BY_BLOCKS])
def test_what_moves_makes_the_same_latents(gpu: Device, talk_tiny: Path, placement: MemoryUse) -> None:
    """With blocks that come by a stream of their own, one ahead of the one at work."""
    import torch

    from stoker.models.talking_video import loading, pipeline
    from stoker.models.talking_video.audio.speech import EncodedSpeech, Samples
    from stoker.models.talking_video.sampling.settings import SETTINGS

    samples = Samples(np.linspace(-1, 1, 9 * 640, dtype=np.float32), 0.0, 0.5)
    shown = []
    for plan in (MemoryPlan(MemoryUse.RESIDENT), MemoryPlan(placement)):
        video_pipeline = loading.load(talk_tiny, "cuda", SETTINGS["tiny"], plan)
        scene = pipeline.encode_scene(
            video_pipeline, "a face", torch.linspace(-1, 1, 3 * 64 * 64).reshape(3, 64, 64)
        )
        speech = EncodedSpeech(video_pipeline.speech_encoder, samples, 9)
        made = pipeline.generate(
            video_pipeline, scene, speech, SETTINGS["tiny"], "480p", 1, lambda step: True
        )
        shown.append(torch.cat([frames.pixels for frames in made]))
    assert torch.equal(*shown)
