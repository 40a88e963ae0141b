"""Pages of a list: a cursor is the id of the last record of a page, unreadable for callers. Pure.

A record that is deleted between two pages is skipped; one whose id a cursor holds must be there still, since
otherwise nothing says where to go on.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import TypeVar

from stoker.control.errors import Unprocessable
from stoker.control.rules.submissions import abbreviated

T = TypeVar("T")

MOST = 1_000
"""The most records of a page, and how many it has if its caller does not say."""


def page(
    records: Sequence[T], key: Callable[[T], str], cursor: str | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """Returns the records of a page, and the cursor of the next one, None after the last. Raises
    Unprocessable."""
    first = 0
    if cursor is not None:
        known = {to_cursor(key(one)): n for n, one in enumerate(records, 1)}
        if cursor not in known:
            raise Unprocessable(
                f"cursor must be the nextCursor of an earlier page of this list; got {abbreviated(cursor)}"
            )
        first = known[cursor]
    found = records[first : first + limit]
    return found, to_cursor(key(found[-1])) if first + limit < len(records) else None


def to_cursor(record: str) -> str:
    return urlsafe_b64encode(record.encode()).decode().rstrip("=")
