"""Checks of the body of a call of a queue function. Pure."""

from __future__ import annotations

import json
from typing import Any

from stoker.client.apps.scanned import Function
from stoker.client.apps.values import ValueRefused, decode

NAMED = 10
"""How many missing or unknown parameters a message names."""


class BodyRefused(ValueError):
    """The body is wrong; the message names the field and says what is expected."""


class BodyTooLarge(BodyRefused):
    """The body is over the limit; the message names the limit."""


def arguments(body: bytes, function: Function) -> dict[str, Any]:
    """Returns the arguments in `{"input": {...}}`. Raises BodyRefused."""
    wrapper = 'the body is {"input": {...}}, as for a deployed endpoint'
    try:
        content = json.loads(body)
    except ValueError as error:
        raise BodyRefused(f"the body is not JSON ({error}); {wrapper}") from None
    if not isinstance(content, dict) or "input" not in content:
        raise BodyRefused(f"input is required and missing; {wrapper}")
    values = content["input"]
    if not isinstance(values, dict):
        raise BodyRefused(f"input must be an object, with the parameters of {function.qualname}; {wrapper}")
    known = [one.name for one in function.parameters]
    missing = [f"input.{one.name}" for one in function.parameters if one.required and one.name not in values]
    unknown = [] if function.takes_any else [f"input.{name:.100}" for name in values if name not in known]
    wrong = [
        f"{', '.join(names[:NAMED])} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in ((missing, "required and missing"), (unknown, "unknown"))
        if names
    ]
    if wrong:
        takes = ", ".join(known) or "no parameters"
        raise BodyRefused(f"{', and '.join(wrong)}; {function.qualname} takes {takes}")
    try:
        return {name: decode(value, where=f"input.{name}") for name, value in values.items()}
    except ValueRefused as error:
        raise BodyRefused(str(error)) from None
