"""An input against its endpoint's JSON Schema: passes, or a message with the field, its value, and what is
allowed. Pure.

Nothing is filled in or changed here. 1.0 counts as an integer, as JSON Schema has it; true and false do not.
Compiled schemas are kept; they are few, one for each endpoint version.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from stoker.control.errors import BadRequest
from stoker.control.rules.submissions import abbreviated, is_http_url

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

KEPT_SCHEMAS = 256
MAX_ERRORS = 3
"""So many fields are named in one message; who sends more wrong ones learns of them next time."""

INPUT_URL_LENGTH = 8_192
"""What a worker fetches: signed URLs hold whole tokens."""

NOT_BLANK = r"\S"
"""The one pattern that has words of its own: text that is more than white space."""
_VISIBLE = "at least one character that is not white space"

Schema = Mapping[str, Any]

_compiled: OrderedDict[int, tuple[Schema, Draft202012Validator]] = OrderedDict()


def _is_url(value: object) -> bool:
    return not isinstance(value, str) or is_http_url(value, INPUT_URL_LENGTH)


@cache
def _compiler() -> Callable[[Schema], Draft202012Validator]:
    """Returns the function that compiles schemas. The library comes with the first schema: it is 50 ms of a
    start, and many controls have no schema."""
    from jsonschema import Draft202012Validator, FormatChecker

    formats = FormatChecker(formats=())
    formats.checks("uri")(_is_url)
    return partial(Draft202012Validator, format_checker=formats)


def check_input(schema: Schema, value: object) -> None:
    """Raises BadRequest for an input that the schema does not allow."""
    errors = _most_telling(_validator(schema).iter_errors(value))
    if errors:
        raise BadRequest("Invalid parameter: " + "; ".join(errors))


def allows(schema: Schema, value: object) -> bool:
    """Returns whether the schema allows an input."""
    return _validator(schema).is_valid(value)


def refusal(root: Schema, rule: Schema, field: str, value: object) -> str:
    """Returns why a rule does not allow a field's value; an empty text if it does. `root` is the schema that
    has the rule, whose references lead into it."""
    validator = _compiler()(root).evolve(schema={"properties": {field: rule}})
    return "; ".join(_most_telling(validator.iter_errors({field: value})))


def _validator(schema: Schema) -> Draft202012Validator:
    """Returns the compiled schema. The schema is kept with its validator, so that no other object gets the
    same id()."""
    kept = _compiled.get(id(schema))
    if kept is None:
        kept = _compiled[id(schema)] = (schema, _compiler()(schema))
        if len(_compiled) > KEPT_SCHEMAS:
            _compiled.popitem(last=False)
    return kept[1]


def _most_telling(errors: Iterable[ValidationError]) -> list[str]:
    """Returns one sentence for each wrong field, the first few."""
    messages: dict[str, str] = {}
    for error in errors:
        for field, message in _messages(error):
            messages.setdefault(field, message)
    return list(messages.values())[:MAX_ERRORS]


def _messages(error: ValidationError) -> Iterable[tuple[str, str]]:
    field = _name(error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "required":
        yield from _missing(field, error.instance, schema)
    elif error.validator == "additionalProperties":
        yield from _unknown(field, error.instance, schema)
    elif error.validator == "dependentRequired":
        yield from _alone(field, error.instance, schema)
    else:
        must = _MUST.get(str(error.validator), _must_be_allowed)(schema)
        allowed = _allowed(schema)
        suffix = f"; allowed: {allowed}" if allowed and allowed not in must else ""
        yield field, f"{field or 'input'} {must}, got {abbreviated(error.instance)}{suffix}"


def _missing(field: str, value: Any, schema: Schema) -> Iterable[tuple[str, str]]:
    for name in schema["required"]:
        if name not in value:
            path = _join(field, name)
            rule = schema.get("properties", {}).get(name)
            allowed = _allowed(rule) if isinstance(rule, Mapping) else ""
            yield path, f"{path} is required and missing" + (f"; allowed: {allowed}" if allowed else "")


def _unknown(field: str, value: Any, schema: Schema) -> Iterable[tuple[str, str]]:
    known = schema.get("properties", {})
    for name in value:
        if name not in known:
            path = _join(field, name)
            allowed = ", ".join(known) or "no fields"
            yield path, f"{path} is not a known field, got {abbreviated(value[name])}; allowed: {allowed}"


def _alone(field: str, value: Any, schema: Schema) -> Iterable[tuple[str, str]]:
    for name, needed in schema["dependentRequired"].items():
        if name in value and (missing := [other for other in needed if other not in value]):
            path = _join(field, name)
            yield path, f"{path} needs {' and '.join(missing)}, got {abbreviated(value[name])} alone"


_MUST: dict[str, Callable[[Schema], str]] = {
    "type": lambda schema: f"must be {_types(schema)}",
    "multipleOf": lambda schema: f"must be divisible by {schema['multipleOf']}",
    "minimum": lambda schema: f"must be at least {schema['minimum']}",
    "maximum": lambda schema: f"must be at most {schema['maximum']}",
    "exclusiveMinimum": lambda schema: f"must be more than {schema['exclusiveMinimum']}",
    "exclusiveMaximum": lambda schema: f"must be less than {schema['exclusiveMaximum']}",
    "enum": lambda schema: f"must be {_alternatives(schema['enum'])}",
    "const": lambda schema: f"must be {abbreviated(schema['const'])}",
    "minLength": lambda schema: (
        "must not be empty"
        if schema["minLength"] == 1
        else f"must have at least {schema['minLength']} characters"
    ),
    "maxLength": lambda schema: f"must have at most {schema['maxLength']} characters",
    "minItems": lambda schema: f"must have at least {schema['minItems']} items",
    "maxItems": lambda schema: f"must have at most {schema['maxItems']} items",
    "pattern": lambda schema: (
        f"must have {_VISIBLE}" if schema["pattern"] == NOT_BLANK else f"must match {schema['pattern']}"
    ),
    "format": lambda schema: _format(schema["format"]),
}


def _must_be_allowed(schema: Schema) -> str:
    return "is not allowed by the endpoint's schema"


def _format(name: str) -> str:
    return "must be an http or https URL" if name == "uri" else f"must be a {name}"


_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


def _types(schema: Schema) -> str:
    named = schema["type"]
    return " or ".join(_TYPES[name] for name in ([named] if isinstance(named, str) else named))


def _allowed(schema: Schema) -> str:
    """Returns all that a field takes, in words: `256 to 1536 in steps of 64`."""
    if "enum" in schema:
        return _alternatives(schema["enum"])
    if "minimum" in schema or "maximum" in schema or "multipleOf" in schema:
        return _range(schema)
    if schema.get("type") == "string":
        return _text(schema)
    if schema.get("format") == "uri":
        return "an http or https URL"
    return _types(schema) if "type" in schema else ""


def _range(schema: Schema) -> str:
    low, high, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    kind = "integers " if schema.get("type") == "integer" and step is None else ""
    if low is not None and high is not None:
        span = f"{low} to {high}"
    elif low is not None:
        span = f"{low} or more"
    elif high is not None:
        span = f"{high} or less"
    else:
        return f"multiples of {step}"
    return f"{kind}{span}" + (f" in steps of {step}" if step is not None else "")


def _text(schema: Schema) -> str:
    if schema.get("format") == "uri":
        return "an http or https URL"
    low, high = schema.get("minLength"), schema.get("maxLength")
    if schema.get("pattern") == NOT_BLANK:
        return _VISIBLE if high is None else f"a string of {low or 1} to {high} characters, {_VISIBLE}"
    if low is not None and high is not None:
        return f"a string of {low} to {high} characters"
    if low is not None:
        return "a non-empty string" if low == 1 else f"a string of at least {low} characters"
    return f"a string of at most {high} characters" if high is not None else "a string"


def _alternatives(values: Sequence[object]) -> str:
    return " or ".join(abbreviated(value) for value in values)


def _name(path: Iterable[object]) -> str:
    """Returns a field's name, such as `frames[2].width`."""
    name = ""
    for part in path:
        name = f"{name}[{part}]" if isinstance(part, int) else _join(name, str(part))
    return name


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
