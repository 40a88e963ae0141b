"""The check of a job's input against a hosted model's schema, which fills in its defaults. Imports no torch.

The control plane checks the same schema before it queues a job; this serves a handler that runs without one.
It knows what the schemas of hosted models use: an object of strings, integers, numbers and booleans with
ranges, patterns, enumerations, defaults and one format, `uri`, and arrays of such objects. Numbers follow
JSON: 1024.0 is an integer, true is not a number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any


class InvalidInput(ValueError):
    """The message names the field, its value and what is allowed."""


def checked(value: object, schema: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Returns every property of the schema with its value; None if the property is optional, missing and has
    no default.

    `within` is the path to an object inside the input, as in `loras[0]`. Raises InvalidInput for the first
    thing that is wrong.
    """
    properties, required = schema["properties"], schema["required"]
    if not isinstance(value, Mapping):
        what = within or "input"
        raise InvalidInput(f"{what} must be an object with {_listed(required)}, not {_abbreviated(value)}")
    before = f"{within}." if within else ""
    for field in value:
        if field not in properties:
            raise InvalidInput(
                f"{before}{field}: there is no such field; allowed are {', '.join(properties)}"
            )
    for field in required:
        if field not in value:
            raise InvalidInput(f"{before}{field}: is missing; it must be {_allowed(properties[field])}")
    return {field: _field(value, field, rule, before) for field, rule in properties.items()}


def _listed(names: list[str]) -> str:
    *first, last = (f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _field(value: Mapping[str, Any], field: str, rule: Mapping[str, Any], before: str) -> Any:
    if field not in value:
        return rule.get("default")
    found = value[field]
    if not _fits(found, rule):
        raise InvalidInput(
            f"{before}{field}: {_abbreviated(found)} is not allowed; it must be {_allowed(rule)}"
        )
    if rule["type"] == "array":
        return [checked(one, rule["items"], f"{before}{field}[{number}]") for number, one in enumerate(found)]
    if rule["type"] == "integer":
        return int(found)
    return float(found) if rule["type"] == "number" else found


def _fits(value: object, rule: Mapping[str, Any]) -> bool:
    match rule["type"]:
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list) and len(value) <= rule.get("maxItems", math.inf)
        case "string":
            return isinstance(value, str) and _string_fits(value, rule)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return whole and _number_fits(value, rule)
        case _:
            return isinstance(value, (int, float)) and _number_fits(value, rule)


def _number_fits(value: Any, rule: Mapping[str, Any]) -> bool:
    """Returns whether a number is allowed. NaN is in no range, since each comparison with it is false. Python
    counts booleans as numbers, JSON does not."""
    if isinstance(value, bool) or not _low(rule) <= value <= _high(rule):
        return False
    return "multipleOf" not in rule or value % rule["multipleOf"] == 0


def _low(rule: Mapping[str, Any]) -> Any:
    return rule.get("minimum", -math.inf)


def _high(rule: Mapping[str, Any]) -> Any:
    return rule.get("maximum", math.inf)


def _string_fits(value: str, rule: Mapping[str, Any]) -> bool:
    """Returns whether a text is allowed. As in JSON Schema, a pattern may match anywhere in the text. Half a
    surrogate pair, which JSON allows and no tokenizer accepts, never fits."""
    if any("\ud800" <= character <= "\udfff" for character in value):
        return False
    if len(value) < rule.get("minLength", 0) or not re.search(rule.get("pattern", ""), value):
        return False
    if "format" in rule and not re.fullmatch(r"(?i:https?)://\S+", value):
        return False
    return value in rule.get("enum", [value])


def _abbreviated(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


def _allowed(rule: Mapping[str, Any]) -> str:
    """Describes the values that the rule allows."""
    if "enum" in rule:
        return " or ".join(rule["enum"])
    if rule["type"] == "boolean":
        return "true or false"
    if rule["type"] == "array":
        return f"a list of at most {rule['maxItems']} objects with {_listed(rule['items']['required'])}"
    if "format" in rule:
        return "an http or https URL"
    if rule["type"] == "string":
        return "text with at least one character that is not white space" if "pattern" in rule else "text"
    kind = "an integer" if rule["type"] == "integer" else "a number"
    step = f", divisible by {rule['multipleOf']}" if "multipleOf" in rule else ""
    return f"{kind} from {_low(rule)} to {_high(rule)}{step}"
