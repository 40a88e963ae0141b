"""A job's events as server-sent events: chunks as they come, a reset when an attempt is lost, the end.

    event: chunk        id: 1-0      data: {"output": <value>}
    event: progress                  data: {"output": <value>}
    event: reset        id: 2--1     data: {"attempt": 2}         what came before it is void
    event: end                       data: <the job's record>

An id says how far a reader has come; one that comes back with `Last-Event-ID` misses nothing. While nothing
happens a comment goes out now and then, so that proxies keep the connection.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson
from starlette.types import Message, Receive, Scope, Send

from stoker.control.errors import BadRequest, Unauthorized
from stoker.control.http.calls.answers import OwnResponse
from stoker.control.jobs import records
from stoker.control.rules.streams import LogEvent, StreamEvent
from stoker.control.rules.submissions import abbreviated
from stoker.control.rules.types import Replay

E = TypeVar("E")

log = logging.getLogger(__name__)

_EVENT_ID = re.compile(r"(\d{1,9})-(-1|\d{1,9})", re.ASCII)
_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": still here\n\n"
CLOSE_S = 1.0


def parse_event_id(text: str) -> tuple[int, int]:
    """Returns the attempt and chunk of an event's id: `2-14` as (2, 14). Raises BadRequest."""
    found = _EVENT_ID.fullmatch(text)
    if found is None:
        raise BadRequest(f"Last-Event-ID must be the id of an event, attempt-number; got {abbreviated(text)}")
    return int(found[1]), int(found[2])


def render(event: StreamEvent, replay: Replay | None = None) -> bytes:
    """Returns an event of a job's stream. `replay`: what the job replays."""
    match event.kind:
        case "chunk":
            return _lines(
                "chunk", orjson.dumps(records.chunk_value(event.value)), f"{event.attempt}-{event.n}"
            )
        case "progress":
            return _lines("progress", orjson.dumps(records.chunk_value(event.value)))
        case "reset":
            return _lines("reset", b'{"attempt":%d}' % event.attempt, f"{event.attempt}--1")
        case "end" if event.view is not None:
            return _lines("end", orjson.dumps(records.record(event.view, replay)))
    raise ValueError(f"no such event: {event.kind}")


def _lines(kind: str, data: bytes, number: str | None = None) -> bytes:
    """Returns the lines of an event. A line break inside JSON is white space: a string's own is written as an
    escape."""
    head = f"event: {kind}\n" if number is None else f"event: {kind}\nid: {number}\n"
    return head.encode() + b"data: " + data.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


def render_log(event: LogEvent) -> bytes:
    number = f"{event.attempt}-{event.n}"
    match event.kind:
        case "log":
            return _lines("log", orjson.dumps(records.log_line(event.line, event.at_ms)), number)
        case "skipped":
            return _lines("skipped", b'{"lines":%d}' % event.lines, number)
        case "reset":
            return _lines("reset", b'{"attempt":%d}' % event.attempt, number)
        case "end" if event.view is not None:
            return _lines("end", orjson.dumps({"id": event.view.id, "status": event.view.state.value}))
        case "end":
            return _lines("end", orjson.dumps({"id": event.worker}))
    raise ValueError(f"no such event: {event.kind}")


@dataclass(slots=True)
class EventAnswer(OwnResponse, Generic[E]):
    """A stream of events, which lasts no longer than `while_valid`, if given."""

    events: AsyncIterator[E]
    keepalive_s: float
    encode: Callable[[E], bytes]
    while_valid: Callable[[], AbstractAsyncContextManager[None]] = nullcontext

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self.while_valid():
                await self._stream(receive, send)
        except Unauthorized:  # a stream whose key has ended is closed as one whose job has not
            await _close(send)

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        gone = asyncio.ensure_future(_until_left(receive))
        try:
            await self._pump(gone, send)
        finally:
            gone.cancel()
            await asyncio.wait((gone,))
        await send({"type": "http.response.body", "body": b""})

    async def _pump(self, gone: asyncio.Future[None], send: Send) -> None:
        """Sends events until they end, the reader leaves, or the job's time passes while its events are
        read."""
        coming: asyncio.Future[E | None] = asyncio.ensure_future(self._next())
        try:
            while not gone.done():
                waiting: set[asyncio.Future[Any]] = {gone, coming}
                await asyncio.wait(waiting, timeout=self.keepalive_s, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    await send(_part(_KEEPALIVE))
                    continue
                event = coming.result()
                if event is None:
                    return
                await send(_part(self.encode(event)))
                coming = asyncio.ensure_future(self._next())
        except Exception:
            # The status line went out long ago: the stream ends without `end`, and the reader comes back.
            log.exception("an event stream broke")
        finally:
            coming.cancel()
            await asyncio.wait((coming,))
            await self._close()

    async def _next(self) -> E | None:
        return await anext(self.events, None)

    async def _close(self) -> None:
        close = getattr(self.events, "aclose", None)
        if close is not None:
            await close()


async def _close(send: Send) -> None:
    """Ends a response that has begun; a reader that takes nothing is not waited for."""
    with suppress(TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await send({"type": "http.response.body", "body": b""})


def _part(body: bytes) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": True}


async def _until_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
