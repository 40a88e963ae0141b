"""Answers to callers: a status, a body, and what is to happen once the answer was written.

Every error is JSON of one shape, a superset of what the field's clients look for. An error that no one
expected is logged under an id, and the answer names that id and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from starlette.background import BackgroundTask
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from stoker.control.errors import (
    BodyTooSlow,
    ControlError,
    InvalidInput,
    TooMany,
    Unauthorized,
    Unavailable,
    UnsupportedEncoding,
)

log = logging.getLogger(__name__)

Headers = tuple[tuple[bytes, bytes], ...]
_TURNS = 4
"""Turns of the loop from a closed socket to `receive`: readable, end of file, connection lost, woken."""

WRITTEN = "stoker.written"
"""What our server puts into the state of a request: it returns whether the socket took all that was sent."""

RECEIVED_TRAILERS = "stoker.trailers"
"""Where our server puts the trailers of a request whose body is chunked, complete with the body. Names are in
lower case."""

SEND_TRAILERS = "stoker.send_trailers"
"""Of the same: to be called with the scope and the response's trailers, before an empty last piece of its
body."""

ACCEPT_ENCODING = "gzip, deflate"
"""The header of a 415: what a request's body may be compressed with."""

_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
_JSON: Headers = ((b"content-type", b"application/json"),)


class OwnResponse(Response):
    """A response for FastAPI that sends itself: nothing of its base class is made or used."""

    background: BackgroundTask | None = None


@dataclass(slots=True)
class Answer(OwnResponse):
    """An answer of JSON. `after` runs once the socket has taken the whole body, and not where the caller left
    before.

    A caller that leaves afterwards has been answered: many close their connection with the last byte.
    """

    body: bytes
    status: int = 200
    more: Headers = ()
    after: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = self.after is not None and await has_left(receive)
        await send(
            {
                "type": "http.response.start",
                "status": self.status,
                "headers": [*_JSON, (b"content-length", b"%d" % len(self.body)), *self.more],
            }
        )
        if self.after is None:
            await send({"type": "http.response.body", "body": self.body})
        elif await self._written(scope, send) and not left:
            await self.after()

    async def _written(self, scope: Scope, send: Send) -> bool:
        """Sends the body; returns whether the socket took all of it."""
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        taken = scope.get("state", {}).get(WRITTEN)
        written = taken is None or await taken()
        await send({"type": "http.response.body", "body": b""})
        return written


async def has_left(receive: Receive) -> bool:
    """Returns whether the caller closed the connection. The request's body must have been read before."""
    received = asyncio.ensure_future(receive())
    for _ in range(_TURNS):
        await asyncio.sleep(0)
    if received.done():
        return bool(received.result()["type"] == "http.disconnect")
    received.cancel()
    await asyncio.wait((received,))
    return False


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(orjson.dumps(value), status)


def error_body(status: int, message: str, title: str | None = None) -> dict[str, Any]:
    """Returns the body of every error but a hosted model's refused input; a 404 has no `status`.

    The field's asyncio client looks at no HTTP status and takes `status` for the job's. Unless that is the
    status of an ended job, the client sends the request again, which is right after a 429 or a 503, and would
    never end after a 404.
    """
    body: dict[str, Any] = {"error": message, "status": status}
    if status == HTTPStatus.NOT_FOUND:
        del body["status"]
    return body | {"title": title or HTTPStatus(status).phrase, "detail": message}


def error_answer(error: ControlError) -> Answer:
    if isinstance(error, InvalidInput):
        return json_answer({"id": error.job, "status": "FAILED", "error": str(error)}, error.status)
    if error.status >= 500 and not isinstance(error, Unavailable):
        return unexpected(error)
    return Answer(
        orjson.dumps(error_body(error.status, str(error), error.title)), error.status, _error_headers(error)
    )


def unexpected(error: BaseException) -> Answer:
    """Logs an error that nobody expected, and returns a 500 that names the line of the log to look for."""
    number = uuid.uuid4().hex[:12]
    log.error("request failed, error %s", number, exc_info=error)
    return json_answer(error_body(500, f"something went wrong here; the log has it as error {number}"), 500)


def methods_at(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Returns the methods that routes have for the path of a request."""
    tried = [(method, {**scope, "method": method}) for method in _METHODS]
    return [method for method, one in tried if any(route.matches(one)[0] is Match.FULL for route in routes)]


def method_not_allowed(routes: Sequence[BaseRoute], scope: Scope) -> Answer:
    allowed = ", ".join(methods_at(routes, scope))
    message = f"{scope['method']} is not allowed here; allowed: {allowed}"
    return Answer(orjson.dumps(error_body(405, message)), 405, ((b"allow", allowed.encode()),))


def stopping() -> Answer:
    """Returns the answer to a request that was still held when the service was stopped."""
    return error_answer(Unavailable("the service is stopping; ask again", retry_after=2))


def _error_headers(error: ControlError) -> Headers:
    if isinstance(error, UnsupportedEncoding):
        return ((b"accept-encoding", ACCEPT_ENCODING.encode()),)
    if isinstance(error, Unauthorized):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, BodyTooSlow):
        return ((b"connection", b"close"),)
    if isinstance(error, Unavailable):
        return (_retry_after(error),)
    if isinstance(error, TooMany):
        return (_retry_after(error), *_rate_limit(error))
    return ()


def _retry_after(error: Unavailable | TooMany) -> tuple[bytes, bytes]:
    return (b"retry-after", b"%d" % error.retry_after)


def _rate_limit(error: TooMany) -> Headers:
    """Returns headers with the policy that refused, and what the policy has left, as the IETF's draft of
    RateLimit fields writes them."""
    if error.window_s is None:
        unit = (error.unit or "concurrent-requests").encode()
        policy = b'"concurrent";q=%d;qu="%s"' % (error.limit, unit)
        left = b'"concurrent";r=0'
    else:
        policy = b'"window";q=%d;w=%d' % (error.limit, error.window_s)
        policy += b';qu="%s"' % error.unit.encode() if error.unit else b""
        left = b'"window";r=0;t=%d' % error.retry_after
    return ((b"ratelimit-policy", policy), (b"ratelimit", left))
