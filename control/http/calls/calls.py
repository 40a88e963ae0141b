"""A request as the operations see it: its caller, endpoint and body.

A body is read in parts and refused as soon as it is over its limit (`control.bodies`).

A caller whose answer takes long is watched, and ends its admission when it leaves. A submission goes on then,
as it may be half stored; what only reads ends with its caller.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Sequence
from typing import BinaryIO, TypeVar

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from stoker.control.auth.rate_limits import Admission, Rates
from stoker.control.bodies import Bodies, CallerLeft, too_large
from stoker.control.config.endpoints import RESERVED
from stoker.control.errors import BadRequest, Unauthorized, UnsupportedEncoding
from stoker.control.http.calls.answers import Answer, Headers
from stoker.control.http.calls.ignored import HEADER, header_value, refusal, strict
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.calls.turns import Turns
from stoker.control.http.openai.requests import OpenAIRequest
from stoker.control.jobs.records import Record
from stoker.control.plane import Plane
from stoker.control.rules.access import Caller
from stoker.control.rules.types import LOAD_BALANCER, Endpoint
from stoker.outbound.wait_limits import Waiter

T = TypeVar("T")

IGNORED_BODY_BYTES = 64 * 1024

WATCH_AFTER_S = 1.0
"""A watch costs a task: an answer that comes at once is to go without."""

_LENGTH_DIGITS = 20

NOT_COMPRESSED = ("", "identity")
COMPRESSED = ("gzip", "x-gzip", "deflate")


class Call(Request):
    """A request for an operation. `caller` and `endpoint` are set once they were found; `admission` counts it
    as a request in progress. `job`: the job that the path names, or the path below `/openai`. `ignored` is
    the header of the answer which names what in the request means nothing here. `sent`: the request of an
    OpenAI client, once it was read; `passed`: the answer of a worker, if it is one's to give."""

    caller: Caller
    endpoint: Endpoint

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self._first: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        self.job: str = scope["path_params"].get("job_id", "")
        self.shared: Operations = scope["router"]
        self.plane: Plane = self.shared.plane
        self.settings: ApiSettings = self.shared.settings
        self.admission: Admission | None = None
        self.left = False
        self.ignored: Headers = ()
        self.sent: OpenAIRequest | None = None
        self.passed: Response | None = None

    async def next_message(self) -> Message:
        """Returns the next message. Once the caller has left, every call returns the disconnect."""
        if self.left:
            return {"type": "http.disconnect"}
        message = await self.receive()
        self.left = message["type"] == "http.disconnect"
        return message

    def header(self, name: bytes) -> str | None:
        """Returns the first header of this lower-case name."""
        value = self._first.get(name)
        return None if value is None else str(value, "latin-1")

    def accepts_events(self) -> bool:
        return "text/event-stream" in (self.header(b"accept") or "")

    def answer(self, record: Record) -> Answer:
        return Answer(orjson.dumps(record), 200, self.ignored)

    def note_ignored(self, names: Sequence[str]) -> None:
        """Raises BadRequest if the caller wants such names refused."""
        if strict(str(value, "latin-1") for key, value in self.scope["headers"] if key == b"prefer"):
            raise BadRequest(refusal(names))
        self.ignored = ((HEADER, header_value(names).encode("ascii")),)

    async def read(self, limit: int) -> bytes:
        """Returns the body, decompressed if a header says that it is compressed. Neither the received nor the
        decompressed body may be over the limit."""
        received, encoding = await self.received(limit), self.header(b"content-encoding")
        if not isinstance(received, bytes):
            with received:
                received = received.read()
        return received if encoding is None else await decoded(received, encoding, limit)

    async def received(self, limit: int) -> bytes | BinaryIO:
        """Returns the body as it was sent, in a file if it did not come at once; the caller closes that."""
        declared, size = self.header(b"content-length"), limit
        if declared is not None and declared.isdecimal():
            size = int(declared[:_LENGTH_DIGITS])
            if len(declared) > _LENGTH_DIGITS or size > limit:
                raise too_large(limit, f"it is declared as {declared[:_LENGTH_DIGITS]} bytes")
        return await self.shared.bodies.receive(self, limit, size)

    def waiter(self) -> Waiter:
        """Returns the caller, at its address. A body at `/openai` names the endpoint itself."""
        peer = self.scope.get("client") or ("", 0)
        endpoint = self.endpoint.id if "endpoint_id" in self.path_params else ""
        return Waiter(self.caller.account, self.caller.key, endpoint, peer[0])

    async def watched(self, answer: Awaitable[T], hold: asyncio.Timeout | None = None) -> T:
        """Returns what `answer` returns. A caller that leaves ends its admission early, and `hold`, if given.
        The body must have been read."""
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
        """Returns what `answer` returns, which must change nothing: when the caller leaves, ends the answer
        and raises CallerLeft."""
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


async def decoded(body: bytes, encoding: str, limit: int) -> bytes:
    """Returns the body without its Content-Encoding. Raises BadRequest, TooLarge, UnsupportedEncoding."""
    name = encoding.strip().lower()
    if name in NOT_COMPRESSED or not body:
        return body
    if name not in COMPRESSED:
        raise UnsupportedEncoding(
            f"Content-Encoding is {encoding[:100]}; the body may be compressed with gzip, or not at all"
        )
    return await asyncio.to_thread(decompressed, body, limit)


def decompressed(body: bytes, limit: int) -> bytes:
    """Returns the content of a body in the formats gzip or zlib. Raises BadRequest and TooLarge."""
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # by its first bytes
    try:
        content = reader.decompress(body, limit + 1)
    except zlib.error:
        raise BadRequest(
            "Content-Encoding says that the body is compressed, and it is not, or is damaged"
        ) from None
    if len(content) > limit:
        raise too_large(limit, "it is larger once it is decompressed")
    if not reader.eof or reader.unused_data:
        what = "ends early" if not reader.eof else "goes on after its end"
        raise BadRequest(f"the body is compressed, as Content-Encoding says, and {what}")
    return content


class Operations(APIRouter):
    """The routes of operations, and what these share."""

    def __init__(self, plane: Plane, settings: ApiSettings, routes: list[BaseRoute]) -> None:
        super().__init__(routes=routes, redirect_slashes=False)
        self.plane = plane
        self.settings = settings
        self.rates = (
            Rates(settings.requests_per_worker, plane.cluster.ready_workers) if settings.rate_limits else None
        )
        self.bodies = Bodies(settings.spool)
        self.turns = Turns()
        self.of_workers: ASGIApp | None = None
        """Serves every path of load-balancing endpoints, where there is a gateway."""
        self.management: ASGIApp | None = None
        """Serves every path below the names that are reserved for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        serve: ASGIApp = super().__call__
        if scope["type"] == "http" and scope["path"].startswith("/v2/"):
            first = scope["path"][4:].partition("/")[0]
            if first in RESERVED and self.management is not None:
                serve = self.management
            elif self.of_workers is not None:
                found = self.plane.endpoints.named(first)
                if found is not None and found.type == LOAD_BALANCER:
                    serve = self.of_workers
        await serve(scope, receive, send)


def may_not(call: Call, *, write: bool) -> Unauthorized:
    """Returns the refusal of a key that has no right to do this at the endpoint."""
    what, named = "change anything" if write else "look", call.path_params["endpoint_id"]
    return Unauthorized(
        f"this key may not {what} at endpoint {named}; `stoker key create` makes one that may"
    )
