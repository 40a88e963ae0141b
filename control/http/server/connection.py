"""A caller's connection: uvicorn's protocol, with the limits and the rules of HTTP that it lacks.

    bytes ──> head ──> offers another protocol? ─no──> request
                         │yes
                         ├─ CONNECT ──> 400
                         ├─ a WebSocket, and no response is due ──> the connection is handed on
                         └─ any other ──> the head is read again without the offer

A server may ignore an offer (RFC 9110, 7.8), and the body of such a request is its body. The parser would
take what follows the head for another protocol, and, where it is told to go on, for the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httptools
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stoker.control.errors import BadRequest
from stoker.control.http.calls.answers import RECEIVED_TRAILERS, SEND_TRAILERS, WRITTEN, Headers, error_answer

HEAD_BYTES = 64 * 1024
"""The most that the head of a request may take."""

TRAILER_BYTES = 1024 * 1024
"""The most that may come of a chunked body without a byte of it: its trailers, for the greater part."""

TRAILERS = 100
"""How many fields may come after a body."""

FIRST_HEAD_S = 10.0
HEAD_S = 30.0
"""The time in which a head must be complete: the first one from its connection on, another from its first
byte on."""


class RefusedHead(Exception):
    """A request that is not served, because of its head."""


class Connection(HttpToolsProtocol):
    """Tells an application whether the socket took what it sent (`WRITTEN` in the state of its requests),
    keeps trailers apart from headers (`RECEIVED_TRAILERS`, `SEND_TRAILERS`), and limits the size and the time
    of a request's head. `left` is called when the connection is lost, whatever protocol it has by then;
    `drains` says whether the server ends each connection with its next answer."""

    _cut = False
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def __init__(
        self,
        *args: Any,
        left: Callable[[], None] = lambda: None,
        drains: Callable[[], bool] = lambda: False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._left, self._drains = left, drains

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {
            **self.app_state,
            WRITTEN: self._wait_written,
            SEND_TRAILERS: self._send_trailers,
        }
        self._head_timer = self.loop.call_later(FIRST_HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        of_body = before is not None and before.more_body
        size_before = len(before.body) if of_body else 0
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserUpgrade, httptools.HttpParserError) as stopped:
            self._read_on(memoryview(data), stopped)
        if of_body or self.cycle is not before or self.transport.get_protocol() is not self:
            if self._head_timer is not None:
                self._head_is_complete(self._head_timer)
            if of_body and len(before.body) == size_before and self._is_in_trailers():
                self._limit_trailers(len(data))
        elif not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response(f"the head of the request is larger than {HEAD_BYTES} bytes")
            elif self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S, self.transport.abort)

    def _read_on(self, unread: memoryview, stopped: BaseException) -> None:
        """Goes on where the parser stopped: at an offer, of which there may be any number, or at an error."""
        try:
            while isinstance(stopped, httptools.HttpParserUpgrade):
                unread = unread[stopped.args[0] :]
                if self.scope["method"] == "CONNECT":
                    return self.send_400_response("this server is not a proxy: it has no CONNECT")
                if self._is_handshake():
                    return self._hand_on(bytes(unread))
                self._read_without_offer()
                try:
                    return self.parser.feed_data(unread)
                except httptools.HttpParserUpgrade as offer:
                    stopped = offer
        except httptools.HttpParserError as error:
            stopped = error
        why = stopped.__context__
        self.send_400_response(str(why) if isinstance(why, RefusedHead) else "the request is not HTTP/1.1")

    def on_headers_complete(self) -> None:
        """Refuses what has no Host, and what has several, of which each reader might take another."""
        hosts = 0
        for name, _ in self.headers:
            if name == b"host":
                hosts += 1
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            raise RefusedHead(f"a request must have one Host header; this one has {hosts or 'none'}")
        super().on_headers_complete()
        if self._drains():
            self.end_with_answer()

    def end_with_answer(self) -> None:
        """Closes the connection with its next answer, which says so (`Connection: close`): a caller then
        sends no further request into a connection that is just closing. An answer that has begun is not the
        next one."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def _should_upgrade(self) -> bool:
        """Returns True where uvicorn asks because the parser found an offer, so that uvicorn begins no
        request there."""
        return True

    def _is_handshake(self) -> bool:
        """Returns whether the connection becomes a WebSocket's. A request with a body does not open one, nor
        does a request that comes before the response to the request before."""
        if self.ws_protocol_class is None or not (self.cycle is None or self.cycle.response_complete):
            return False
        offered, bodies = False, False
        for name, value in self.scope["headers"]:
            offered |= name == b"upgrade" and b"websocket" in (
                one.strip() for one in value.lower().split(b",")
            )
            bodies |= name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        plain = (self.scope["method"], self.scope["http_version"]) == ("GET", "1.1")
        return offered and plain and not bodies

    def _hand_on(self, unread: bytes) -> None:
        self.handle_websocket_upgrade()
        taker = cast(asyncio.Protocol, self.transport.get_protocol())
        lost = taker.connection_lost

        def connection_lost(error: Exception | None) -> None:
            self._left()
            lost(error)

        taker.connection_lost = connection_lost  # type: ignore[method-assign,assignment]
        if unread:
            taker.data_received(unread)

    def _read_without_offer(self) -> None:
        """Gives a new parser the same head without its offer: the old one cannot be told to ignore that."""
        scope = self.scope
        lines = [b"%s %s HTTP/%s" % (scope["method"].encode(), self.url, scope["http_version"].encode())]
        lines += [name + b": " + value for name, value in scope["headers"] if name != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's own
        self.parser.feed_data(b"\r\n".join([*lines, b"\r\n"]))

    def send_400_response(self, msg: str) -> None:
        """Answers what cannot be read, and closes. Where a response is due that would be taken for it, no
        answer is sent."""
        if self.cycle is None or self.cycle.response_complete:
            answer = error_answer(BadRequest(msg))
            lines = [b"HTTP/1.1 400 Bad Request", b"content-type: application/json", b"connection: close"]
            lines += [name + b": " + value for name, value in self.server_state.default_headers]
            head = b"\r\n".join([*lines, b"content-length: %d\r\n\r\n" % len(answer.body)])
            self.transport.write(head + answer.body)
        self.transport.close()

    def _head_is_complete(self, timer: asyncio.TimerHandle) -> None:
        timer.cancel()
        self._head_bytes, self._head_timer = 0, None

    def on_chunk_header(self) -> None:
        """Begins a list for trailers: the chunk that begins may be the empty chunk, after which trailers
        come. The parser calls trailers headers, and uvicorn adds them to what `headers` is now."""
        self._head_bytes = 0
        if not self._is_in_trailers():
            self.headers = self.scope["state"][RECEIVED_TRAILERS] = []

    def _is_in_trailers(self) -> bool:
        """Returns whether the parser collects trailers. The scope's headers do not say it: Starlette puts a
        copy there."""
        return self.headers is self.scope["state"].get(RECEIVED_TRAILERS)

    def _limit_trailers(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > TRAILER_BYTES or len(self.headers) > TRAILERS:
            self.transport.close()

    def _send_trailers(self, scope: Scope, trailers: Headers) -> None:
        """Ends a chunked response with them; an empty last piece must follow. They are dropped where the body
        is not chunked, and where its caller has sent the next request already."""
        cycle = self.cycle
        if (
            cycle.scope is scope
            and cycle.chunked_encoding
            and not cycle.disconnected
            and scope["method"] != "HEAD"
        ):
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in trailers)
            self.transport.write(b"0\r\n" + lines + b"\r\n")
            cycle.chunked_encoding, cycle.expected_content_length = False, 0

    def connection_lost(self, exc: Exception | None) -> None:
        self._left()
        self._cut = self.flow.write_paused
        if self._head_timer is not None:
            self._head_is_complete(self._head_timer)
        super().connection_lost(exc)

    async def _wait_written(self) -> bool:
        """Waits until the socket has taken all that was sent; False where the connection broke before."""
        self.transport.set_write_buffer_limits(high=0)  # now paused while a single byte is left
        await self.flow.drain()
        self.transport.set_write_buffer_limits()
        return not self._cut
