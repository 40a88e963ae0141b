"""The narrowing of an input's schema: a handler declares what it takes, and the file allows less of it. Pure.

    declared   width = { minimum = 256, maximum = 1536, multipleOf = 64, default = 1024 }
    file       width = { maximum = 512 }
    ─────────> width = { minimum = 256, maximum = 512, multipleOf = 64, default = 512 }

An input fits the narrowed schema if it fits both. Fields that the file does not name stay as declared, unless
it says `additionalProperties = false`. A file that allows more than the handler takes is refused, since such
jobs would fail in the worker. A default that the file does not allow becomes the nearest number which it
allows, or its first choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, inf
from typing import Any, Final

from pydantic_core import to_json

from stoker.control.rules.inputs.checking import Schema, refusal
from stoker.control.rules.submissions import abbreviated

_REPLACED: Final = ("$comment", "$schema", "default", "deprecated", "description", "examples", "title")
_OF_OBJECTS: Final = ("additionalProperties", "properties", "required")
_ENDS: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))
_BESIDE: Final = (
    *("allOf", "anyOf", "const", "dependentRequired", "dependentSchemas", "else", "format", "if", "not"),
    *("oneOf", "pattern", "then", "uniqueItems"),
)
"""Keywords that narrow wherever they are added, whatever else a rule says."""


class NotNarrower(ValueError):
    """A schema that allows what the handler does not take. The message names the field, the value and what is
    allowed."""


def narrowed(declared: Schema, own: Schema) -> dict[str, Any]:
    """Returns the declared schema with the bounds of the file's own. Raises NotNarrower."""
    merged = _merged(declared, own, "", declared)
    return _with_fitting_defaults(merged, own, "", merged)


# -- what both allow


def _merged(declared: Any, own: Any, field: str, root: Schema) -> dict[str, Any]:
    if not isinstance(declared, Mapping) or not isinstance(own, Mapping):
        raise NotNarrower(f"{field} must be an object of rules, got {abbreviated(own)}")
    found = dict(declared)
    for keyword, value in own.items():
        if keyword not in _OF_OBJECTS:
            found[keyword] = _value(keyword, declared, value, field, root)
    for low, high in _ENDS:
        least, most = found.get(low, -inf), found.get(high, inf)
        if least > most and (least, most) != (declared.get(low), declared.get(high)):
            raise NotNarrower(f"{field} allows nothing: {low} is {least}, and {high} is {most}")
    return found | _fields(declared, own, field, root)


def _value(keyword: str, declared: Schema, value: Any, field: str, root: Schema) -> Any:
    """Returns the value of a keyword that the file gives, where it says less than the declared one."""
    where, before = _join(field, keyword), declared.get(keyword)
    if keyword in _REPLACED or _same(before, value):
        return value
    for one in {"enum": value, "const": [value]}.get(keyword, ()):
        if why := refusal(root, declared, where, one):
            raise NotNarrower(why)
    if keyword == "items":
        return _merged(before or {}, value, f"{field}[]", root)
    if keyword in _NARROWS:
        return value if before is None else _NARROWS[keyword](before, value, where)
    if keyword not in _BESIDE:
        known = ", ".join(sorted((*_REPLACED, *_OF_OBJECTS, *_BESIDE, *_NARROWS, "items")))
        raise NotNarrower(f"{where} is not known here; allowed: {known}")
    if before is not None:
        raise NotNarrower(
            f"{where} is {abbreviated(value)}; the handler has {abbreviated(before)}, which stays;"
            " write yours into allOf"
        )
    return value


def _at_most(before: Any, value: Any, where: str) -> Any:
    if value > before:
        raise NotNarrower(f"{where} is {value}; the handler takes {before} at most")
    return value


def _at_least(before: Any, value: Any, where: str) -> Any:
    if value < before:
        raise NotNarrower(f"{where} is {value}; the handler takes {before} at least")
    return value


def _multiple(before: Any, value: Any, where: str) -> Any:
    if _exact(value) % _exact(before):
        raise NotNarrower(f"{where} is {value}; the handler takes multiples of {before}")
    return value


def _type(before: str | Sequence[str], value: str | Sequence[str], where: str) -> Any:
    taken = [before] if isinstance(before, str) else list(before)
    more = ["integer"] if "number" in taken else []
    for one in [value] if isinstance(value, str) else value:
        if one not in (*taken, *more):
            raise NotNarrower(f"{where} is {abbreviated(one)}; the handler takes {' or '.join(taken)}")
    return value


_NARROWS: Final[Mapping[str, Callable[[Any, Any, str], Any]]] = {
    **dict.fromkeys(("exclusiveMaximum", "maxItems", "maxLength", "maximum"), _at_most),
    **dict.fromkeys(("exclusiveMinimum", "minItems", "minLength", "minimum"), _at_least),
    "enum": lambda before, value, where: value,
    "multipleOf": _multiple,
    "type": _type,
}


def _fields(declared: Schema, own: Schema, field: str, root: Schema) -> dict[str, Any]:
    """Returns which fields an object has, and which it must have."""
    rules, others = declared.get("properties", {}), declared.get("additionalProperties", True)
    stated, named = own.get("additionalProperties", others), {}
    if stated is not False and not _same(stated, others):
        raise NotNarrower(
            f"{_join(field, 'additionalProperties')} is {abbreviated(stated)}; it must be false, or left out"
        )
    for name, rule in own.get("properties", {}).items():
        if name not in rules and others is False:
            raise NotNarrower(
                f"{_join(field, name)} is not an input of the handler; it takes {', '.join(rules) or 'none'}"
            )
        before = rules.get(name, others if isinstance(others, Mapping) else {})
        named[name] = _merged(before, rule, _join(field, name), root)
    kept = named if own.get("additionalProperties") is False else {**rules, **named}
    needed = list(dict.fromkeys((*declared.get("required", ()), *own.get("required", ()))))
    if stated is False:
        _require_named(needed, kept, field)
    found = {"properties": kept, "required": needed, "additionalProperties": stated}
    return {key: value for key, value in found.items() if key in declared or key in own}


def _require_named(needed: Sequence[str], kept: Mapping[str, Any], field: str) -> None:
    for name in needed:
        if name not in kept:
            raise NotNarrower(
                f"{_join(field, 'required')} has {name}, which is not among the properties: "
                f"{', '.join(kept) or 'none'}"
            )


# -- defaults


def _with_fitting_defaults(rule: Schema, own: Schema, field: str, root: Schema) -> dict[str, Any]:
    """Returns the rule with defaults that it allows, also within. `own` is what the file says of it."""
    found = dict(rule)
    if isinstance(rule.get("items"), Mapping):
        found["items"] = _with_fitting_defaults(rule["items"], own.get("items", {}), f"{field}[]", root)
    if "properties" in rule:
        required, named = rule.get("required", ()), own.get("properties", {})
        found["properties"] = {
            name: _fitting(one, named.get(name, {}), _join(field, name), root, needed=name in required)
            if isinstance(one, Mapping)
            else one
            for name, one in rule["properties"].items()
        }
    return found


def _fitting(rule: Schema, own: Schema, field: str, root: Schema, *, needed: bool) -> dict[str, Any]:
    found = _with_fitting_defaults(rule, own, field, root)
    if "default" not in rule or not (why := refusal(root, rule, field, rule["default"])):
        return found
    if "default" in own:
        raise NotNarrower(f"{_join(field, 'default')} is not allowed: {why}")
    for default in _candidates(rule):
        if not refusal(root, rule, field, default):
            return found | {"default": default}
    if needed:
        del found["default"]
        return found
    raise NotNarrower(
        f"{field} excludes the handler's default of {abbreviated(rule['default'])}: name another default, or"
        f" list {field} in required"
    )


def _candidates(rule: Schema) -> Iterable[Any]:
    """Returns the choices of a rule; or else the numbers within its bounds that are nearest to its default,
    and multiples of its step."""
    default, step = rule["default"], rule.get("multipleOf", 1 if rule.get("type") == "integer" else None)
    if "const" in rule or "enum" in rule:
        return [rule["const"]] if "const" in rule else list(rule["enum"])
    if isinstance(default, bool) or not isinstance(default, int | float):
        return []
    number = min(max(default, rule.get("minimum", -inf)), rule.get("maximum", inf))
    if step is None:
        return [number]
    steps = _exact(number) / _exact(step)
    around = [floor(steps) * _exact(step), ceil(steps) * _exact(step)]
    nearest = sorted(around, key=lambda one: abs(one - _exact(default)))
    return [int(one) if one.denominator == 1 else float(one) for one in nearest]


def _exact(number: float) -> Fraction:
    return Fraction(str(number))


def _same(one: Any, other: Any) -> bool:
    """Returns whether two values are the same JSON: true is not 1."""
    return to_json(one) == to_json(other)


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name
