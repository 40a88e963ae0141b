"""The check of a job's input against a hosted model's schema, which fills in its defaults. Imports no torch.

The control plane checks the same schema before it queues a job; this serves a handler that runs without one.
It knows what the schemas of hosted models use: an object of strings, integers, numbers and booleans with
ranges, patterns, enumerations, defaults and one format, `uri`, and arrays of such values or objects. Numbers
follow JSON: 1024.0 is an integer, true is not a number.
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
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{within or 'input'} must be {_an_object(schema)}, not {_abbreviated(value)}")
    before = f"{within}." if within else ""
    for field in value:
        if field not in properties:
            raise InvalidInput(
                f"{before}{field}: there is no such field; allowed are {', '.join(properties) or 'none'}"
            )
    for field in required:
        if field not in value:
            raise InvalidInput(
                f"{before}{field}: is missing; it must be {_allowed(properties.get(field, {}))}"
            )
    return {
        field: _checked(value[field], rule, f"{before}{field}") if field in value else rule.get("default")
        for field, rule in properties.items()
    }


def _an_object(schema: Mapping[str, Any], noun: str = "an object") -> str:
    """Describes an object by the fields that it must have."""
    names = [f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in schema.get("required", [])]
    if not names:
        return noun
    *first, last = names
    return f"{noun} with {', '.join(first)} and {last}" if first else f"{noun} with {last}"


def _checked(found: Any, rule: Mapping[str, Any], path: str) -> Any:
    if not _fits(found, rule):
        raise InvalidInput(f"{path}: {_abbreviated(found)} is not allowed; it must be {_allowed(rule)}")
    match rule.get("type"):
        case "object":
            return checked(found, rule, path)
        case "array":
            items = rule.get("items", {})
            return [_checked(one, items, f"{path}[{number}]") for number, one in enumerate(found)]
        case "integer":
            return int(found)
        case "number":
            return float(found)
    return found


def _fits(value: Any, rule: Mapping[str, Any]) -> bool:
    """Returns whether a value is allowed; objects are looked at by `checked`."""
    match rule.get("type"):
        case "boolean":
            fits = isinstance(value, bool)
        case "array":
            fits = isinstance(value, list) and len(value) <= rule.get("maxItems", math.inf)
        case "string":
            fits = isinstance(value, str) and _string_fits(value, rule)
        case "integer":
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            fits = whole and _number_fits(value, rule)
        case "number":
            fits = isinstance(value, (int, float)) and _number_fits(value, rule)
        case _:
            fits = True
    return fits and value in rule.get("enum", [value])


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
    return "format" not in rule or re.fullmatch(r"(?i:https?)://\S+", value) is not None


def _abbreviated(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


def _allowed(rule: Mapping[str, Any]) -> str:
    """Describes the values that the rule allows."""
    if "enum" in rule:
        return " or ".join(map(str, rule["enum"]))
    match rule.get("type"):
        case "boolean":
            return "true or false"
        case "array":
            most = f" of at most {rule['maxItems']}" if "maxItems" in rule else ""
            items = rule.get("items", {})
            what = _an_object(items, "objects") if items.get("type") == "object" else "values"
            return f"a list{most} {what}" if most else "a list"
        case "string" if "format" in rule:
            return "an http or https URL"
        case "string":
            return "text with at least one character that is not white space" if "pattern" in rule else "text"
        case "integer" | "number" as kind:
            step = f", divisible by {rule['multipleOf']}" if "multipleOf" in rule else ""
            return f"{'an' if kind == 'integer' else 'a'} {kind} from {_low(rule)} to {_high(rule)}{step}"
    return _an_object(rule) if rule.get("type") == "object" else "any value"
