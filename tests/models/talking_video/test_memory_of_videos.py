"""Videos of mixed sizes, lengths and ends leave no memory behind."""

from __future__ import annotations

import gc
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from stoker.models.interface import ImageDefaults
from stoker.models.memory_gauge import process_bytes
from stoker.models.talking_video import pipeline as video
from stoker.models.talking_video.infinitetalk import InfiniteTalk
from stoker.models.talking_video.sampling.sampling import Stopped
from tests.models.talking_video.spoken import spoken

SIDES = (32, 48, 64)


def tensor_bytes() -> int:
    """Of all tensors that are alive, each storage once."""
    gc.collect()
    storages = {
        one.untyped_storage()._cdata: one.untyped_storage().nbytes()
        for one in gc.get_objects()
        if issubclass(type(one), torch.Tensor)
    }
    return sum(storages.values())


def make(talk: InfiniteTalk, draw: random.Random) -> None:
    """One of five ends in its first chunk."""
    width, height, frames = draw.choice(SIDES), draw.choice(SIDES), draw.randrange(1, 22)
    frame = torch.linspace(-0.8, 0.8, width).expand(3, height, width)
    prompt = draw.choice(["somebody speaks", "a fox speaks"])
    scene = video.encode_scene(talk.parts, prompt, frame, texts=talk.encode_prompt)
    ends = draw.random() < 0.2
    groups = video.generate(
        talk.parts,
        scene,
        spoken(talk.parts, frames),
        talk.settings,
        "480p",
        draw.randrange(100),
        lambda step: not ends,
    )
    try:
        assert sum(len(group.pixels) for group in groups) == frames
        assert not ends
    except Stopped:
        assert ends


@pytest.mark.parametrize("count", [12, 1000])
@pytest.mark.parametrize("profile", ["exact", "fast+apg"])
@pytest.mark.slow
def test_memory_is_flat_over_videos_of_mixed_sizes(talk_tiny: Path, profile: str, count: int) -> None:
    torch.set_num_threads(1)
    talk = InfiniteTalk(talk_tiny, "cpu", "tiny", profile)
    talk.settings = replace(talk.settings, steps=10 if profile != "exact" and count < 100 else 2)
    talk.warm([], ImageDefaults(steps=1))
    draw = random.Random(count)
    for _ in range(max(10, count // 10)):  # the allocator and the libraries keep what sizes need, once
        make(talk, draw)
    tensors, process = tensor_bytes(), process_bytes()
    for _ in range(count):
        make(talk, draw)
    after = process_bytes()
    assert tensor_bytes() == tensors
    assert process is not None
    assert after is not None
    assert after - process < 64 << 20
