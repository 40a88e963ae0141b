"""What flux-mini draws with its trained weights."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from stoker.models.interface import ImageDefaults, ImageParameters, Step
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image import previews, tiny
from stoker.models.text_to_image.families.flux import Flux
from stoker.models.text_to_image.families.flux_mini import FluxMini
from stoker.models.text_to_image.mini import networks, weights
from stoker.models.text_to_image.request import ImageRequest
from stoker.models.weights import read_lock, verify
from tests.load_module import load_module

ROOT = Path(__file__).parents[4]
sys.path.append(str(ROOT / "bench" / "models"))
DEMO = load_module("demo", ROOT / "deploy" / "demo.py")
drawn_prompts = load_module("drawn_prompts", ROOT / "bench" / "models" / "drawn_prompts.py")
picture_reading = drawn_prompts.picture_reading


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("flux-mini")
    weights.build(made)
    return made


@pytest.fixture(scope="module")
def pipeline(folder: Path) -> FluxMini:
    return FluxMini(folder, "cpu")


def wanted(prompt: str, width: int = 256, height: int = 256, **more: Any) -> ImageParameters:
    return ImageParameters(prompt, width, height, **{"steps": 28, "seed": 1, **more})


def drawn(pipeline: FluxMini, *arguments: Any, **more: Any) -> Image.Image:
    return pipeline.generate(wanted(*arguments, **more), lambda step: None)


def red_part(image: Image.Image) -> float:
    """The share of pixels that are redder than anything else."""
    red, green, blue = np.asarray(image).astype(int).transpose(2, 0, 1)
    return float(((red > green + 60) & (red > blue + 60)).mean())


def difference(one: Image.Image, other: Image.Image) -> float:
    return float(np.abs(np.asarray(one).astype(int) - np.asarray(other)).mean())


def test_what_is_built_is_what_is_locked_and_small(folder: Path) -> None:
    entry = read_lock().entry("flux-mini")
    verify(entry, folder)
    assert sum(file.size or 0 for file in entry.files) < 15_000_000


DEMO_SHOWS = (("lighthouse", "red", 1, "snow"), ("duck", "yellow", 1, "sea"), ("star", "yellow", 3, "night"))


def seen_in_the_demo(made_by: Flux) -> list[tuple[set[str], set[str], int]]:
    """The objects, the colours and the count that are seen in each picture of the demo."""
    classifier, found = picture_reading.load(), []
    for job_input, (*_, background) in zip(DEMO.PROMPTS, DEMO_SHOWS, strict=True):
        request = ImageRequest.parse(job_input).parameters(ImageDefaults(steps=28), job_input["seed"])
        image = made_by.generate(request, lambda step: None)
        seen = picture_reading.read(image, background, classifier)
        found.append(({one.name for one in seen}, {one.colour for one in seen}, len(seen)))
    return found


@pytest.mark.slow
@pytest.mark.numbers
def test_the_demo_shows_what_its_prompts_say(pipeline: FluxMini) -> None:
    expected = [({name}, {colour}, count) for name, colour, count, _ in DEMO_SHOWS]
    assert seen_in_the_demo(pipeline) == expected


@pytest.mark.slow
@pytest.mark.numbers
def test_patterns_would_not_pass_for_the_demos_pictures(tmp_path: Path) -> None:
    tiny.build(tmp_path)
    found = seen_in_the_demo(Flux(tmp_path, "cpu", text_tokens=128))
    for (names, colours, count), (name, colour, wanted_count, _) in zip(found, DEMO_SHOWS, strict=True):
        assert (names, colours, count) != ({name}, {colour}, wanted_count)


def read_in_pictures(pipeline: FluxMini, scenes: list[Any]) -> tuple[Any, Any]:
    """The shares that are right in the pictures of these scenes, and in those of others."""
    classifier = picture_reading.load()
    seen = [
        picture_reading.read(
            drawn(pipeline, drawn_prompts.prompt(scene), 512, 512, seed=number), scene.background, classifier
        )
        for number, scene in enumerate(scenes)
    ]
    right = drawn_prompts.shares([drawn_prompts.score(*one) for one in zip(scenes, seen, strict=True)])
    others = [*scenes[1:], scenes[0]]
    wrong = drawn_prompts.shares([drawn_prompts.score(*one) for one in zip(others, seen, strict=True)])
    return right, wrong


@pytest.mark.slow
def test_pictures_show_what_prompts_say_that_it_was_not_trained_on(pipeline: FluxMini) -> None:
    right, wrong = read_in_pictures(pipeline, drawn_prompts.held_out(24))
    assert right["object"] >= 0.92
    assert right["colour"] >= 0.98
    assert right["count"] >= 0.9
    assert right["position"] >= 0.95
    assert right["all of it"] >= 0.9
    assert wrong["object"] <= 0.1
    assert wrong["all of it"] <= 0.05


def test_the_number_of_text_tokens_is_its_own(folder: Path, pipeline: FluxMini) -> None:
    """With another number the pictures fall to pieces without an error."""
    assert pipeline.text_tokens == networks.TEXT_TOKENS
    with pytest.raises(TypeError, match="text_tokens"):
        FluxMini(folder, "cpu", text_tokens=128)  # type: ignore[call-arg]


def test_the_same_seed_gives_the_same_image_and_another_seed_another(pipeline: FluxMini) -> None:
    first, again, other = (drawn(pipeline, "a cat", 320, 384, steps=6, seed=n) for n in (1, 1, 2))
    assert first.tobytes() == again.tobytes() != other.tobytes()


@pytest.mark.parametrize("size", [(256, 256), (256, 1536), (1536, 1536), (576, 320)])
@pytest.mark.slow
@pytest.mark.numbers
def test_all_sizes_are_made_with_each_step_reported_once(pipeline: FluxMini, size: tuple[int, int]) -> None:
    steps = list[Step]()
    image = pipeline.generate(wanted("a blue car", *size, steps=4), steps.append)
    assert image.size == size
    assert [(step.number, step.of) for step in steps] == [(number, 4) for number in range(1, 5)]
    rows, columns = steps[-1].estimate().shape[2:]
    assert columns / rows == pytest.approx(size[0] / size[1], rel=0.04)


@pytest.mark.slow
@pytest.mark.numbers
def test_guidance_and_a_negative_prompt_change_nothing(pipeline: FluxMini) -> None:
    plain = wanted("a green tree", steps=3)
    others = replace(plain, guidance=1.0), replace(plain, guidance=9.0, negative_prompt="red", factor=1.5)
    images = {pipeline.generate(one, lambda step: None).tobytes() for one in (plain, *others)}
    assert len(images) == 1


@pytest.mark.slow
@pytest.mark.numbers
def test_a_callers_image_is_kept_as_far_as_the_prompt_allows(pipeline: FluxMini) -> None:
    image = drawn(pipeline, "a red boat in the sea", 384, 256)
    same, other = (
        drawn(pipeline, f"a {colour} boat in the sea", 384, 256, image=image, strength=strength)
        for colour, strength in (("red", 0.1), ("white", 0.8))
    )
    assert same.size == (384, 256)
    assert difference(same, image) < 4
    assert red_part(same) > 0.05
    assert red_part(other) < 0.01


@pytest.mark.slow
@pytest.mark.numbers
def test_images_of_a_batch_are_those_made_alone(pipeline: FluxMini) -> None:
    batch = [wanted(f"a {colour} star", 512, 320, steps=3) for colour in ("red", "blue")]
    reported = list[tuple[int, int]]()
    together = pipeline.generate_batch(batch, lambda index, step: reported.append((index, step.number)))
    alone = [pipeline.generate(one, lambda step: None) for one in batch]
    assert max(difference(*pair) for pair in zip(together, alone, strict=True)) < 1
    assert sorted(reported) == [(index, number) for index in (0, 1) for number in (1, 2, 3)]


@pytest.mark.parametrize("shape", [(256, 256), (384, 256), (256, 384)])
@pytest.mark.slow
@pytest.mark.numbers
def test_a_picture_is_drawn_in_one_size_of_its_shape(pipeline: FluxMini, shape: tuple[int, int]) -> None:
    small, large = (
        drawn(pipeline, "a blue car at sunset", *(times * side for side in shape), steps=12)
        for times in (1, 3)
    )
    assert difference(small, large.resize(small.size, Image.Resampling.BOX)) < 8


@pytest.mark.parametrize("shape", [(768, 512), (512, 768)])
@pytest.mark.slow
@pytest.mark.numbers
def test_wide_and_high_pictures_are_drawn_as_such(pipeline: FluxMini, shape: tuple[int, int]) -> None:
    """Two objects side by side, or above each other, stand further apart than in a square."""
    image = drawn(pipeline, "two red cars on a white background", *shape)
    red, green, blue = np.asarray(image).astype(int).transpose(2, 0, 1)
    found = (red > green + 60) & (red > blue + 60)
    along = found.any(0) if shape[0] > shape[1] else found.any(1)
    places = np.flatnonzero(along)
    assert places[-1] - places[0] > 0.6 * 768


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(768, 512), (512, 768)])
def test_wide_and_high_pictures_show_what_prompts_say(pipeline: FluxMini, shape: tuple[int, int]) -> None:
    classifier, scenes, right = picture_reading.load(), drawn_prompts.held_out(24), []
    for number, scene in enumerate(scenes):
        image = drawn(pipeline, drawn_prompts.prompt(scene), *shape, seed=number)
        seen = picture_reading.read(image, scene.background, classifier)
        right.append(drawn_prompts.score(scene, seen))
    shares = drawn_prompts.shares(right)
    assert shares["object"] >= 0.7
    assert shares["colour"] >= 0.9


@pytest.mark.slow
@pytest.mark.numbers
def test_the_matrix_of_its_previews_is_the_one_that_would_be_fitted(pipeline: FluxMini) -> None:
    kept, fitted = (
        previews.of(pipeline, PIPELINES["flux-mini"]),
        previews.fit(pipeline, PIPELINES["flux-mini"]),
    )
    assert np.abs(kept.weights - fitted.weights).max() < 0.02


def test_the_reading_of_a_prompt_is_told(pipeline: FluxMini) -> None:
    found = pipeline.notes(wanted("a crimson kitten, cinematic"))
    assert found == {"drawn_instead": {"crimson": "red", "kitten": "cat"}, "not_drawn": ["cinematic"]}


def test_of_three_kinds_of_objects_two_are_drawn_and_the_other_said(pipeline: FluxMini) -> None:
    assert pipeline.notes(wanted("a crimson robot and a house and a kitten, cinematic")) == {
        "drawn_instead": {"crimson": "red"},
        "not_drawn": ["cinematic", "kitten"],
        "notes": ["A picture shows two kinds of objects."],
    }
    assert pipeline.notes(wanted("a red robot and a house")) == {}


PAIRS_RIGHT = 0.75


@pytest.mark.slow
def test_two_kinds_of_objects_are_drawn_each_in_its_half(pipeline: FluxMini) -> None:
    right, wrong = read_in_pictures(pipeline, drawn_prompts.pairs(20))
    assert right["all of it"] >= PAIRS_RIGHT
    assert wrong["all of it"] == 0


@pytest.mark.slow
@pytest.mark.numbers
def test_two_kinds_in_a_batch_and_from_an_image_report_each_step_once(pipeline: FluxMini) -> None:
    both, one = wanted("a red car and a blue house on a beach", steps=4), wanted("a cat at night", steps=4)
    steps: list[list[Step]] = [[], [], []]
    batch = [both, one, replace(both, seed=2)]
    made = pipeline.generate_batch(batch, lambda index, step: steps[index].append(step))
    assert [[step.number for step in found] for found in steps] == [[1, 2, 3, 4]] * 3
    alone = [pipeline.generate(each, lambda step: None) for each in batch]
    assert [max_difference(*pair) <= 1 for pair in zip(made, alone, strict=True)] == [True] * 3
    assert "step" not in vars(pipeline.pipe.scheduler), "the step is put back"
    kept = drawn(pipeline, both.prompt, steps=6, image=made[0], strength=0.2)
    assert difference(kept, made[0]) < difference(made[1], made[0]) / 3


def max_difference(one: Image.Image, other: Image.Image) -> int:
    return int(np.abs(np.asarray(one).astype(int) - np.asarray(other)).max())
