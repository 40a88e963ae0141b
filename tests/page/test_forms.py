"""A form is its schema: what is typed becomes an input that the schema takes, or a sentence."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.models.talking_video.declaration import SCHEMA as VIDEO
from stoker.models.text_to_image.declaration import SCHEMA as IMAGE
from stoker.page.content.forms import (
    Field,
    InputRefused,
    bounds,
    fields_of,
    files_text,
    input_of,
    json_text,
    with_address,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_the_hosted_models_have_the_fields_that_people_look_for() -> None:
    image = {field.name: field for field in fields_of(IMAGE)}
    assert next(iter(image)) == "prompt"
    assert (image["prompt"].kind, image["prompt"].required) == ("long", True)
    assert (image["width"].kind, image["width"].step, bounds(image["width"])) == (
        "integer",
        64,
        "256 to 1536",
    )
    assert image["image_format"].choices == ("png", "jpeg")
    assert (image["image"].kind, image["images"].kind, image["loras"].kind) == ("file", "files", "json")
    assert {field.name for field in fields_of(VIDEO) if field.required} == {
        "prompt",
        "image",
        "audio",
        "size",
    }


@given(st.integers(4, 24), st.sampled_from(["png", "jpeg", None, ""]), st.text())
def test_what_is_typed_is_an_input_that_the_schema_takes(side: int, image_format: Any, prompt: str) -> None:
    fields = fields_of(IMAGE)
    typed = {field.name: field.default for field in fields} | {
        "prompt": f"a fox{prompt}",
        "width": 64 * side,
        "height": float(64 * side),
        "image_format": image_format,
        "negative_prompt": " ",
    }
    found = input_of(fields, typed)
    assert "negative_prompt" not in found, "what is empty is left out"
    assert isinstance(found["height"], int)
    jsonschema.validate(found, {**IMAGE, "required": ["prompt"]})


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ({}, "Prompt is needed"),
        ({"prompt": "  "}, "Prompt is needed"),
        ({"prompt": "x", "width": 2000}, "Width must be 256 to 1536"),
        ({"prompt": "x", "width": "wide"}, "Width must be a number"),
        ({"prompt": "x", "width": 256.5}, "Width must be a whole number"),
        ({"prompt": "x", "guidance": float("nan")}, "Guidance must be 0 to 10"),
        ({"prompt": "x", "guidance": float("inf")}, "Guidance must be 0 to 10"),
        ({"prompt": "x", "width": float("inf")}, "Width must be a whole number"),
    ],
)
def test_what_cannot_be_sent_is_a_sentence(typed: dict[str, Any], says: str) -> None:
    with pytest.raises(InputRefused, match=says):
        input_of(fields_of(IMAGE), typed)


@given(st.lists(st.sampled_from(["https://a.test/1.png", "http://b.test/2.jpg"]), min_size=1, max_size=4))
def test_several_files_are_an_address_a_line(urls: list[str]) -> None:
    fields = fields_of(IMAGE)
    typed = {"prompt": "a fox", "images": f" {files_text(urls)}\n"}
    found = input_of(fields, typed)
    assert found["images"] == urls
    jsonschema.validate(found, {**IMAGE, "required": ["prompt"]})
    assert "images" not in input_of(fields, {"prompt": "a fox", "images": files_text(None)})
    by_name, text = {field.name: field for field in fields}, ""
    for url in urls:
        text = with_address(by_name["images"], text, url)
    assert text == files_text(urls)
    assert with_address(by_name["image"], "https://a.test/0.png", urls[0]) == urls[0]


def test_large_seeds_stay_exact() -> None:
    seed = (1 << 63) - 1
    assert input_of(fields_of(IMAGE), {"prompt": "x", "seed": seed})["seed"] == seed


@given(JSON)
def test_any_schema_makes_a_form(schema: Any) -> None:
    fields = fields_of(schema if isinstance(schema, dict) else {"properties": schema})
    assert fields
    assert all(isinstance(field, Field) and isinstance(field.label, str) for field in fields)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_an_endpoint_without_a_schema_takes_any_object(job_input: dict[str, Any]) -> None:
    fields = fields_of(None)
    assert input_of(fields, {"input": json.dumps(job_input)}) == job_input


def test_a_schema_whose_only_field_is_called_input_is_no_whole_input() -> None:
    fields = fields_of({"properties": {"input": {"type": "object"}}, "required": ["input"]})
    assert input_of(fields, {"input": '{"a": 1}'}) == {"input": {"a": 1}}


@pytest.mark.parametrize(("typed", "says"), [("[1]", "JSON object"), ("{", "must be JSON")])
def test_an_input_that_is_not_an_object_is_refused(typed: str, says: str) -> None:
    with pytest.raises(InputRefused, match=says):
        input_of(fields_of(None), {"input": typed})


def test_a_default_is_sent_only_with_the_fields_that_it_needs() -> None:
    """The form fills it in; without an image its strength would be refused."""
    rules = {"image": {"type": "string", "format": "uri"}, "strength": {"type": "number", "default": 0.4}}
    fields = fields_of({"properties": rules, "dependentRequired": {"strength": ["image"]}})
    assert input_of(fields, {"strength": 0.4, "image": ""}) == {}
    assert input_of(fields, {"strength": 0.5}) == {"strength": 0.5}
    assert input_of(fields, {"strength": 0.4, "image": "http://a/b"}) == {
        "strength": 0.4,
        "image": "http://a/b",
    }


def test_a_list_that_has_no_default_is_not_sent_unless_something_is_typed() -> None:
    fields = fields_of({"properties": {"prompt": {"type": "string"}, "loras": {"type": "array"}}})
    typed = {field.name: json_text(field, field.default) for field in fields if field.kind == "json"}
    assert typed == {"loras": ""}
    assert input_of(fields, {**typed, "prompt": "a fox"}) == {"prompt": "a fox"}
    assert input_of(fields, {"loras": json_text(fields[1], [1])}) == {"loras": [1]}
    assert json_text(fields_of(None)[0], None) == "{}"
