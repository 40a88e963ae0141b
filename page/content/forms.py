"""The fields of a form, from the JSON Schema of an endpoint's input; the input, from what was typed. Pure.

string ──> text, or "long" for a prompt     enum ──> choice           format: uri ──> file (upload or URL)
integer, number, boolean                    an array of those ──> files     everything else ──> json
    an endpoint without a schema ──> whole: the input itself, as JSON
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Kind = Literal["text", "long", "integer", "number", "boolean", "choice", "file", "files", "json", "whole"]

LONG = ("prompt", "text", "negative_prompt", "messages")
"""Names whose values are usually more than a line."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form. `step`: what a number is a multiple of. `needs`: the fields without which it may not
    be sent."""

    name: str
    kind: Kind
    about: str = ""
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    step: float | None = None
    choices: tuple[Any, ...] = ()
    needs: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.name.replace("_", " ").capitalize()


class InputRefused(ValueError):
    """A value that cannot be sent; the message says of which field, and what is allowed."""


def fields_of(schema: Mapping[str, Any] | None) -> tuple[Field, ...]:
    """Returns the fields in the schema's order, those that are required first."""
    properties = (schema or {}).get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return (Field("input", "whole", "The input of the job, a JSON object.", default={}, required=True),)
    needed, needs = (schema or {}).get("required", ()), (schema or {}).get("dependentRequired", {})
    found = [
        replace(_field(name, part, name in needed), needs=tuple(needs.get(name, ())))
        for name, part in properties.items()
    ]
    return tuple(sorted(found, key=lambda field: not field.required))


def _field(name: str, part: Any, required: bool) -> Field:
    part = part if isinstance(part, Mapping) else {}
    choices = part.get("enum")
    return Field(
        name,
        _kind(name, part),
        str(part.get("description", "")),
        part.get("default"),
        required,
        _number(part.get("minimum")),
        _number(part.get("maximum")),
        _number(part.get("multipleOf")),
        tuple(choices) if isinstance(choices, Sequence) and not isinstance(choices, str) else (),
        examples=tuple(_examples(part.get("examples"))) if part.get("type") == "string" else (),
    )


def _examples(found: Any) -> list[str]:
    return [one[:200] for one in found if isinstance(one, str)][:4] if isinstance(found, list) else []


def _kind(name: str, part: Mapping[str, Any]) -> Kind:
    if isinstance(part.get("enum"), list):
        return "choice"
    match part.get("type"):
        case "string" if part.get("format") == "uri":
            return "file"
        case "string":
            return "long" if name in LONG else "text"
        case "integer":
            return "integer"
        case "number":
            return "number"
        case "boolean":
            return "boolean"
        case "array" if _is_file(part.get("items")):
            return "files"
    return "json"


def _is_file(part: Any) -> bool:
    return isinstance(part, Mapping) and (part.get("type"), part.get("format")) == ("string", "uri")


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def input_of(fields: Sequence[Field], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the input that the typed values mean. What is empty is left out, and so is a default without
    the fields that it needs. Raises InputRefused."""
    found = {
        field.name: value for field in fields if (value := _value(field, typed.get(field.name))) is not None
    }
    if fields[0].kind == "whole":
        whole = found.get(fields[0].name, {})
        if not isinstance(whole, dict):
            raise InputRefused("the input must be a JSON object")
        return whole
    for field in fields:
        if field.required and field.name not in found:
            raise InputRefused(f"{field.label} is needed")
    alone = {
        field.name
        for field in fields
        if not found.keys() >= set(field.needs) and found.get(field.name) == field.default
    }
    return {name: value for name, value in found.items() if name not in alone}


def json_text(field: Field, value: Any) -> str:
    """Returns the text of a field of JSON. Without a value it is empty, so that nothing is sent; a whole
    input begins as an object."""
    if value is None:
        return "{}" if field.kind == "whole" else ""
    return value if isinstance(value, str) else json.dumps(value, indent=2)


def files_text(value: Any) -> str:
    """Returns the text of a field of files: an address a line."""
    return "\n".join(map(str, value)) if isinstance(value, list) else ""


def with_address(field: Field, typed: str, address: str) -> str:
    """Returns the text of a field after a file was chosen: its address, below the others of several files."""
    return f"{typed}\n{address}".strip() if field.kind == "files" else address


def _value(field: Field, typed: Any) -> Any:
    if typed is None or (isinstance(typed, str) and not typed.strip()):
        return None
    match field.kind:
        case "integer" | "number":
            return _typed_number(field, typed)
        case "files" if isinstance(typed, str):
            return typed.split()
        case "json" | "whole" if isinstance(typed, str):
            try:
                return json.loads(typed)
            except ValueError as error:
                raise InputRefused(f"{field.label} must be JSON: {error}") from None
    return typed


def _typed_number(field: Field, typed: Any) -> float:
    try:
        value = float(typed)
    except (TypeError, ValueError):
        raise InputRefused(f"{field.label} must be a number, got {typed!r:.50}") from None
    if field.kind == "integer" and (isinstance(typed, int) or value.is_integer()):
        value = int(typed) if isinstance(typed, int) else int(value)
    elif field.kind == "integer":
        raise InputRefused(f"{field.label} must be a whole number, got {typed!r:.50}")
    if not _low(field) <= value <= _high(field):  # also refuses NaN
        raise InputRefused(f"{field.label} must be {bounds(field)}, got {typed!r:.50}")
    return value


def _low(field: Field) -> float:
    return float("-inf") if field.minimum is None else field.minimum


def _high(field: Field) -> float:
    return float("inf") if field.maximum is None else field.maximum


def bounds(field: Field) -> str:
    """Returns the bounds of a number as words, or an empty text."""
    low, high = field.minimum, field.maximum
    if low is not None and high is not None:
        return f"{_exact(low)} to {_exact(high)}"
    if low is not None:
        return f"at least {_exact(low)}"
    return "" if high is None else f"at most {_exact(high)}"


def _exact(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
