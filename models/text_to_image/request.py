"""A job's input, checked and with its defaults filled in. Imports no torch.

The rules are those of `declaration.SCHEMA`, read from it: the control plane checks the same schema before it
queues a job, and this is for a handler that runs without one. Numbers follow JSON: 1024.0 is an integer,
true is no number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.models.text_to_image.declaration import SCHEMA

__all__ = ["ImageRequest", "InvalidInput"]

_PROPERTIES: Mapping[str, Mapping[str, Any]] = SCHEMA["properties"]


class InvalidInput(ValueError):
    """The message names the field, its value and what is allowed."""


@dataclass(frozen=True, slots=True)
class ImageRequest:
    prompt: str
    negative_prompt: str | None
    width: int
    height: int
    num_inference_steps: int
    guidance: float
    seed: int
    image_format: str

    @classmethod
    def parse(cls, value: object) -> ImageRequest:
        """Raises InvalidInput for the first thing that is wrong."""
        if not isinstance(value, Mapping):
            raise InvalidInput(f"input must be an object with a prompt, not {_shown(value)}")
        for field in value:
            if field not in _PROPERTIES:
                raise InvalidInput(f"{field}: there is no such field; allowed are {', '.join(_PROPERTIES)}")
        for field in SCHEMA["required"]:
            if field not in value:
                raise InvalidInput(f"{field}: is missing; it must be {_allowed(_PROPERTIES[field])}")
        return cls(**{field: _field(value, field, rule) for field, rule in _PROPERTIES.items()})

    @property
    def excludes(self) -> str | None:
        """The negative prompt, or None where none was given in so many letters."""
        if self.negative_prompt is None or not self.negative_prompt.strip():
            return None
        return self.negative_prompt


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
    """A pattern may stand anywhere in the text, as JSON Schema has it."""
    if len(given) < rule.get("minLength", 0) or not re.search(rule.get("pattern", ""), given):
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
    if rule["type"] == "string":
        return "text with at least one letter that is not white space" if "pattern" in rule else "text"
    kind = "an integer" if rule["type"] == "integer" else "a number"
    step = f", divisible by {rule['multipleOf']}" if "multipleOf" in rule else ""
    return f"{kind} from {rule['minimum']} to {rule['maximum']}{step}"
