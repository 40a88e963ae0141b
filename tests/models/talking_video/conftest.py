"""talk-tiny, made and loaded once for all tests of the video model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.models.talking_video.tiny import tiny


@pytest.fixture(scope="session")
def talk_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder; not to be written to."""
    folder = tmp_path_factory.mktemp("talk") / "talk-tiny"
    tiny.build(folder)
    return folder


@pytest.fixture(scope="session")
def video_pipeline(talk_tiny: Path) -> Any:
    """Its parts on the CPU, torch on one thread: sums in one order give the same bytes."""
    import torch

    from stoker.models.talking_video import loading

    torch.set_num_threads(1)
    return loading.load(talk_tiny, "cpu")


@pytest.fixture(scope="session")
def drawn_video_pipeline(talk_tiny: Path) -> Any:
    """The same parts with drawn numbers where talk-tiny's are set by hand: everything depends on everything,
    so that what reaches where it should not is seen."""
    import torch

    from stoker.models.talking_video import loading

    torch.set_num_threads(1)
    video_pipeline = loading.load(talk_tiny, "cpu")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for part in (video_pipeline.network, video_pipeline.autoencoder, video_pipeline.speech_encoder):
            for name, weight in part.named_parameters():
                if "norm" in name or name.endswith("gamma"):
                    weight.fill_(0.0 if name.endswith("bias") else 1.0)
                else:
                    inputs = weight[0].numel() if weight.dim() > 1 else weight.numel()
                    weight.copy_(torch.randn(weight.shape, generator=generator) * inputs**-0.5)
    return video_pipeline
