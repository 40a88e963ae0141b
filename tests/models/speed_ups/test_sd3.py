"""Speed-ups of Stable Diffusion 3, whose repeated block this package names since diffusers does not."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from stoker.models.speed_ups import block_compile, float8, layers, step_caches
from stoker.models.speed_ups.profiles import SPEED_UPS
from stoker.models.speed_ups.speed_up import Loaded, NotHere
from stoker.models.text_to_image.families.sd3 import StableDiffusion3
from tests.models.speed_ups.pictures import most, picture
from tests.models.text_to_image import tiny_families


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    made = tmp_path_factory.mktemp("sd3") / "sd-3.5-large"
    tiny_families.build("sd-3.5-large", made)
    return made


@pytest.fixture
def sd3(folder: Path) -> Any:
    return StableDiffusion3(folder, "cpu", text_tokens=64)


def of(pipeline: Any, **more: Any) -> Loaded:
    pipe = pipeline.pipe
    return Loaded(pipe.transformer, pipe.vae, "cpu", pipe, **({"steps": 12} | more))


@pytest.mark.slow
def test_its_blocks_are_compiled(sd3: Any, dynamo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_compile, "BACKEND", "eager")
    plain = picture(sd3, steps=2)
    loaded = of(sd3, examples={"256x256": functools.partial(picture, sd3, steps=1)})
    assert block_compile.block_compile(loaded) == "2 blocks for 256x256"
    assert most(picture(sd3, steps=2), plain) <= SPEED_UPS["block-compile"].bound


def test_its_products_are_found_for_float8(sd3: Any) -> None:
    names = float8._products(sd3.pipe.transformer)
    assert names
    assert all(name.startswith("transformer_blocks.") for name in names)


@pytest.mark.parametrize("cache", [step_caches.first_block_cache, step_caches.taylor_seer])
def test_steps_are_left_out_and_the_same_seed_draws_the_same(sd3: Any, cache: Any) -> None:
    whole = picture(sd3, steps=12)
    cache(of(sd3))
    first = picture(sd3, steps=12)
    assert most(picture(sd3, steps=12), first) == 0
    assert first.std() > 0.5 * whole.std()


def test_a_network_whose_blocks_nobody_names_counts_as_left_out(
    sd3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_REPEATED", {})
    example = {"256x256": functools.partial(picture, sd3, steps=1)}
    with pytest.raises(NotHere, match="the repeated blocks of SD3Transformer2DModel are not known"):
        block_compile._blocks(of(sd3, examples=example).network)
    assert float8._products(sd3.pipe.transformer) == set()
