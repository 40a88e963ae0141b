"""Query parameters and headers, read and checked. Like a submission's fields, nothing is clamped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from stoker.control.errors import BadRequest
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import DEFAULT_PAGE_SIZE, KEY_LENGTH, PAGE_SIZE
from stoker.control.rules.submissions import Once, abbreviated, wrong
from stoker.control.rules.types import Listing

MILLISECONDS = " (milliseconds)"
SINCE_MS = (0, 253_402_300_799_999)
CURSOR = (1, 2**63 - 1)

Query = Mapping[str, list[str]]


def whole_number(query: Query, name: str, bounds: tuple[int, int], unit: str = "") -> int | None:
    """Returns a parameter of digits, within bounds; None where it was not sent. Raises BadRequest."""
    if name not in query:
        return None
    text = query[name][-1]
    low, high = bounds
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and low <= int(text) <= high):
        raise BadRequest(f"{name} must be an integer from {low} to {high}{unit}; got {abbreviated(text)}")
    return int(text)


def last(query: Query, name: str) -> str | None:
    """Returns the last value of a parameter, which counts if several are sent; None if none is."""
    values = query.get(name)
    return None if values is None else values[-1]


def flag(query: Query, name: str) -> bool:
    text = last(query, name)
    if text not in (None, "true", "false"):
        raise wrong(name, text, "true or false")
    return text == "true"


def parse_listing(query: Query) -> Listing:
    """Parses `?status=&since=&limit=&cursor=` of `/requests`. Raises BadRequest."""
    since = whole_number(query, "since", SINCE_MS, " (milliseconds since the epoch)")
    return Listing(
        state=_state(last(query, "status")),
        since=None if since is None else since / 1000,
        limit=whole_number(query, "limit", PAGE_SIZE) or DEFAULT_PAGE_SIZE,
        before=whole_number(query, "cursor", CURSOR),
    )


def _state(text: str | None) -> JobState | None:
    if text is None:
        return None
    try:
        return JobState(text)
    except ValueError:
        raise wrong("status", text, f"one of {', '.join(JobState)}") from None


def once_of(key: str, body: bytes, *, sync: bool) -> Once | None:
    """Returns the `Idempotency-Key` header, and a digest of the request that must come with the key each
    time."""
    if not 0 < len(key) <= KEY_LENGTH or any(not "!" <= character <= "~" for character in key):
        raise wrong("Idempotency-Key", key, f"1 to {KEY_LENGTH} visible ASCII characters")
    return Once(key, hashlib.sha256((b"sync\n" if sync else b"async\n") + body).digest())
