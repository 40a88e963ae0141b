"""What steps, guidance and a negative prompt mean to each pipeline of the image model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import SCHEMA
from stoker.models.text_to_image.recipes import RECIPES, Drawing
from stoker.models.text_to_image.request import ImageRequest


def drawn(name: str, **more: Any) -> Drawing:
    return RECIPES[name].drawing(ImageRequest.parse({"prompt": "x", **more}))


@pytest.mark.parametrize(
    ("name", "job_input", "drawing"),
    [
        ("flux-1-dev", {}, Drawing(28, 3.5)),
        ("flux-1-dev", {"guidance": 7.5, "num_inference_steps": 50}, Drawing(50, 7.5)),
        ("flux-1-dev", {"guidance": 0}, Drawing(28, 0.0)),
        ("flux-1-dev", {"negative_prompt": "rain"}, Drawing(28, 3.5, "rain", 1.5)),
        ("flux-1-dev", {"negative_prompt": "rain", "guidance": 7.5}, Drawing(28, 7.5, "rain", 1.5)),
        ("flux-1-dev", {"negative_prompt": " "}, Drawing(28, 3.5)),
        ("flux-1-schnell", {}, Drawing(4, None)),
        ("flux-1-schnell", {"guidance": 7.5, "negative_prompt": "rain"}, Drawing(4, None)),
        ("flux-1-schnell", {"num_inference_steps": 1}, Drawing(1, None)),
        ("flux-tiny", {}, Drawing(28, 3.5)),
    ],
)
def test_what_a_pipeline_is_run_with(name: str, job_input: dict[str, Any], drawing: Drawing) -> None:
    assert drawn(name, **job_input) == drawing


@given(
    name=st.sampled_from(sorted(RECIPES)),
    more=st.fixed_dictionaries(
        {},
        optional={
            "guidance": st.floats(0, 10),
            "num_inference_steps": st.integers(1, 50),
            "negative_prompt": st.text("ab ", max_size=4),
        },
    ),
)
def test_no_request_reaches_the_factor_of_a_negative_prompt(name: str, more: dict[str, Any]) -> None:
    drawing = drawn(name, **more)
    assert (drawing.excludes is None) == (drawing.factor is None)
    assert drawing.factor in (None, RECIPES[name].factor)
    assert drawing.steps == more.get("num_inference_steps", RECIPES[name].steps)
    if RECIPES[name].guidance is not None:
        assert drawing.guidance == more.get("guidance", RECIPES[name].guidance)


def test_each_pipeline_has_one_within_the_interfaces_bounds_and_it_is_documented() -> None:
    assert set(RECIPES) == {entry.name for entry in PIPELINES.values() if entry.model == "text-to-image"}
    steps, guidance = SCHEMA["properties"]["num_inference_steps"], SCHEMA["properties"]["guidance"]
    assert ((steps["minimum"], steps["maximum"]), (guidance["minimum"], guidance["maximum"])) == (
        (1, 50),
        (0.0, 10.0),
    )
    for name, recipe in RECIPES.items():
        assert 1 <= recipe.steps <= 50
        assert recipe.guidance is None or 0.0 <= recipe.guidance <= 10.0
        if not PIPELINES[name].made_up:
            assert f"{recipe.steps} for {name}" in steps["description"]
            assert recipe.guidance is None or f"{recipe.guidance} for {name}" in guidance["description"]
