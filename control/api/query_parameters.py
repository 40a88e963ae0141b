"""What queries and headers ask for, read and checked. Like a submission's fields, nothing is clamped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from stoker.control.errors import BadRequest
from stoker.control.rules.events import JobState
from stoker.control.rules.submissions import Once, shown, wrong
from stoker.control.types import Listing

WAIT_MS = (1_000, 300_000)
TTL_MS = (1_000, 604_800_000)
LIMIT = (1, 1_000)
LISTED = 100
MILLISECONDS = " (milliseconds)"
SINCE_MS = (0, 253_402_300_799_999)
CURSOR = (1, 2**63 - 1)
KEY_CHARACTERS = 255

Asked = Mapping[str, list[str]]


def whole_number(asked: Asked, name: str, bounds: tuple[int, int], unit: str = "") -> int | None:
    """A parameter of digits, within bounds; None where it was not given."""
    if name not in asked:
        return None
    text = asked[name][-1]
    low, high = bounds
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and low <= int(text) <= high):
        raise BadRequest(f"{name} must be an integer from {low} to {high}{unit}; got {shown(text)}")
    return int(text)


def last(asked: Asked, name: str) -> str | None:
    """Of a parameter that is given more than once, the last counts."""
    given = asked.get(name)
    return None if given is None else given[-1]


def flag(asked: Asked, name: str) -> bool:
    text = last(asked, name)
    if text not in (None, "true", "false"):
        raise wrong(name, text, "true or false")
    return text == "true"


def parse_listing(asked: Asked) -> Listing:
    """`?status=&since=&limit=&cursor=` of `/requests`."""
    since = whole_number(asked, "since", SINCE_MS, " (milliseconds since the epoch)")
    return Listing(
        state=_state(last(asked, "status")),
        since=None if since is None else since / 1000,
        limit=whole_number(asked, "limit", LIMIT) or LISTED,
        before=whole_number(asked, "cursor", CURSOR),
    )


def _state(text: str | None) -> JobState | None:
    if text is None:
        return None
    try:
        return JobState(text)
    except ValueError:
        raise wrong("status", text, f"one of {', '.join(JobState)}") from None


def once_of(key: str, body: bytes, *, sync: bool) -> Once | None:
    """The `Idempotency-Key` header, and a digest of what it must come with each time."""
    if not 0 < len(key) <= KEY_CHARACTERS or any(not "!" <= character <= "~" for character in key):
        raise wrong("Idempotency-Key", key, f"1 to {KEY_CHARACTERS} visible ASCII characters")
    return Once(key, hashlib.sha256((b"sync\n" if sync else b"async\n") + body).digest())
