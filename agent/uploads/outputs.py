"""A handler's output on its way to the caller: file marks become URLs, and the cost is added.

No I/O. An output is parsed only when something in it must change; otherwise its bytes pass as they came.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from stoker.worker.frames import FILE_MARK

_HINT = f'"{FILE_MARK}"'.encode()


class BadOutput(Exception):
    """The output cannot be delivered; the text is a sentence for the caller."""


def has_marks(value: bytes) -> bool:
    """Whether a JSON text holds a file mark. Parses only a text in which one may be."""
    return _HINT in value and bool(marks(_parse(value)))


def marks(value: Any) -> set[int]:
    """The numbers of all files that a value mentions."""
    if isinstance(value, dict):
        number = _mark(value)
        return {number} if number is not None else set().union(*map(marks, value.values()))
    if isinstance(value, list):
        return set().union(*map(marks, value))
    return set()


def place(value: Any, urls: Mapping[int, str]) -> Any:
    """The value with every mark replaced by its file's URL. Raises BadOutput for a file that never came."""
    if isinstance(value, dict):
        number = _mark(value)
        if number is None:
            return {name: place(item, urls) for name, item in value.items()}
        if number not in urls:
            raise BadOutput(f"the output mentions file {number}, which the handler did not hand over")
        return urls[number]
    if isinstance(value, list):
        return [place(item, urls) for item in value]
    return value


def finished(output: bytes | None, urls: Mapping[int, str], cost_usd: float | None) -> bytes | None:
    """The output as the caller gets it. `cost_usd` goes into an object only, and only where it is known."""
    if output is None or (not urls and cost_usd is None):
        return output
    value = place(_parse(output), urls)
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
