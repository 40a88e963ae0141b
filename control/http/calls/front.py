"""The outermost layer of the application: gives each request its id, and answers what nothing inside could.

The id is the caller's `X-Request-Id`, or made. It is given back with every answer, stands in each line of the
log that the request causes, and workers of load-balancing endpoints get it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable
from contextvars import ContextVar

from fastapi import APIRouter, FastAPI
from starlette.types import Message, Receive, Scope, Send

from stoker.control.http.calls.answers import stopping, unexpected
from stoker.control.traces.traces import Traces

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


class Front:
    """The front of all HTTP interfaces. `operations` has their routes, and passes on the rest: at once what
    is sent to names below `domain`."""

    def __init__(
        self, app: FastAPI, operations: APIRouter, domain: str = "", traces: Traces | None = None
    ) -> None:
        self._traces, self.app, self._operations = traces, app, operations
        self._domain = domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request. An answer that has begun can only be broken off, not replaced."""
        status: int | None = None
        own = request_id(scope.get("headers", ()))
        if scope["type"] == "http":
            scope["headers"] = with_id(scope["headers"], own)
        traces = self._traces if scope["type"] == "http" else None
        traced = None if traces is None else traces.begin(scope)
        begun = False
        token = REQUEST.set(own.decode())

        async def noted(message: Message) -> None:
            nonlocal begun, status
            begun = True
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = with_id(message.get("headers", ()), own)
            await send(message)

        below = self._domain and scope["type"] == "http" and _is_below(self._domain, scope)
        try:
            await (self._operations.default if below else self._operations)(scope, receive, noted)
        except asyncio.CancelledError:
            if begun or scope["type"] != "http":
                raise
            await stopping()(scope, receive, noted)
        except Exception as error:
            if scope["type"] != "http":
                raise
            answer = unexpected(error)
            if not begun:
                await answer(scope, receive, noted)
        finally:
            if traces is not None and traced is not None:
                traces.answered(traced, scope, own.decode(), status)
            REQUEST.reset(token)


def _is_below(domain: str, scope: Scope) -> bool:
    """Returns whether the Host header is one label and the domain, as the gateway reads it."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    name, colon, port = host.rpartition(":")
    label, _, rest = (name if colon and port.isdecimal() else host).lower().rstrip(".").partition(".")
    return bool(label) and rest == domain
