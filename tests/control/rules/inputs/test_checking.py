"""Messages of the schema check beyond those of the image model, and what it does not do."""

import copy

import pytest

from stoker.control.config.sections import check_schema
from stoker.control.errors import BadRequest
from stoker.control.rules.inputs.checking import KEPT_SCHEMAS, _compiled, check_input
from stoker.models.hosted import MODELS
from tests.control.http.calls.fake_plane import IMAGE_SCHEMA

OBJECT = {"type": "object"}


def one(**schema: object) -> dict[str, object]:
    return OBJECT | {"properties": {"x": schema}}


WRONG = [
    (one(type="string", format="uri"), {"x": "ftp://a"}, 'x must be an http or https URL, got "ftp://a"'),
    (one(type="string", format="uri"), {"x": 3}, "x must be a string, got 3; allowed: an http or https URL"),
    (one(type=["string", "null"]), {"x": 3}, "x must be a string or null, got 3"),
    (one(type="boolean"), {"x": 1}, "x must be true or false, got 1"),
    (one(exclusiveMinimum=0), {"x": 0}, "x must be more than 0, got 0"),
    (one(exclusiveMaximum=1), {"x": 1}, "x must be less than 1, got 1"),
    (one(minimum=3), {"x": 1}, "x must be at least 3, got 1; allowed: 3 or more"),
    (one(maximum=3), {"x": 4}, "x must be at most 3, got 4; allowed: 3 or less"),
    (one(multipleOf=3), {"x": 4}, "x must be divisible by 3, got 4; allowed: multiples of 3"),
    (one(type="string", minLength=2, maxLength=3), {"x": "a"}, 'x must have at least 2 characters, got "a"'),
    (one(type="string", maxLength=1), {"x": "ab"}, 'x must have at most 1 characters, got "ab"'),
    (one(type="string", pattern="^a$"), {"x": "b"}, 'x must match ^a$, got "b"; allowed: a string'),
    (
        one(type="string", minLength=1, pattern=r"\S"),
        {"x": "   "},
        'x must have at least one character that is not white space, got "   "',
    ),
    (
        one(type="string", minLength=1, pattern=r"\S"),
        {"x": ""},
        'x must not be empty, got ""; allowed: at least one character that is not white space',
    ),
    (
        one(type="string", maxLength=2, pattern=r"\S"),
        {"x": "abc"},
        'x must have at most 2 characters, got "abc"; allowed: a string of 1 to 2 characters, at least one',
    ),
    (one(const="a"), {"x": "b"}, 'x must be "a", got "b"'),
    (one(type="array", minItems=1), {"x": []}, "x must have at least 1 items, got []; allowed: a list"),
    (one(type="array", maxItems=0), {"x": [1]}, "x must have at most 0 items, got [1]; allowed: a list"),
    (one(type="array", items={"type": "integer"}), {"x": [1, "b"]}, 'x[1] must be an integer, got "b"'),
    (one(type="object", required=["y"]), {"x": {}}, "x.y is required and missing"),
    (one(type="object", additionalProperties=False), {"x": {"z": 1}}, "x.z is not a known field, got 1"),
    (one(**{"not": {}}), {"x": 1}, "x is not allowed by the endpoint's schema, got 1"),
    (OBJECT | {"dependentRequired": {"x": ["y", "z"]}}, {"x": 1, "z": 2}, "x needs y, got 1 alone"),
    (OBJECT | {"required": ["x"], "properties": {"x": True}}, {}, "x is required and missing"),
    (OBJECT, 3, "input must be an object, got 3"),
    (OBJECT | {"required": ["b", "a"]}, {}, "b is required and missing; a is required and missing"),
]


@pytest.mark.parametrize(("schema", "value", "message"), WRONG)
def test_a_message_names_field_value_and_what_is_allowed(
    schema: dict[str, object], value: object, message: str
) -> None:
    with pytest.raises(BadRequest) as raised:
        check_input(schema, value)
    assert str(raised.value).startswith("Invalid parameter: ")
    assert message in str(raised.value)


def test_the_documented_message() -> None:
    with pytest.raises(BadRequest) as raised:
        check_input(IMAGE_SCHEMA, {"prompt": "x", "width": 1000})
    assert str(raised.value) == (
        "Invalid parameter: width must be divisible by 64, got 1000; allowed: 256 to 1536 in steps of 64"
    )


def test_a_prompt_of_nothing_but_white_space_is_refused_once_with_a_message() -> None:
    """Against the schema that the hosted model declares."""
    with pytest.raises(BadRequest) as raised:
        check_input(MODELS["text-to-image"].schema, {"prompt": " \n "})
    assert str(raised.value) == (
        'Invalid parameter: prompt must have at least one character that is not white space, got " \\n "'
    )
    check_input(MODELS["text-to-image"].schema, {"prompt": " a fox "})


def test_a_few_fields_are_reported_at_once_and_each_once() -> None:
    with pytest.raises(BadRequest) as raised:
        check_input(IMAGE_SCHEMA, {"prompt": "x", "width": 65, "height": 1, "guidance": 11, "seed": "x"})
    message = str(raised.value)
    assert message.count(" got ") == 3
    assert message.count("width") == 1


def test_nothing_is_filled_in() -> None:
    schema = one(type="integer", default=3)
    value: dict[str, object] = {}
    check_input(schema, value)
    assert value == {}


@pytest.mark.parametrize("whole", [1, 1.0, -1])
def test_whole_numbers_are_integers(whole: object) -> None:
    check_input(one(type="integer"), {"x": whole})


def test_compiled_schemas_are_kept_but_not_without_end() -> None:
    schema = copy.deepcopy(IMAGE_SCHEMA)
    check_input(schema, {"prompt": "x"})
    kept = _compiled[id(schema)]
    check_input(schema, {"prompt": "x"})
    assert _compiled[id(schema)] is kept
    for _ in range(KEPT_SCHEMAS + 5):
        check_input(dict(OBJECT), {})
    assert len(_compiled) == KEPT_SCHEMAS


def test_a_schema_that_is_none_is_refused_when_it_is_declared() -> None:
    check_schema(IMAGE_SCHEMA)
    with pytest.raises(ValueError, match="the input schema is not valid at"):
        check_schema(one(type="integr"))


@pytest.mark.parametrize("length", [3_000, 8_192])
def test_a_url_may_be_as_long_as_a_worker_fetches(length: int) -> None:
    """Signed ones hold tokens of some thousand characters."""
    url = "https://store.test/face.png?signature=".ljust(length, "a")
    check_input(one(type="string", format="uri"), {"x": url})
    with pytest.raises(BadRequest, match="x must be an http or https URL"):
        check_input(one(type="string", format="uri"), {"x": url.ljust(8_193, "a")})
