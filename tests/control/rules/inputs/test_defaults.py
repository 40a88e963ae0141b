"""Defaults are filled in where they bind, and refused where they could not."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control.errors import BadRequest
from stoker.control.rules.inputs.defaults import accepted, check_defaults, with_defaults

SIDE: dict[str, Any] = {"properties": {"side": {"type": "integer", "maximum": 512, "default": 256}}}


def test_what_is_left_out_gets_its_default_and_what_is_sent_stays() -> None:
    assert accepted(SIDE, {}) == {"side": 256}
    assert accepted(SIDE, {"side": 64, "text": [1.0, None]}) == {"side": 64, "text": [1.0, None]}
    sent = {"text": "x"}
    accepted(SIDE, sent)
    assert sent == {"text": "x"}


def test_a_wrong_input_is_refused_before_anything_is_filled_in() -> None:
    required = SIDE | {"required": ["side"]}
    with pytest.raises(BadRequest, match="side is required and missing"):
        accepted(required, {})


def test_objects_within_are_completed_and_not_made() -> None:
    schema = {"properties": {"frame": SIDE, "frames": {"type": "array", "items": SIDE}, "any": True}}
    assert with_defaults(schema, {}) == {}
    value: dict[str, Any] = {"frame": {}, "frames": [{}, {"side": 1}, 3], "any": {}}
    assert with_defaults(schema, value) == {
        "frame": {"side": 256},
        "frames": [{"side": 256}, {"side": 1}, 3],
        "any": {},
    }


def test_a_default_waits_for_the_fields_that_it_needs() -> None:
    rules = {"image": {}, "strength": {"default": 0.4}}
    schema = {"properties": rules, "dependentRequired": {"strength": ["image"]}}
    assert with_defaults(schema, {}) == {}
    assert with_defaults(schema, {"image": "x"}) == {"image": "x", "strength": 0.4}


def test_an_input_that_defaults_would_spoil_stays_as_it_is() -> None:
    either = {"oneOf": [{"required": ["side"]}, {"required": ["area"]}]}
    assert accepted(SIDE | either, {"area": 3}) == {"area": 3}
    assert accepted(SIDE | either, {"side": 3}) == {"side": 3}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (
            {"properties": {"side": {"type": "integer", "maximum": 3, "default": 5}}},
            "the default of side is not allowed by its own rule: side must be at most 3, got 5",
        ),
        (
            {
                "properties": {
                    "frames": {"items": {"properties": {"side": {"type": "integer", "default": ""}}}}
                }
            },
            r"the default of frames\[\].side is not allowed by its own rule: .* must be an integer",
        ),
        (
            {
                "$defs": {"side": {"maximum": 3}},
                "properties": {"side": {"$ref": "#/$defs/side", "default": 5}},
            },
            "side must be at most 3, got 5",
        ),
    ],
)
def test_a_default_that_its_rule_does_not_allow_is_refused(schema: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_defaults(schema)


def test_defaults_that_fit_pass() -> None:
    check_defaults(SIDE)
    check_defaults({"properties": {"any": True}, "items": False})
