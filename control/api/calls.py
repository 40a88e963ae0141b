"""One request, as the operations see it: what was asked, by whom, with which body.

Reads straight from the ASGI scope: a request object costs as much as all of this. A body is read piece by
piece and refused as soon as it is over its limit, so that no more than the limit is ever held.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.types import Message, Receive, Scope

from stoker.control.access import NOTHING, Access
from stoker.control.api.questions import TTL_MS, WAIT_MS, milliseconds
from stoker.control.errors import TooLarge, Unauthorized
from stoker.control.rates import Place
from stoker.control.types import Endpoint

IGNORED_BODY_BYTES = 64 * 1024

_LENGTH_DIGITS = 20


class CallerLeft(Exception):
    """The connection closed before the request was complete: there is nobody to answer."""


@dataclass(slots=True)
class Call:
    """`account`, `access` and `target` are set once the key was found; `place` is what counts it as being
    inside."""

    scope: Scope
    receive: Receive
    operation: str
    endpoint: str
    job: str
    account: str = ""
    access: Access = NOTHING
    target: Endpoint | None = None
    place: Place | None = None
    left: bool = False

    @property
    def hosted(self) -> bool:
        return self.target is not None and self.target.hosted

    def allow(self, *, write: bool) -> None:
        """Raises Unauthorized where the key has no right to do this at the endpoint."""
        if self.target is None or not self.access.calls(self.target.id, write=write):
            what = "change anything" if write else "look"
            raise Unauthorized(
                f"this key may not {what} at endpoint {self.endpoint}; `stoker key create` makes one that may"
            )

    def leave(self) -> None:
        """Gives up the place, where there still is one."""
        if self.place is not None:
            self.place.leave()
            self.place = None

    async def hear(self) -> Message:
        """The next message. That the caller left is said again to whoever asks."""
        if self.left:
            return {"type": "http.disconnect"}
        message = await self.receive()
        self.left = message["type"] == "http.disconnect"
        return message

    async def until_left(self) -> None:
        while not self.left:
            await self.hear()

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

    def asked(self) -> Mapping[str, list[str]]:
        """The query's parameters, each with all its values."""
        query: bytes = self.scope["query_string"]
        return parse_qs(query.decode("latin-1"), keep_blank_values=True) if query else {}

    def wait_s(self, default_ms: int) -> float:
        """`?wait=` in milliseconds, as seconds."""
        return (milliseconds(self.asked(), "wait", WAIT_MS) or default_ms) / 1000

    def ttl_ms(self) -> int | None:
        """`?ttl=`, where it was given."""
        return milliseconds(self.asked(), "ttl", TTL_MS)

    async def body(self, limit: int) -> bytes:
        declared = self.header(b"content-length")
        if declared is not None and declared.isdecimal() and _over(declared, limit):
            raise _too_large(limit, f"it is declared as {declared[:_LENGTH_DIGITS]} bytes")
        message = await self.hear()
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
            message = await self.hear()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            body += message.get("body", b"")
            more = message.get("more_body", False)
        _within(body, limit)
        return bytes(body)


def _over(declared: str, limit: int) -> bool:
    return len(declared) > _LENGTH_DIGITS or int(declared) > limit


def _within(body: bytes | bytearray, limit: int) -> None:
    if len(body) > limit:
        raise _too_large(limit, "more was sent")


def _too_large(limit: int, found: str) -> TooLarge:
    return TooLarge(f"the body must be at most {limit} bytes; {found}")
