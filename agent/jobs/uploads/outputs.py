"""Prepares a handler's output for the caller: replaces file marks by URLs, and adds the cost.

Pure. An output is parsed only if something in it must change; otherwise its bytes stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stoker.worker.frames import FILE_MARK

_HINT = f'"{FILE_MARK}"'.encode()


class BadOutput(Exception):
    """The output cannot be delivered. The message is for the caller."""


def has_marks(value: bytes) -> bool:
    """Returns whether a JSON text contains a file mark. Parses the text only if it may contain one."""
    return _HINT in value and bool(marks(_parse(value)))


def marks(value: Any) -> set[int]:
    """Returns the numbers of all files that a value mentions."""
    if isinstance(value, dict):
        number = _mark(value)
        return {number} if number is not None else set().union(*map(marks, value.values()))
    if isinstance(value, list):
        return set().union(*map(marks, value))
    return set()


def with_urls(value: Any, urls: Mapping[int, str]) -> Any:
    """Returns the value with every mark replaced by its file's URL. Raises BadOutput if a file is missing."""
    if isinstance(value, dict):
        number = _mark(value)
        if number is None:
            return {name: with_urls(item, urls) for name, item in value.items()}
        if number not in urls:
            raise BadOutput(f"the output mentions file {number}, which the handler did not hand over")
        return urls[number]
    if isinstance(value, list):
        return [with_urls(item, urls) for item in value]
    return value


def finished(output: bytes | None, urls: Mapping[int, str], cost_usd: float | None) -> bytes | None:
    """Returns the output for the caller. `cost_usd` is added if it is known and the output is an object."""
    if output is None or (not urls and cost_usd is None):
        return output
    value = with_urls(_parse(output), urls)
    if cost_usd is not None and isinstance(value, dict):
        value["cost"] = cost_usd
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _mark(value: dict[str, Any]) -> int | None:
    number = value.get(FILE_MARK)
    return number if len(value) == 1 and isinstance(number, int) and not isinstance(number, bool) else None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOutput(f"the output is not JSON: {error}") from None
