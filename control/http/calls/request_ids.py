"""The id of a caller's request: taken from `X-Request-Id`, or made; given back with every answer, and in each
line of the log that the request causes. Workers of load-balancing endpoints get it, too."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

HEADER = b"x-request-id"
REQUEST: ContextVar[str] = ContextVar("request", default="")

_ALLOWED = re.compile(rb"[A-Za-z0-9._~:+/=-]{1,128}")
"""Other ids of callers are replaced: an id stands in logs and headers."""

Headers = Iterable[tuple[bytes, bytes]]


def request_id(headers: Headers) -> bytes:
    """Returns the id that a caller gave, if it may be used, or a new one."""
    given = [value for name, value in headers if name == HEADER]
    return given[0] if len(given) == 1 and _ALLOWED.fullmatch(given[0]) else secrets.token_hex(12).encode()


def with_id(headers: Headers, own: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the headers with this id, and no other."""
    return [*((name, value) for name, value in headers if name.lower() != HEADER), (HEADER, own)]


def note_requests() -> None:
    """Gives every record of the log a `request`, the id of the request that caused it, or an empty text."""
    make = logging.getLogRecordFactory()

    def noted(*args: object, **kwargs: object) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.request = REQUEST.get()
        return record

    logging.setLogRecordFactory(noted)
