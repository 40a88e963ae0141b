"""One request, as the operations see it: its parameters, caller, endpoint and body.

Reads straight from the ASGI scope: a request object costs as much as all of this. A body is read in
parts and refused as soon as it is over its limit, so that no more than the limit is ever in memory.

A caller whose answer takes long is watched, and ends its admission when it leaves. A submission goes on then,
as it may be half stored; what only reads ends with its caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.types import Message, Receive, Scope

from stoker.control.api.query_parameters import MILLISECONDS, TTL_MS, WAIT_MS, whole_number
from stoker.control.auth.rate_limits import Admission
from stoker.control.errors import TooLarge, Unauthorized
from stoker.control.rules.access import Caller
from stoker.control.types import Endpoint

T = TypeVar("T")

IGNORED_BODY_BYTES = 64 * 1024

WATCH_AFTER_S = 1.0
"""A watch costs a task: an answer that comes at once is to go without."""

_LENGTH_DIGITS = 20


class CallerLeft(Exception):
    """The connection closed before the request was complete: there is no caller to answer."""


@dataclass(slots=True)
class Call:
    """`caller` and `endpoint` are set once they were found; `admission` counts it as a request in progress.
    `query` holds the query's parameters, each with all its values: of a call that was admitted."""

    scope: Scope
    receive: Receive
    job: str
    caller: Caller = field(init=False)
    endpoint: Endpoint = field(init=False)
    query: Mapping[str, list[str]] = field(default_factory=dict)
    admission: Admission | None = None
    left: bool = False

    async def next_message(self) -> Message:
        """The next message. Once the caller has left, every call returns the disconnect."""
        if self.left:
            return {"type": "http.disconnect"}
        message = await self.receive()
        self.left = message["type"] == "http.disconnect"
        return message

    def header(self, name: bytes) -> str | None:
        """The first header of this lower-case name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    def wait_s(self, default_ms: int) -> float:
        """`?wait=` in milliseconds, as seconds."""
        requested_ms = whole_number(self.query, "wait", WAIT_MS, MILLISECONDS) if self.query else None
        return (requested_ms or default_ms) / 1000

    def ttl_ms(self) -> int | None:
        """`?ttl=`, where it was sent."""
        return whole_number(self.query, "ttl", TTL_MS, MILLISECONDS)

    async def body(self, limit: int) -> bytes:
        declared = self.header(b"content-length")
        if declared is None or not declared.isdecimal():
            pass
        elif len(declared) > _LENGTH_DIGITS or int(declared) > limit:
            raise _too_large(limit, f"it is declared as {declared[:_LENGTH_DIGITS]} bytes")
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > limit:
                raise _too_large(limit, "more was sent")
            more = message.get("more_body", False)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def watched(self, answer: Awaitable[T], hold: asyncio.Timeout | None = None) -> T:
        """The same answer. A caller that leaves ends its admission early, and `hold`, if one is given. The
        body must have been read."""
        watch: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal watch
            watch = asyncio.create_task(self._watch(hold), name="watch a caller")

        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, begin)
        try:
            return await answer
        finally:
            timer.cancel()
            if watch is not None:
                watch.cancel()
                await asyncio.wait((watch,))

    async def while_connected(self, answer: Awaitable[T]) -> T:
        """For what changes nothing: it is ended when the caller leaves, and CallerLeft raised."""
        hold = asyncio.timeout(None)
        try:
            async with hold:
                return await self.watched(answer, hold)
        except TimeoutError:
            if hold.expired():
                raise CallerLeft from None
            raise

    async def _watch(self, hold: asyncio.Timeout | None) -> None:
        while not self.left:
            await self.next_message()
        if self.admission is not None:
            self.admission.leave()
        if hold is not None:
            hold.reschedule(asyncio.get_running_loop().time())


def may_not(call: Call, *, write: bool) -> Unauthorized:
    """The key has no right to do this at the endpoint."""
    what, named = "change anything" if write else "look", call.scope["path"].split("/")[2]
    return Unauthorized(
        f"this key may not {what} at endpoint {named}; `stoker key create` makes one that may"
    )


def _too_large(limit: int, found: str) -> TooLarge:
    return TooLarge(f"the body must be at most {limit} bytes; {found}")
