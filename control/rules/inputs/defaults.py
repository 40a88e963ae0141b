"""The defaults of an endpoint's schema: filled into what a caller sends, so that they bind. Pure.

A default is that of a property, also of an object within the input or within a list; what `$ref`, `anyOf` and
the like lead to is not filled in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stoker.control.rules.inputs.checking import Schema, allows, check_input, refusal


def accepted(schema: Schema, value: object) -> Any:
    """Returns an input with the schema's defaults. Raises BadRequest for an input that the schema does not
    allow. If it does not allow the input with its defaults either, as where `oneOf` excludes one, the input
    stays as it is."""
    check_input(schema, value)
    filled = with_defaults(schema, value)
    return filled if filled == value or allows(schema, filled) else value


def with_defaults(schema: Schema, value: Any) -> Any:
    """Returns the value with the defaults of what it leaves out."""
    if isinstance(value, dict):
        rules, needs = _rules(schema), schema.get("dependentRequired", {})
        filled = {
            name: rule["default"]
            for name, rule in rules.items()
            if "default" in rule and name not in value and all(one in value for one in needs.get(name, ()))
        }
        return filled | {
            name: with_defaults(rules[name], found) if name in rules else found
            for name, found in value.items()
        }
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, Mapping):
        return [with_defaults(items, one) for one in value]
    return value


def check_defaults(schema: Schema) -> None:
    """Raises ValueError for a default that its own rule does not allow."""
    for field, rule in _all_rules(schema, ""):
        if "default" in rule and (why := refusal(schema, rule, field, rule["default"])):
            raise ValueError(f"the default of {field} is not allowed by its own rule: {why}")


def _all_rules(schema: Schema, within: str) -> Iterator[tuple[str, Schema]]:
    for name, rule in _rules(schema).items():
        yield f"{within}{name}", rule
        yield from _all_rules(rule, f"{within}{name}.")
    if isinstance(items := schema.get("items"), Mapping):
        yield from _all_rules(items, f"{within.removesuffix('.')}[].")


def _rules(schema: Schema) -> dict[str, Schema]:
    """Returns the rules of an object's fields, without those that are only true or false."""
    properties = schema.get("properties", {})
    return {name: rule for name, rule in properties.items() if isinstance(rule, Mapping)}
