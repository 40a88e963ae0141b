"""A file's schema narrows what a handler declares: by its properties, and by each of its refusals."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stoker.control.rules.inputs.checking import allows
from stoker.control.rules.inputs.defaults import check_defaults, with_defaults
from stoker.control.rules.inputs.narrowing import NotNarrower, narrowed
from stoker.models.registry import PIPELINES
from stoker.models.text_to_image.declaration import schema_for

NAMES = ("a", "b", "c")
INTEGERS = st.integers(-2, 12)
STEPS = st.sampled_from([1, 2, 3, 4])
TEXTS = st.sampled_from(["", "x", "xy", "xyz", "y"])
VALUES = st.one_of(INTEGERS, st.sampled_from([0.5, 2.0, 7.5]), TEXTS, st.booleans())


@st.composite
def number_rules(draw: st.DrawFn) -> dict[str, Any]:
    bounds = {"minimum": INTEGERS, "maximum": INTEGERS, "exclusiveMaximum": INTEGERS, "multipleOf": STEPS}
    rule: dict[str, Any] = draw(st.fixed_dictionaries({}, optional=bounds))
    return rule | {"type": draw(st.sampled_from(["integer", "number", ["integer", "null"]]))}


TEXT_RULES = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 2),
        "maxLength": st.integers(1, 3),
        "pattern": st.sampled_from(["x", "y$"]),
        "enum": st.lists(TEXTS, min_size=1, unique=True),
    },
)
RULES = st.one_of(number_rules(), TEXT_RULES, st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1)}))


@st.composite
def objects(draw: st.DrawFn, rules: st.SearchStrategy[dict[str, Any]]) -> dict[str, Any]:
    """A schema of some of the names, with defaults that may or may not fit."""
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = draw(st.dictionaries(st.sampled_from(NAMES), rules, max_size=3))
    for rule in schema["properties"].values():
        if draw(st.booleans()):
            rule["default"] = draw(VALUES)
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.booleans())
    if schema["properties"] and draw(st.booleans()):
        schema["required"] = draw(st.lists(st.sampled_from(list(schema["properties"])), unique=True))
    return schema


@st.composite
def nested(draw: st.DrawFn) -> dict[str, Any]:
    """A rule of a list of objects."""
    return {"type": "array", "maxItems": draw(st.integers(0, 2)), "items": draw(objects(RULES))}


SCHEMAS = objects(st.one_of(RULES, nested()))
OBJECTS = st.dictionaries(st.sampled_from((*NAMES, "sede")), VALUES, max_size=3)
INPUTS = st.dictionaries(
    st.sampled_from((*NAMES, "sede")), st.one_of(VALUES, st.lists(OBJECTS, max_size=2)), max_size=3
)


def fits(schema: dict[str, Any]) -> bool:
    """Whether its defaults do, as a handler's are required to."""
    try:
        check_defaults(schema)
    except ValueError:
        return False
    return True


@st.composite
def pairs(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What a handler declares, what a file says, and the narrowed schema."""
    declared = draw(SCHEMAS.filter(fits))
    own = draw(SCHEMAS)
    if draw(st.booleans()):  # most that are drawn apart contradict each other
        own = {"properties": {**declared["properties"], **own["properties"]}}
    try:
        return declared, own, narrowed(declared, own)
    except NotNarrower:
        assume(False)
        raise


@given(pairs(), st.lists(INPUTS, min_size=5, max_size=20))
def test_an_input_fits_the_narrowed_schema_if_it_fits_both(
    pair: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], inputs: list[dict[str, Any]]
) -> None:
    declared, own, found = pair
    for value in inputs:
        assert allows(found, value) == (allows(declared, value) and allows(own, value))


@given(pairs(), st.lists(INPUTS, min_size=5, max_size=20))
def test_what_is_filled_in_fits_both(
    pair: tuple[dict[str, Any], dict[str, Any], dict[str, Any]], inputs: list[dict[str, Any]]
) -> None:
    declared, own, found = pair
    check_defaults(found)
    for value in inputs:
        if allows(found, value):
            filled = with_defaults(found, value)
            assert allows(found, filled)
            assert allows(declared, filled)
            assert allows(own, filled)
            assert with_defaults(found, filled) == filled


@given(pairs())
def test_narrowing_again_changes_nothing(
    pair: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
) -> None:
    declared, own, found = pair
    assert narrowed(declared, found) == found
    assert narrowed(found, own) == found
    assert narrowed(declared, {}) == declared == narrowed(declared, declared)


IMAGE = schema_for(PIPELINES["flux-tiny"])


def of(**rules: object) -> dict[str, Any]:
    return {"properties": rules}


@pytest.mark.parametrize(
    ("own", "field", "default"),
    [
        (of(width={"maximum": 512}), "width", 512),
        (of(width={"maximum": 500}), "width", 448),
        (of(width={"minimum": 1090}), "width", 1088 + 64),
        (of(width={"maximum": 512, "default": 256}), "width", 256),
        (of(width={"multipleOf": 192}), "width", 960),
        (of(guidance={"maximum": 4.5}), "guidance", 4.5),
        (of(guidance={"type": "integer"}), "guidance", 7),
        (of(num_inference_steps={"maximum": 12}), "num_inference_steps", 12),
        (of(image_format={"enum": ["png"]}), "image_format", "png"),
        (of(image_format={"const": "png"}), "image_format", "png"),
        (of(seed={"title": "seed"}), "seed", -1),
    ],
)
def test_a_default_that_the_file_excludes_becomes_what_fits(
    own: dict[str, Any], field: str, default: object
) -> None:
    assert narrowed(IMAGE, own)["properties"][field]["default"] == default


def test_a_prompt_alone_is_completed_within_the_files_bounds() -> None:
    small = {"maximum": 512}
    found = narrowed(IMAGE, of(width=small, height=small, num_images={"maximum": 4}))
    filled = with_defaults(found, {"prompt": "x"})
    assert (filled["width"], filled["height"], filled["num_images"]) == (512, 512, 1)
    assert "scheduler" not in filled, "left out, the pipeline's own is taken"
    assert not allows(found, {"prompt": "x", "num_images": 10})
    assert not allows(found, {"prompt": "x", "sede": 1})


def test_the_file_can_withdraw_fields() -> None:
    own = of(prompt={"maxLength": 500}, seed={}) | {"additionalProperties": False}
    found = narrowed(IMAGE, own)
    assert list(found["properties"]) == ["prompt", "seed"]
    assert not allows(found, {"prompt": "x", "width": 256})


def test_a_field_without_a_fitting_default_can_be_required() -> None:
    declared = of(paper={"type": "string", "default": ""})
    with pytest.raises(NotNarrower, match=r'paper excludes the handler\'s default of "": name another'):
        narrowed(declared, of(paper={"minLength": 1}))
    found = narrowed(declared, of(paper={"minLength": 1}) | {"required": ["paper"]})
    assert found["properties"]["paper"] == {"type": "string", "minLength": 1}


WIDE = [
    (of(width={"maximum": 2048}), "width.maximum is 2048; the handler takes 1536 at most"),
    (of(width={"minimum": 128}), "width.minimum is 128; the handler takes 256 at least"),
    (of(width={"multipleOf": 32}), "width.multipleOf is 32; the handler takes multiples of 64"),
    (of(width={"maximum": 100}), "width allows nothing: minimum is 256, and maximum is 100"),
    (of(width={"type": "number"}), 'width.type is "number"; the handler takes integer'),
    (of(width={"default": 1000}), "width.default is not allowed: width must be divisible by 64, got 1000"),
    (of(width={"$ref": "#/$defs/side"}), "width.$ref is not known here; allowed: "),
    (of(width=True), "width must be an object of rules, got true"),
    (of(sede={}), "sede is not an input of the handler; it takes prompt, negative_prompt, width"),
    (of(image_format={"enum": ["gif"]}), 'image_format.enum must be "png" or "jpeg", got "gif"'),
    (of(image_format={"const": "gif"}), 'image_format.const must be "png" or "jpeg", got "gif"'),
    (of(prompt={"pattern": "a"}), 'prompt.pattern is "a"; the handler has "\\\\S", which stays'),
    (of(guidance={"maximum": 0.3, "multipleOf": 0.1}), "guidance excludes the handler's default of 7.5"),
    ({"required": ["sede"]}, "required has sede, which is not among the properties: prompt"),
    ({"additionalProperties": False}, "required has prompt, which is not among the properties: none"),
    ({"additionalProperties": True}, "additionalProperties is true; it must be false, or left out"),
]


@pytest.mark.parametrize(("own", "message"), WIDE)
def test_a_file_that_allows_more_is_refused(own: dict[str, Any], message: str) -> None:
    with pytest.raises(NotNarrower) as raised:
        narrowed(IMAGE, own)
    assert message in str(raised.value)


def test_a_field_of_a_list_is_named_with_its_path() -> None:
    scale = {"type": "number", "maximum": 2.0}
    declared = of(loras={"type": "array", "items": of(scale=scale) | {"additionalProperties": False}})
    with pytest.raises(NotNarrower, match=r"loras\[\]\.scale\.maximum is 3; the handler takes 2.0 at most"):
        narrowed(declared, of(loras={"items": of(scale={"maximum": 3})}))
    with pytest.raises(NotNarrower, match=r"loras\[\]\.name is not an input of the handler; it takes scale"):
        narrowed(declared, of(loras={"items": of(name={})}))


def test_what_a_pattern_has_stays_and_allof_adds_to_it() -> None:
    found = narrowed(IMAGE, of(prompt={"allOf": [{"pattern": "^a"}]}))
    assert [allows(found, {"prompt": text}) for text in ("a fox", "fox", "")] == [True, False, False]
