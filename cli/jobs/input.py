"""A job's input from the command line: JSON, a file, standard input, or one value after the other.

`stoker job run caption '{"text": "hi"}'`   `@input.json`   `-`   `--set text=hi --set steps=4`

A value of `--set` is JSON where it reads as JSON, and text where it does not; it goes over INPUT's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError


def read_input(given: str | None, sets: Sequence[str], stdin: Callable[[], bytes]) -> dict[str, Any]:
    """The input object; an empty one where nothing is given."""
    found = {} if given is None else _object(*_source(given, stdin))
    return found | dict(_pair(text) for text in sets)


def _source(given: str, stdin: Callable[[], bytes]) -> tuple[str, str]:
    """What is called how, and its text."""
    try:
        if given == "-":
            return "standard input", stdin().decode()
        if given.startswith("@"):
            return given[1:], Path(given[1:]).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CliError(f"the input must be UTF-8 text; byte {error.start} is not") from None
    except OSError as error:
        raise CliError(f"{given[1:]} cannot be read: {error.strerror}") from None
    return "INPUT", given


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise CliError(
            f"{name} is not JSON ({error}); INPUT is a JSON object, @FILE, - for standard input,"
            " or left out beside --set name=value"
        ) from None
    if not isinstance(found, dict):
        raise CliError(f"{name} must hold a JSON object; it holds {json.dumps(found)[:100]}")
    return found


def _pair(text: str) -> tuple[str, Any]:
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise CliError(f"--set takes name=value; got {text!r}")
    try:
        return name, json.loads(value, parse_constant=_no_number)
    except ValueError:
        return name, value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number in JSON")
