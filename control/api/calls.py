"""One request, as the operations see it: what was asked, by whom, with which body.

Reads straight from the ASGI scope: a request object costs as much as all of this. A body is read piece by
piece and refused as soon as it is over its limit, so that no more than the limit is ever held.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.types import Receive, Scope

from stoker.control.errors import BadRequest, TooLarge, Unauthorized
from stoker.control.submissions import shown
from stoker.control.types import Endpoint

WAIT_MS = (1_000, 300_000)
IGNORED_BODY_BYTES = 64 * 1024


class CallerLeft(Exception):
    """The connection closed before the request was complete: there is nobody to answer."""


@dataclass(slots=True)
class Call:
    """`account` and `target` are set once the key was found, before the operation runs."""

    scope: Scope
    receive: Receive
    endpoint: str
    job: str
    account: str = ""
    target: Endpoint | None = None

    @property
    def hosted(self) -> bool:
        return self.target is not None and self.target.hosted

    def header(self, name: bytes) -> str | None:
        """The first header of this lower-case name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    def key(self) -> str:
        """The API key: after `Bearer`, or bare, as existing workers and some clients send it."""
        given = (self.header(b"authorization") or "").strip()
        if given[:7].lower() == "bearer ":
            given = given[7:].strip()
        if not given or given.lower() == "bearer":
            raise Unauthorized("no token provided")
        return given

    def wait_s(self, default_ms: int) -> float:
        """`?wait=` in milliseconds, as seconds."""
        query: bytes = self.scope["query_string"]
        given = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("wait") if query else None
        if given is None:
            return default_ms / 1000
        low, high = WAIT_MS
        text = given[-1]
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and low <= int(text) <= high):
            raise BadRequest(
                f"wait must be an integer from {low} to {high} (milliseconds); got {shown(text)}"
            )
        return int(text) / 1000

    async def body(self, limit: int) -> bytes:
        declared = self.header(b"content-length")
        if declared is not None and declared.isdecimal() and int(declared) > limit:
            raise _too_large(limit, f"it is declared as {declared} bytes")
        message = await self.receive()
        body: bytes = message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise CallerLeft
        if message.get("more_body", False):
            return await self._rest(body, limit)
        _within(body, limit)
        return body

    async def _rest(self, first: bytes, limit: int) -> bytes:
        body = bytearray(first)
        more = True
        while more:
            _within(body, limit)
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            body += message.get("body", b"")
            more = message.get("more_body", False)
        _within(body, limit)
        return bytes(body)


def _within(body: bytes | bytearray, limit: int) -> None:
    if len(body) > limit:
        raise _too_large(limit, "more was sent")


def _too_large(limit: int, found: str) -> TooLarge:
    return TooLarge(f"the body must be at most {limit} bytes; {found}")
