"""What the training of flux-mini's transformer begins with, and which scenes it reads."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from stoker.models.text_to_image.mini.networks import FIRST_CLIP_WORD, FIRST_T5_WORD
from stoker.models.text_to_image.mini.vocabulary import DRAWABLES, WORDS
from stoker.models.text_to_image.training import latents, shapes
from stoker.models.text_to_image.training.scenes import scene
from stoker.models.text_to_image.training.transformer import Shards


@pytest.fixture
def icons(monkeypatch: pytest.MonkeyPatch) -> dict[str, Image.Image]:
    """A mask of its own for each icon, as the package of icons is not part of Stoker."""
    rng = np.random.default_rng(0)
    found = {
        one.icon: Image.fromarray(rng.integers(0, 256, (shapes.SIDE, shapes.SIDE), np.uint8))
        for one in DRAWABLES
    }
    monkeypatch.setattr(shapes, "masks", lambda icon: (found[icon], found[icon]))
    return found


def test_embeddings_differ_as_the_masks_do(icons: dict[str, Image.Image]) -> None:
    masks = np.stack([np.asarray(icons[one.icon], np.float32).ravel() for one in DRAWABLES])
    masks -= masks.mean(0)
    found = shapes.shapes(128)
    products, expected = found @ found.T, torch.from_numpy(masks @ masks.T)
    assert found.std().item() == pytest.approx(1)
    torch.testing.assert_close(products / products.norm(), expected / expected.norm(), atol=1e-5, rtol=0)


def test_only_the_names_of_objects_begin_with_shapes(icons: dict[str, Image.Image]) -> None:
    t5, clip = (nn.Embedding(first + len(WORDS), 128) for first in (FIRST_T5_WORD, FIRST_CLIP_WORD))
    before = [embedding.weight.detach().clone() for embedding in (t5, clip)]
    shapes.begin_with_shapes(t5, clip)
    names = {name for one in DRAWABLES for name in (one.name, one.plural)}
    for embedding, old, first in zip((t5, clip), before, (FIRST_T5_WORD, FIRST_CLIP_WORD), strict=True):
        changed = (embedding.weight != old).any(1)
        assert {number for number in range(len(WORDS)) if changed[first + number]} == {
            WORDS.index(name) for name in names
        }
        assert not changed[:first].any()


def shard(folder: Path, side: int) -> None:
    """Three scenes with latents of `side` x `side`."""
    rng = random.Random(side)
    latents.save(latents.Shard([scene(rng) for _ in range(3)], torch.zeros(3, 16, side, side)), folder)


def test_shards_are_found_as_they_come_but_for_those_of_large_images(tmp_path: Path) -> None:
    shards = Shards(tmp_path, random.Random(0), tokens=500, largest=100, single=0.0)
    shard(tmp_path, 16)
    assert shards.look() == 3
    shard(tmp_path, 16)
    shard(tmp_path, 64)
    assert shards.look() == 6
    texts, found = shards.batch()
    assert found.shape == (len(texts), 16, 16, 16)
    assert len(texts) == 500 // (64 + 32)


def test_images_of_one_object_may_be_chosen_more_often(tmp_path: Path) -> None:
    shards = Shards(tmp_path, random.Random(0), tokens=500, largest=100, single=1.0)
    rng = random.Random(1)
    scenes = [scene(rng) for _ in range(20)]
    assert 0 < sum(one.is_single for one in scenes) < len(scenes)
    assert all(scenes[shards.choose(scenes)].is_single for _ in range(50))
    assert shards.choose([one for one in scenes if not one.is_single]) >= 0
