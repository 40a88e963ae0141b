"""What an output says of the inputs that were used otherwise, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import schema_for
from stoker.models.text_to_image.notes import noted
from stoker.models.text_to_image.request import ImageRequest

BOTH = {"guidance": 7.5, "negative_prompt": "rain"}


@pytest.mark.parametrize(
    ("name", "job_input", "ignored"),
    [
        ("flux-mini", BOTH, ["guidance", "negative_prompt"]),
        ("flux-mini", {"negative_prompt": " "}, []),
        ("flux-mini", {}, []),
        ("flux-1-schnell", BOTH, ["guidance", "negative_prompt"]),
        ("flux-1-dev", BOTH, []),
        ("sdxl", BOTH, []),
        ("sdxl", {"guidance": 1.0, "negative_prompt": "blurry"}, ["negative_prompt"]),
        ("sd-3.5-large", {"guidance": 0.0, "negative_prompt": "blurry"}, ["negative_prompt"]),
        ("qwen-image", {"guidance": 1.5, "negative_prompt": "blurry"}, []),
        ("flux-1-dev", {"guidance": 1.0, "negative_prompt": "blurry"}, []),
    ],
)
def test_inputs_that_a_pipeline_takes_no_notice_of(
    name: str, job_input: dict[str, Any], ignored: list[str]
) -> None:
    request = ImageRequest.parse({"prompt": "x", **job_input}, schema_for(PIPELINES[name]))
    assert request.without_effect(PIPELINES[name].defaults) == ignored


def test_all_notes_are_said_in_sentences() -> None:
    of_pipeline = {
        "drawn_instead": {"chat": "cat", "bleu": "blue"},
        "not_drawn": ["storm"],
        "notes": ["A picture shows two kinds of objects."],
    }
    assert noted(PIPELINES["flux-mini"], ["guidance"], of_pipeline) == {
        "drawn_instead": {"chat": "cat", "bleu": "blue"},
        "not_drawn": ["storm"],
        "no_effect": ["guidance"],
        "notes": [
            'Drawn instead: cat for "chat", blue for "bleu".',
            "Not drawn: storm.",
            "A picture shows two kinds of objects.",
            "Without effect with flux-mini: guidance.",
        ],
    }
    assert noted(PIPELINES["flux-mini"], [], {}) == {}
