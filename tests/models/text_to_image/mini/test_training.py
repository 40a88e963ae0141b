"""The training of flux-mini: what it begins with, which scenes it reads, and how it goes on."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKL, FluxTransformer2DModel
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from stoker.models.text_to_image.mini import networks, weights
from stoker.models.text_to_image.mini.enlargement import DRAWN
from stoker.models.text_to_image.mini.networks import FIRST_CLIP_WORD, FIRST_T5_WORD
from stoker.models.text_to_image.mini.vocabulary import COUNTS, DRAWABLES, WORDS
from training.flux_mini import __main__ as main
from training.flux_mini import (
    autoencoder,
    drawing,
    export,
    run,
    scene_files,
    shapes,
    transformer,
)
from training.flux_mini.optimizers import Optimizers
from training.flux_mini.recipe import RECIPE, SHAPES, WARM_UP, Phase, Schedule, Stage
from training.flux_mini.scenes import Group, Scene
from training.flux_mini.transformer import begin, emphasis, levels, positions


@pytest.fixture
def icons(monkeypatch: pytest.MonkeyPatch) -> dict[str, Image.Image]:
    """A mask of its own for each icon, as the package of icons is not part of Stoker."""
    rng = np.random.default_rng(0)
    found = {
        one.icon: Image.fromarray(rng.integers(0, 256, (shapes.SIDE, shapes.SIDE), np.uint8))
        for one in DRAWABLES
    }
    for module in (shapes, drawing):
        monkeypatch.setattr(module, "masks", lambda icon: (found[icon], found[icon]))
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


SMALL, WIDE = (256, 256), (384, 256)


def stored(folder: Path, size: tuple[int, int], kinds: Iterable[str]) -> None:
    """A part with a scene of each of these kinds."""
    rng, (width, height) = random.Random(1), size
    scenes = [scene_files.of_kind(kind, rng) for kind in kinds]
    made = scene_files.of_size(folder, size)
    made.mkdir(parents=True)
    latents = torch.zeros(len(scenes), 16, height // 16, width // 16)
    scene_files.save(scene_files.Part(scenes, latents), made / "00000.part")


def test_batches_have_the_kinds_and_the_sizes_of_their_stage(tmp_path: Path) -> None:
    stored(tmp_path, SMALL, [*["alone"] * 5, *["several"] * 5, "groups"])
    stored(tmp_path, WIDE, ["alone"])
    phase = replace(SHAPES, scenes={SMALL: 11, WIDE: 1}, tokens=40 * 64)
    scenes = transformer.Scenes(tmp_path, phase)
    alone, both = {"alone": 1.0}, {"alone": 0.5, "several": 0.5}
    texts, latents, counts = scenes.batch(random.Random(0), Stage("a", 1, alone, {SMALL: 1.0}))
    assert latents.shape == (40, 16, 16, 16)
    assert not any(word in text.split() for text in texts for word in ("two", "three", "four", "left", "and"))
    torch.testing.assert_close(counts.mean(1), torch.ones(40))
    texts, _, _ = scenes.batch(random.Random(0), Stage("b", 1, both, {SMALL: 1.0}))
    assert 5 < sum(any(count in text.split() for count in COUNTS[1:]) for text in texts) < 35
    stage = Stage("c", 1, alone, {SMALL: 0.5, WIDE: 0.5})
    shapes_ = {tuple(scenes.batch(random.Random(n), stage)[1].shape) for n in range(20)}
    assert shapes_ == {(40, 16, 16, 16), (26, 16, 16, 24)}, "each batch has as many tokens"


def test_the_stages_follow_each_other_and_the_rate_falls_at_last() -> None:
    for phase in RECIPE.phases:
        schedule = phase.schedule
        names = [phase.stage(step).name for step in range(schedule.steps)]
        assert list(dict.fromkeys(names)) == [stage.name for stage in phase.stages]
        assert phase.stages[-1].until == schedule.steps
        for stage in phase.stages:
            assert sum(stage.kinds.values()) == pytest.approx(1)
            assert sum(stage.sizes.values()) == pytest.approx(1)
            assert stage.kinds.keys() <= phase.kinds.keys()
            assert stage.sizes.keys() <= phase.scenes.keys()
        rates = [schedule.share(step) for step in range(schedule.steps)]
        assert rates[0] < 0.02
        assert set(rates[WARM_UP : schedule.falls]) == {1.0}
        assert rates[-1] < 0.002
        assert sorted(rates[schedule.falls :], reverse=True) == rates[schedule.falls :]
    assert set(RECIPE.phases[-1].scenes) == set(DRAWN), "what is drawn is what was trained last"


class Interrupted(Exception):
    pass


def run_to(end: int, checkpoint: Path, steps: list[int]) -> nn.Module:
    """Six steps of a small network, interrupted before one of them."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    optimizers = Optimizers(model, 1e-2, edges=("1.",))
    made = run.Run(model, optimizers, Schedule(6, 3, 1e-2), checkpoint, seed=5, save_every=2, score_every=2)

    def loss_of(step: int, rng: random.Random) -> torch.Tensor:
        if step == end:
            raise Interrupted
        steps.append(step)
        given: torch.Tensor = model(torch.randn(4, 8))
        return (given - rng.random()).square().mean()

    return made.train(loss_of, lambda average: "a score", "a test")


def test_an_interrupted_training_ends_as_one_that_was_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    whole, steps = run_to(6, tmp_path / "whole.pt", []), list[int]()
    with pytest.raises(Interrupted):
        run_to(3, tmp_path / "parted.pt", [])
    parted = run_to(6, tmp_path / "parted.pt", steps)
    assert steps == [2, 3, 4, 5], "it went on from the checkpoint"
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), parted.parameters(), strict=True))
    printed = capfd.readouterr()
    assert "a test, step 6: loss 0." in printed.out
    assert "a score" in printed.err


def test_the_autoencoders_scenes_depend_on_the_step_only(icons: dict[str, Image.Image]) -> None:
    """A training that goes on sees the scenes that it would have seen."""
    pool = autoencoder.Pool(3, 0)
    seen = [pool.any(step, random.Random(step)) for step in range(40)]
    later = autoencoder.Pool(3, 0).any(39, random.Random(39))
    assert np.array_equal(seen[39], later)
    assert not np.array_equal(seen[0], autoencoder.Pool(3, 1).any(0, random.Random(0)))


SHORT = Schedule(steps=2, falls=1, rate=1e-3)
TINY = replace(
    RECIPE,
    phases=(
        Phase(
            name="first",
            schedule=SHORT,
            stages=(
                Stage("one object", 1, {"alone": 1.0}, {SMALL: 1.0}),
                Stage("more", 2, {"several": 0.5, "alone": 0.5}, {SMALL: 1.0}),
            ),
            scenes={SMALL: 16},
            kinds={"alone": 0.5, "several": 0.5},
            tokens=4 * 64,
        ),
        Phase(
            name="trained",
            schedule=SHORT,
            stages=(Stage("wide", 2, {"alone": 1.0}, {WIDE: 1.0}),),
            scenes={WIDE: 8},
            kinds={"alone": 1.0},
            tokens=4 * 96,
        ),
    ),
    autoencoder=SHORT,
    pool=2,
    autoencoder_batch=1,
    part=8,
    save_every=1,
    score_every=2,
    compiled=False,
)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Mismatch dtype between input and weight:UserWarning"
)  # where bfloat16 is quick
def test_one_command_makes_everything_and_nothing_twice(
    icons: dict[str, Image.Image], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    main.train(tmp_path, TINY)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "scenes").glob("*/*.part")}
    assert sorted(path.parent.name for path in made) == ["256x256", "256x256", "384x256"]
    names = {"transformer.safetensors", "clip.safetensors", "t5.safetensors"}
    assert {path.name for path in (tmp_path / "first").iterdir()} == names
    assert {path.name for path in (tmp_path / "trained").iterdir()} == names | {"vae.safetensors"}
    assert "nearest to the right object" in capfd.readouterr().out
    first, second = (load_file(tmp_path / name / "t5.safetensors") for name in ("first", "trained"))
    assert any(not torch.equal(first[key], second[key]) for key in first), "the second phase trains further"
    main.train(tmp_path, TINY)
    assert {path: path.stat().st_mtime_ns for path in made} == made
    assert "step" not in capfd.readouterr().out, "no step is made again"


def test_what_is_trained_is_what_the_pipeline_loads(icons: dict[str, Image.Image], tmp_path: Path) -> None:
    """The names and shapes of the weights in the package are those of the recipe's networks."""
    networks_ = transformer.Networks()
    export.write_all(tmp_path, networks_.state_dict())
    export.write(tmp_path / "vae.safetensors", AutoencoderKL(**networks.AUTOENCODER).state_dict())
    for path in tmp_path.iterdir():
        made, ours = load_file(path), load_file(weights.TRAINED / path.name)
        assert {key: value.shape for key, value in made.items()} == {
            key: value.shape for key, value in ours.items()
        }


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
