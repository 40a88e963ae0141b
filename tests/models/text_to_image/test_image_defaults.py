"""What steps, guidance and a negative prompt mean to each pipeline of the image model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.interface import ImageDefaults, ImageParameters
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import SCHEMA, schema_for
from stoker.models.text_to_image.request import ImageRequest

DEFAULTS: dict[str, ImageDefaults] = {
    name: entry.defaults for name, entry in PIPELINES.items() if entry.model == "text-to-image"
}


def parameters(name: str, **more: Any) -> ImageParameters:
    schema = schema_for(PIPELINES[name])
    return ImageRequest.parse({"prompt": "x", **more}, schema).parameters(DEFAULTS[name], seed=1)


@pytest.mark.parametrize(
    ("name", "job_input", "wanted"),
    [
        ("flux-1-dev", {}, (28, 7.5)),
        ("flux-1-dev", {"guidance": 3.5, "num_inference_steps": 50}, (50, 3.5)),
        ("flux-1-dev", {"guidance": 0}, (28, 0.0)),
        ("flux-1-dev", {"negative_prompt": "rain"}, (28, 7.5, "rain", 1.5)),
        ("flux-1-dev", {"negative_prompt": "rain", "guidance": 3.5}, (28, 3.5, "rain", 1.5)),
        ("flux-1-dev", {"negative_prompt": " "}, (28, 7.5)),
        ("flux-1-schnell", {}, (4, None)),
        ("flux-1-schnell", {"guidance": 7.5, "negative_prompt": "rain"}, (4, None)),
        ("flux-1-schnell", {"num_inference_steps": 1}, (1, None)),
        ("sdxl", {}, (50, 5.0)),
        ("sdxl", {"guidance": 7.5, "negative_prompt": "rain"}, (50, 7.5, "rain")),
        ("z-image-turbo", {"guidance": 7.5, "negative_prompt": "rain"}, (8, None)),
        ("flux-2-klein-4b", {"guidance": 7.5, "negative_prompt": "rain"}, (4, None)),
        ("qwen-image", {"negative_prompt": "rain"}, (50, 4.0, "rain")),
        ("sd-3.5-large", {}, (28, 3.5)),
        ("flux-mini", {}, (28, None)),
        ("flux-mini", {"guidance": 7.5, "negative_prompt": "rain"}, (28, None)),
        ("flux-tiny", {}, (28, 7.5)),
    ],
)
def test_what_a_pipeline_is_run_with(name: str, job_input: dict[str, Any], wanted: tuple[Any, ...]) -> None:
    steps, guidance, negative_prompt, factor = (*wanted, None, None)[:4]
    assert parameters(name, **job_input) == ImageParameters(
        "x", 1024, 1024, steps, 1, guidance, negative_prompt, factor
    )


@given(
    name=st.sampled_from(sorted(DEFAULTS)),
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
    found, defaults = parameters(name, **more), DEFAULTS[name]
    assert found.factor == (None if found.negative_prompt is None else defaults.factor)
    assert defaults.negative_prompt or found.negative_prompt is None
    assert found.steps == more.get("num_inference_steps", defaults.steps)
    if defaults.guidance is None:
        assert found.guidance is None
    else:
        assert found.guidance == more.get("guidance", defaults.guidance)


def test_each_pipeline_has_some_within_the_interfaces_bounds_and_they_are_documented() -> None:
    assert set(DEFAULTS) == {entry.name for entry in PIPELINES.values() if entry.model == "text-to-image"}
    steps, guidance = SCHEMA["properties"]["num_inference_steps"], SCHEMA["properties"]["guidance"]
    assert ((steps["minimum"], steps["maximum"]), (guidance["minimum"], guidance["maximum"])) == (
        (1, 50),
        (0.0, 10.0),
    )
    for name, defaults in DEFAULTS.items():
        assert 1 <= defaults.steps <= 50
        assert defaults.guidance is None or 0.0 <= defaults.guidance <= 10.0
        if not PIPELINES[name].made_up:
            own = defaults.steps != steps["default"]
            assert (f"{defaults.steps} for {name}" in steps["description"]) == own
            own = defaults.guidance not in (None, guidance["default"])
            assert (f"{defaults.guidance} for {name}" in guidance["description"]) == own


def test_the_pipelines_of_the_hosted_model_keep_the_defaults_of_the_interface() -> None:
    """They are those of the published interface: 28 steps, and a guidance of 7.5."""
    properties = SCHEMA["properties"]
    assert (properties["num_inference_steps"]["default"], properties["guidance"]["default"]) == (28, 7.5)
    for name in ("flux-1-dev", "flux-tiny"):
        assert (DEFAULTS[name].steps, DEFAULTS[name].guidance) == (28, 7.5)


@pytest.mark.parametrize("name", sorted(DEFAULTS))
def test_the_schema_of_a_pipeline_shows_the_default_that_applies(name: str) -> None:
    shown = schema_for(PIPELINES[name])["properties"]
    applied = parameters(name)
    assert shown["num_inference_steps"]["default"] == applied.steps
    assert shown["guidance"].get("default") == applied.guidance
    unused = "This pipeline does not use it." in shown["guidance"]["description"]
    assert unused == (applied.guidance is None)
    assert "for " not in shown["num_inference_steps"]["description"], "those of others say nothing here"


def test_an_input_with_other_bounds_shows_the_default_too() -> None:
    bounds = {"type": "integer", "minimum": 1, "maximum": 12}
    entry = replace(PIPELINES["flux-1-schnell"], inputs={"num_inference_steps": bounds})
    assert schema_for(entry)["properties"]["num_inference_steps"] == {**bounds, "default": 4}
    own = {**bounds, "default": 2}
    entry = replace(entry, inputs={"num_inference_steps": own})
    assert schema_for(entry)["properties"]["num_inference_steps"] == own
