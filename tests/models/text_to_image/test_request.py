"""The input's rules: the same in the schema, which control checks, and in the handler."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.checked_input import InvalidInput
from stoker.models.text_to_image.declaration import PRICES, SCHEMA
from stoker.models.text_to_image.request import ImageRequest

FORMATS = jsonschema.FormatChecker(formats=())
FORMATS.checks("uri")(
    lambda value: not isinstance(value, str) or re.fullmatch(r"(?i:https?)://\S+", value) is not None
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA, format_checker=FORMATS)

BAD: list[tuple[dict[str, Any], str]] = [
    ({"width": 1000}, "width: 1000 "),
    ({"width": 64}, "width: 64 "),
    ({"height": 1600}, "height: 1600 "),
    ({"width": "1024"}, 'width: "1024" '),
    ({"width": True}, "width: true "),
    ({"num_inference_steps": 0}, "num_inference_steps: 0 "),
    ({"num_inference_steps": 51}, "num_inference_steps: 51 "),
    ({"num_inference_steps": 2.5}, "num_inference_steps: 2.5 "),
    ({"guidance": -1}, "guidance: -1 "),
    ({"guidance": 10.5}, "guidance: 10.5 "),
    ({"guidance": "7"}, 'guidance: "7" '),
    ({"seed": 1.5}, "seed: 1.5 "),
    ({"seed": -2}, "seed: -2 "),
    ({"seed": 2**63}, f"seed: {2**63} "),
    ({"seed": None}, "seed: null "),
    ({"image_format": "gif"}, 'image_format: "gif" '),
    ({"image_format": "PNG"}, 'image_format: "PNG" '),
    ({"prompt": ""}, 'prompt: "" '),
    ({"prompt": "   "}, 'prompt: "   " '),
    ({"prompt": "\n\t\u3000"}, 'prompt: "\\n\\t\u3000" '),
    ({"prompt": 5}, "prompt: 5 "),
    ({"prompt": None}, "prompt: null "),
    ({"negative_prompt": ["x"]}, 'negative_prompt: ["x"] '),
    ({"steps": 4}, "steps: there is no such field; allowed are prompt, "),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_input_is_named_with_field_value_and_rule(change: dict[str, Any], message: str) -> None:
    value = {"prompt": "x", **change}
    with pytest.raises(InvalidInput) as caught:
        ImageRequest.parse(value)
    assert str(caught.value).startswith(message)
    assert "must be" in str(caught.value) or "allowed are" in str(caught.value)
    assert not VALIDATOR.is_valid(value)


@pytest.mark.parametrize("value", [None, [], "prompt", 3])
def test_an_input_that_is_no_object(value: object) -> None:
    with pytest.raises(InvalidInput, match="input must be an object with a prompt"):
        ImageRequest.parse(value)


def test_a_missing_prompt() -> None:
    with pytest.raises(InvalidInput, match=r"^prompt: is missing; it must be text"):
        ImageRequest.parse({"width": 512})


def test_defaults_are_those_of_the_documentation() -> None:
    """Without a pipeline; pipelines may have other steps and another guidance."""
    assert ImageRequest.parse({"prompt": "x"}) == ImageRequest("x", None, 1024, 1024, 28, 7.5, -1, "jpeg")


def test_a_whole_float_is_an_integer_as_in_json() -> None:
    request = ImageRequest.parse({"prompt": "x", "width": 512.0, "seed": 3.0, "guidance": 2})
    assert [(type(number), number) for number in (request.width, request.seed, request.guidance)] == [
        (int, 512),
        (int, 3),
        (float, 2.0),
    ]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_beyond_number(number: float) -> None:
    for field in ("guidance", "seed", "width"):
        with pytest.raises(InvalidInput, match=field):
            ImageRequest.parse({"prompt": "x", field: number})


def test_images_to_look_at_are_refused_with_an_image_to_start_from() -> None:
    value = {"prompt": "x", "image": "http://a.test/a.png"}
    with pytest.raises(InvalidInput, match=r"^images: images to look at are not allowed with an"):
        ImageRequest.parse({**value, "images": ["http://a.test/b.png"]})
    assert ImageRequest.parse({**value, "images": []}).image == value["image"]


def test_half_a_surrogate_pair_is_refused_and_can_be_printed() -> None:
    with pytest.raises(InvalidInput) as caught:
        ImageRequest.parse({"prompt": "\ud83d"})
    str(caught.value).encode()


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidInput) as caught:
        ImageRequest.parse({"prompt": "x", "image_format": "g" * 10_000})
    assert len(str(caught.value)) < 200


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 1700),
    st.sampled_from([256, 1024, 1536, 2**63 - 1, 2**63]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1600).map(round).map(float),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.sampled_from(["png", "jpeg"]),
    st.text(st.sampled_from(" \t\n\x00\x1f\x85\xa0\u200b\u3000\ufeffa"), max_size=3),
)


@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "more"]), anything))
def test_handler_and_schema_agree(value: dict[str, Any]) -> None:
    try:
        ImageRequest.parse(value)
        accepted = True
    except InvalidInput:
        accepted = False
    assert accepted == VALIDATOR.is_valid(value)


@given(st.text(st.sampled_from(" \t\n\x00\x1f\x85\xa0\u200b\u3000\ufeffa"), max_size=3))
def test_handler_and_schema_agree_on_what_is_blank(prompt: str) -> None:
    try:
        ImageRequest.parse({"prompt": prompt})
        accepted = True
    except InvalidInput:
        accepted = False
    assert accepted == VALIDATOR.is_valid({"prompt": prompt}) == bool(prompt.strip())


def test_the_schema_is_valid_and_plain_json() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert all("description" in rule for rule in SCHEMA["properties"].values())


def test_the_price_of_a_megapixel_is_two_cents() -> None:
    [price] = PRICES
    assert price["metric"] == "output_pixels"
    assert price["nano_usd"] * 1024 * 1024 / 1e9 == 0.02097152
