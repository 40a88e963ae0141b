"""A job's input from the command line: JSON, a file, standard input, or single values.

`stoker job run caption '{"text": "hi"}'`   `@input.json`   `-`   `--set text=hi --set steps=4`

A value of `--set` is JSON if it can be parsed as JSON, else text; it replaces the same value of INPUT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError


def read_input(typed: str | None, sets: Sequence[str], stdin: Callable[[], bytes]) -> dict[str, Any]:
    """Returns the input object; empty without INPUT and `--set`."""
    found = {} if typed is None else _object(*_source(typed, stdin))
    return found | dict(_pair(text) for text in sets)


def _source(typed: str, stdin: Callable[[], bytes]) -> tuple[str, str]:
    """Returns the source's name for messages, and its text."""
    try:
        if typed == "-":
            return "standard input", stdin().decode("utf-8-sig")
        if typed.startswith("@"):
            return typed[1:], Path(typed[1:]).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise CliError(f"the input must be UTF-8 text; byte {error.start} is not") from None
    except OSError as error:
        raise CliError(f"{typed[1:]} cannot be read: {error.strerror}") from None
    return "INPUT", typed


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise CliError(
            f"{name} is not JSON ({error}); INPUT is a JSON object, @FILE, - for standard input,"
            " or left out if --set name=value is used"
        ) from None
    if not isinstance(found, dict):
        raise CliError(f"{name} must hold a JSON object; it holds {json.dumps(found)[:100]}")
    return found


def _pair(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CliError(f"--set takes name=value; got {text!r}")
    try:
        return name, json.loads(value, parse_constant=_no_number)
    except ValueError:
        return name, value


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number in JSON")
