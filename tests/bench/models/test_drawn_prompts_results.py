"""The kept figures of bench/models/drawn_prompts.py: what is said of flux-mini's pictures was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[3] / "bench" / "results"
LIKELIEST = {"object": 0.1, "colour": 0.2, "count": 0.4, "position": 0.65, "all of it": 0.02}
"""The most that pictures may have of another's prompt: chance, and what prompts share by chance."""


def kept(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def test_prompts_of_one_kind_of_objects_are_drawn_as_they_say() -> None:
    found = kept("drawn-prompts")
    assert found["prompts"] >= 200
    assert found["flux-mini"]["object"] >= 0.92
    assert found["flux-mini"]["colour"] >= 0.98
    assert found["flux-mini"]["all of it"] >= 0.9


def test_prompts_of_two_kinds_of_objects_are_drawn_as_they_say() -> None:
    found = kept("drawn-pairs")
    assert found["prompts"] >= 40
    assert found["flux-mini"]["all of it"] >= 0.75


@pytest.mark.parametrize(("name", "fixed"), [("drawn-prompts", ()), ("drawn-pairs", ("position",))])
def test_read_against_anothers_prompt_pictures_are_near_chance(name: str, fixed: tuple[str, ...]) -> None:
    """Of two kinds each has its half in every picture, so that their positions are always right."""
    wrong = kept(name)["against another's prompt"]
    above = {part for part, share in wrong.items() if share > LIKELIEST[part]}
    assert above == set(fixed)
