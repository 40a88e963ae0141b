"""Responses that come part by part: what a route yields, when the route yields it.

    function ──chunk──> a queue of one ──next──> bytes of the response
             └─end or error─┘            the function goes on when its chunks are taken, a few of them ahead

| what is yielded first | type of the response |
|---|---|
| bytes | application/octet-stream |
| a text | text/plain, or text/event-stream if the caller accepts that |
| anything else | application/x-ndjson, a line of JSON each; or text/event-stream, a `data:` field each |
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from stoker.app_values import TAG
from stoker.worker.errors import HandlerError

EVENTS = "text/event-stream"
TOLD = "application/x-ndjson"

OnChunk = Callable[[Any], Awaitable[None]]


class Parts(Protocol):
    """The parts of a response. `next` returns b"" at the end, and raises HandlerError for what the function
    raised."""

    async def next(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request. That of a route that yields has `parts`, and no body."""

    status: int
    body: bytes
    media_type: str = "application/json"
    parts: Parts | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a call, with what its function returned."""

    value: Any


class Yielded:
    """The values that a route yields, or the end of a route that yields none. The call runs until it ends, or
    until `close`. `headers` are those of the request."""

    def __init__(self, call: Callable[[OnChunk], Awaitable[Any]], headers: Mapping[str, str]) -> None:
        self._came: asyncio.Queue[Any] = asyncio.Queue(1)
        self._events = EVENTS in headers.get("accept", "")
        self._running = asyncio.create_task(self._run(call), name="call of a route")
        self._ahead: list[Any] = []

    async def begin(self) -> Any:
        """Returns the first chunk, which `next` returns once more, or Ended. Raises what the call raises."""
        self._ahead.append(await self._take())
        return self._ahead[0]

    def media_type(self, first: Any) -> str:
        if _is_bytes(first):
            return "application/octet-stream"
        if self._events:
            return EVENTS
        return "text/plain; charset=utf-8" if isinstance(first, str) else TOLD

    async def _take(self) -> Any:
        came = await self._came.get()
        if isinstance(came, Exception):
            raise came
        return came

    async def next(self) -> bytes:
        while True:
            chunk = self._ahead.pop() if self._ahead else await self._take()
            if isinstance(chunk, Ended):
                return b""
            if data := self._data(chunk):
                return data

    async def close(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])

    async def _run(self, call: Callable[[OnChunk], Awaitable[Any]]) -> None:
        try:
            end: Any = Ended(await call(self._came.put))
        except Exception as error:  # whoever takes it raises it again
            end = error
        await self._came.put(end)

    def _data(self, chunk: Any) -> bytes:
        if _is_bytes(chunk):
            return base64.b64decode(chunk["data"])
        if isinstance(chunk, str):
            return chunk.encode("utf-8", "replace")
        text = json.dumps(chunk, ensure_ascii=False).encode("utf-8", "replace")
        return b"data: " + text + b"\n\n" if self._events else text + b"\n"


class Told:
    """The parts of a live route's response, as `/execute` tells them: a line of JSON each.

    {"status", "headers"}, then {"body"} of each part, then {"end": true} or {"error"}; any of them may have
    "lines", which the route has printed since the last
    """

    def __init__(self, parts: Parts, head: Mapping[str, Any], printed: list[str]) -> None:
        self._parts, self._head, self._printed = parts, head, printed
        self._ended = False

    async def next(self) -> bytes:
        if self._ended:
            return b""
        message, self._head = dict(self._head), {}
        if not message:
            message = await self._message()
        if self._printed:
            message["lines"] = self._printed.copy()
            self._printed.clear()
        return json.dumps(message).encode() + b"\n"

    async def _message(self) -> dict[str, Any]:
        try:
            part = await self._parts.next()
        except HandlerError as error:
            self._ended = True
            return {"error": str(error)}
        self._ended = not part
        return {"body": base64.b64encode(part).decode()} if part else {"end": True}


def _is_bytes(chunk: Any) -> bool:
    return isinstance(chunk, dict) and chunk.get(TAG) == "bytes"
