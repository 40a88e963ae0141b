"""Checks of the body of a call of a queue function. Pure."""

from __future__ import annotations

import json
from typing import Any

from stoker.app_values import ValueRefused, decode
from stoker.client.apps.scanned import Function

NAMED = 10
"""How many missing or unknown parameters a message names."""

DEPTH_MAX = 200
"""Levels of a call's values; reading and sending them are recursive."""

TOO_DEEP = f"the body has more than {DEPTH_MAX} levels of lists and objects"


class BodyRefused(ValueError):
    """The body is wrong; the message names the field and says what is expected."""


class BodyTooLarge(BodyRefused):
    """The body is over the limit; the message names the limit."""


def arguments(body: bytes, function: Function) -> dict[str, Any]:
    """Returns the arguments in `{"input": {...}}`. Raises BodyRefused."""
    wrapper = 'the body is {"input": {...}}, as for a deployed endpoint'
    try:
        content = json.loads(body)
    except RecursionError:
        raise BodyRefused(TOO_DEEP) from None
    except ValueError as error:
        raise BodyRefused(f"the body is not JSON ({error}); {wrapper}") from None
    if not isinstance(content, dict) or "input" not in content:
        raise BodyRefused(f"input is required and missing; {wrapper}")
    values = content["input"]
    if not isinstance(values, dict):
        raise BodyRefused(f"input must be an object, with the parameters of {function.qualname}; {wrapper}")
    _check_values(values)
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


def _check_values(values: dict[str, Any]) -> None:
    """Raises BodyRefused for what json.loads reads and no request can have."""
    left: list[tuple[str, Any, int]] = [("input", values, 0)]
    while left:
        where, value, depth = left.pop()
        if depth > DEPTH_MAX:
            raise BodyRefused(TOO_DEEP)
        if isinstance(value, str):
            _check_text(where, value)
        elif isinstance(value, list):
            left += [(f"{where}[{n}]", one, depth + 1) for n, one in enumerate(value)]
        elif isinstance(value, dict):
            for name, one in value.items():
                _check_text(f"a key of {where}", name)
                left.append((f"{where}.{name:.100}", one, depth + 1))


def _check_text(where: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = ascii(text[error.start])
        raise BodyRefused(
            f"{where:.1000} has the half of a surrogate pair, {found}, which is not a character"
        ) from None
