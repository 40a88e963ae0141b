"""A job's input, checked against a hosted model's schema and with its defaults filled in. Imports no torch.

The control plane checks the same schema before it queues a job; this is for a handler that runs without one.
What schemas of ours hold is known here: an object of strings, integers, numbers and booleans with ranges,
patterns, enumerations, defaults and one format, `uri`. Numbers follow JSON: 1024.0 is an integer, true is no
number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["InvalidInput", "checked"]


class InvalidInput(ValueError):
    """The message names the field, its value and what is allowed."""


def checked(value: object, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Every property of the schema with its value, None where it may be missing and has no default.

    Raises InvalidInput for the first thing that is wrong.
    """
    properties, required = schema["properties"], schema["required"]
    if not isinstance(value, Mapping):
        raise InvalidInput(f"input must be an object with {_listed(required)}, not {_shown(value)}")
    for field in value:
        if field not in properties:
            raise InvalidInput(f"{field}: there is no such field; allowed are {', '.join(properties)}")
    for field in required:
        if field not in value:
            raise InvalidInput(f"{field}: is missing; it must be {_allowed(properties[field])}")
    return {field: _field(value, field, rule) for field, rule in properties.items()}


def _listed(names: list[str]) -> str:
    *first, last = (f"{'an' if name[0] in 'aeiou' else 'a'} {name}" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def _field(value: Mapping[str, Any], field: str, rule: Mapping[str, Any]) -> Any:
    if field not in value:
        return rule.get("default")
    given = value[field]
    if not _fits(given, rule):
        raise InvalidInput(f"{field}: {_shown(given)} is not allowed; it must be {_allowed(rule)}")
    if rule["type"] == "integer":
        return int(given)
    return float(given) if rule["type"] == "number" else given


def _fits(given: object, rule: Mapping[str, Any]) -> bool:
    match rule["type"]:
        case "boolean":
            return isinstance(given, bool)
        case "string":
            return isinstance(given, str) and _is_text(given) and _string_fits(given, rule)
        case "integer":
            whole = isinstance(given, int) or (isinstance(given, float) and given.is_integer())
            return whole and _number_fits(given, rule)
        case _:
            return isinstance(given, (int, float)) and _number_fits(given, rule)


def _number_fits(given: Any, rule: Mapping[str, Any]) -> bool:
    """NaN fits nowhere, since it compares with nothing; a boolean is a number in Python only."""
    if isinstance(given, bool) or not rule["minimum"] <= given <= rule["maximum"]:
        return False
    return "multipleOf" not in rule or given % rule["multipleOf"] == 0


def _string_fits(given: str, rule: Mapping[str, Any]) -> bool:
    """A pattern may stand anywhere in the text, as JSON Schema has it; the format is that of a URL."""
    if len(given) < rule.get("minLength", 0) or not re.search(rule.get("pattern", ""), given):
        return False
    if "format" in rule and not re.fullmatch(r"(?i:https?)://\S+", given):
        return False
    return given in rule.get("enum", [given])


def _is_text(given: str) -> bool:
    """Half of a surrogate pair is valid in JSON, and no tokenizer takes it."""
    return not any("\ud800" <= letter <= "\udfff" for letter in given)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


def _allowed(rule: Mapping[str, Any]) -> str:
    """The rule in words."""
    if "enum" in rule:
        return " or ".join(rule["enum"])
    if rule["type"] == "boolean":
        return "true or false"
    if "format" in rule:
        return "an http or https URL"
    if rule["type"] == "string":
        return "text with at least one letter that is not white space" if "pattern" in rule else "text"
    kind = "an integer" if rule["type"] == "integer" else "a number"
    step = f", divisible by {rule['multipleOf']}" if "multipleOf" in rule else ""
    return f"{kind} from {rule['minimum']} to {rule['maximum']}{step}"
