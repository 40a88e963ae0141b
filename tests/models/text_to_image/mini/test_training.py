"""What the training of flux-mini's transformer begins with, and which scenes it reads."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import FluxTransformer2DModel
from PIL import Image
from torch import nn

from stoker.models.text_to_image.mini import networks
from stoker.models.text_to_image.mini.networks import FIRST_CLIP_WORD, FIRST_T5_WORD
from stoker.models.text_to_image.mini.vocabulary import DRAWABLES, WORDS
from stoker.models.text_to_image.training import latents, shapes
from stoker.models.text_to_image.training.scenes import Group, Scene, scene
from stoker.models.text_to_image.training.transformer import Shards, begin, emphasis, levels, positions


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


ALL = {"alone": 1.0, "placed": 1.0, "several": 1.0, "groups": 1.0}


def test_shards_are_found_as_they_come_and_read_for_the_wanted_sizes(tmp_path: Path) -> None:
    shards = Shards(tmp_path, random.Random(0), 500, ALL, {"256x256": 1.0})
    shard(tmp_path, 16)
    assert shards.look() == 3
    shard(tmp_path, 16)
    shard(tmp_path, 64)
    assert shards.look() == 9
    texts, found, counts = shards.batch()
    assert found.shape == (len(texts), 16, 16, 16)
    assert len(texts) == 500 // (64 + networks.TEXT_TOKENS)
    torch.testing.assert_close(counts.mean(1), torch.ones(len(texts)))


def test_scenes_of_a_kind_may_be_left_out(tmp_path: Path) -> None:
    rng = random.Random(1)
    scenes = [scene(rng) for _ in range(40)]
    assert {one.kind for one in scenes} == set(ALL)
    latents.save(latents.Shard(scenes, torch.zeros(40, 16, 16, 16)), tmp_path)
    shards = Shards(tmp_path, random.Random(0), 5000, {"alone": 1.0}, {"256x256": 1.0})
    shards.look()
    texts, _, _ = shards.batch()
    assert not any(word in text.split() for text in texts for word in ("two", "three", "four", "left"))


def test_tokens_of_objects_count_more() -> None:
    one = Group(DRAWABLES[0], "red", 1, position="left")
    found = emphasis(Scene((one,), "white"), 8, 8).view(8, 8)
    assert found.mean().item() == pytest.approx(1)
    assert (found > 1).sum() == 16
    assert (found[2:6, 0:4] > 1).all()


def test_a_new_transformer_returns_about_what_it_was_given() -> None:
    torch.manual_seed(0)
    transformer = FluxTransformer2DModel(**networks.TRANSFORMER)
    begin(transformer)
    given = torch.randn(1, 64, 64)
    with torch.inference_mode():
        found = transformer(
            hidden_states=given,
            timestep=torch.ones(1),
            guidance=torch.ones(1),
            encoder_hidden_states=torch.randn(1, networks.TEXT_TOKENS, networks.TEXT_WIDTH),
            pooled_projections=torch.randn(1, networks.TEXT_WIDTH),
            txt_ids=torch.zeros(networks.TEXT_TOKENS, 3),
            img_ids=positions(8, 8),
            return_dict=False,
        )[0]
    assert torch.corrcoef(torch.stack([given.flatten(), found.flatten()]))[0, 1] > 0.5


def test_half_of_the_levels_are_near_noise() -> None:
    torch.manual_seed(0)
    found = levels(4000, 64)
    assert found.min() > 0
    assert found.max() <= 1
    assert (found >= 0.9).float().mean() > 0.6
