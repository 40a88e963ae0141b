"""A voice whose features are given, not encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Spoken:
    values: torch.Tensor

    @property
    def frames(self) -> int:
        return len(self.values)

    def features(self, first: int, last: int) -> torch.Tensor:
        assert 0 <= first < last <= self.frames
        return self.values[first:last]


def spoken(video_pipeline: Any, frames: int) -> Spoken:
    """Drawn, the same each time."""
    config = video_pipeline.network.config
    shape = (frames, config.audio_layers, config.audio_dim)
    return Spoken(torch.randn(shape, generator=torch.Generator().manual_seed(7)))
