"""Checks the body before the routes of the management APIs.

    body over 1 MiB? ─yes─> 413   compressed, but not with gzip? ─yes─> 415
    over 10,000 keys? ─yes─> 400   JSON? ─no─> 400   routes

No operation receives a body that is not JSON, has NUL characters, which the databases cannot store, or
numbers beyond a float. What is JSON is taken for JSON, whatever its Content-Type: curl's `-d` says that it is
a form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.errors import BadRequest, ControlError, TooLarge
from stoker.control.http.calls.calls import decoded
from stoker.control.http.management.unknown import with_ignored_header
from stoker.control.rules.json_size import refuse_many_parts
from stoker.control.rules.limits import MANAGEMENT_BYTES
from stoker.control.rules.submissions import abbreviated

KEYS_MOST = 10_000
"""The most keys, lists and objects of a body: it is read on the loop, several times."""


class Gate:
    """The gate before the routes. `refused` renders what it refuses."""

    def __init__(self, routes: ASGIApp, refused: Callable[[ControlError], Response]) -> None:
        self._routes = routes
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._routes(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await _body(request)
            _check(request, body)
        except ControlError as error:
            await self._refused(error)(scope, receive, send)
            return
        scope["headers"] = [header for header in scope["headers"] if header[0] != b"content-type"]
        scope["headers"].append((b"content-type", b"application/json"))
        await self._routes(scope, _again(body, receive), with_ignored_header(scope, send))


async def _body(request: Request) -> bytes:
    too_large = TooLarge(f"the body is larger than {MANAGEMENT_BYTES} bytes, which no resource needs")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > MANAGEMENT_BYTES:
        raise too_large
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MANAGEMENT_BYTES:
            raise too_large
    return await decoded(b"".join(parts), request.headers.get("content-encoding", ""), MANAGEMENT_BYTES)


def _check(request: Request, body: bytes) -> None:
    if "\x00" in request.url.path or "%00" in request.url.query:
        raise BadRequest("the address holds a NUL character; no id and no name has one")
    if not body:
        return
    refuse_many_parts(body, KEYS_MOST)
    try:
        document = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        kind = request.headers.get("content-type", "application/json")
        labelled = "" if "json" in kind.lower() else f", and its Content-Type is {abbreviated(kind)}"
        raise BadRequest(f"the body is not valid JSON{labelled}: {error}") from None
    _check_value(document, "the body")


def _check_value(value: Any, where: str) -> None:
    """Raises BadRequest for a text or number that nothing here may hold. Recursive; the parser allows at most
    200 levels."""
    if isinstance(value, str):
        if "\x00" in value:
            raise BadRequest(f"{where} holds a NUL character, which no text here may have")
    elif isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise BadRequest(f"{where} holds a number that is too large; numbers must fit 64-bit floats")
    elif isinstance(value, list):
        for one in value:
            _check_value(one, where)
    elif isinstance(value, dict):
        for name, one in value.items():
            _check_value(name, where)
            _check_value(one, name if where == "the body" else where)


def _again(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that first repeats the body, and then returns the server's further messages."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def read() -> Message:
        return messages.pop() if messages else await receive()

    return read
