"""A request and its response over one connection: both bodies as streams, and neither held in memory.

    caller --receive--> head, body chunks --> worker
    caller <---send---- head, body chunks <-- worker

- A chunk is read when the one before it was taken, so a slow side slows the other.
- A caller that leaves ends the exchange; its connection is closed, which the worker notices.
- The response may end before the request's body does. The connection is then not used again.
- A response that has begun can only be broken off: `began` says so.
- Trailers are passed on both ways.
- What fails is told in words of this module. Those of a parser quote the worker's bytes, which may belong to
  another caller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import h11
from starlette.types import Receive, Scope, Send

from stoker.control.bodies import CallerLeft
from stoker.control.errors import BadRequest, ControlError, TooLarge
from stoker.control.http.calls.answers import RECEIVED_TRAILERS, SEND_TRAILERS
from stoker.control.http.gateway.connections import READ_BYTES, Connection
from stoker.control.http.gateway.headers import Header, framing, has_body, to_caller, trailers
from stoker.control.http.gateway.refusals import Unanswered, UpstreamFailed
from stoker.control.rules.limits import GATEWAY_BYTES

"""The most that a body may have, of requests and of responses."""

READ_ONLY = frozenset({"GET", "HEAD", "OPTIONS"})


class Exchange:
    """The exchange of one request and its response. `began`: the caller has the head of the response. `scope`
    is the request's: its state has the trailers. `prefix` is what the path form puts before the worker's
    path."""

    def __init__(
        self, connection: Connection, scope: Scope, receive: Receive, send: Send, prefix: str = ""
    ) -> None:
        self._connection = connection
        self._http = connection.http
        self._receive, self._send, self._scope = receive, send, scope
        self._prefix = prefix
        self._over: Exception | None = None
        self._received = False
        self.began = False

    async def run(self, request: h11.Request) -> None:
        """Raises UpstreamFailed, TooLarge, BadRequest and CallerLeft."""
        data, declared = self._http.send(request) or b"", dict(request.headers)
        bodiless = not declared.keys() & _FRAMES
        if bodiless:
            data += self._http.send(h11.EndOfMessage()) or b""
        self._connection.writer.write(data)
        length = int(declared[b"content-length"]) if b"content-length" in declared else None
        upload = asyncio.create_task(self._upload(length, bodiless=bodiless), name="body of a request")
        try:
            await self._download()
        except (OSError, h11.ProtocolError) as error:
            raise self._over or self._broken(error, bodiless=bodiless) from None
        finally:
            upload.cancel()
            await asyncio.wait((upload,))

    def _broken(self, error: OSError | h11.ProtocolError, *, bodiless: bool) -> UpstreamFailed:
        """Returns what the end of the worker's connection, or what came over it, means for this request."""
        _, ended = self._http.trailing_data
        if not (ended or isinstance(error, OSError)):
            return self._failed("sent what is not an HTTP response")
        if self._received:
            return self._failed("closed its connection before its response was complete")
        why = "closed its connection without a response"
        if self._connection.kept and bodiless and self._scope["method"] in READ_ONLY:
            return Unanswered(self._connection.worker, why)
        return self._failed(why)

    async def _upload(self, length: int | None, *, bodiless: bool) -> None:
        """Sends the body, and then waits for the caller to leave. What ends the exchange from here closes its
        connection, which ends the download."""
        try:
            with suppress(OSError):  # the worker reads no more: it may have responded
                if not bodiless:
                    await self._send_body(length)
            while (await self._receive())["type"] != "http.disconnect":
                pass
            raise CallerLeft
        except (CallerLeft, ControlError, h11.LocalProtocolError) as over:
            self._over = BadRequest(_NO_BODY) if isinstance(over, h11.ProtocolError) else over
            self._connection.close()

    async def _send_body(self, length: int | None) -> None:
        """Ends with the last byte: the worker may respond before the caller's message is over."""
        writer, size, more = self._connection.writer, 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise CallerLeft
            chunk = message.get("body", b"")
            size += len(chunk)
            more = message.get("more_body", False) and size != length
            if size > GATEWAY_BYTES:
                raise TooLarge(f"the body must be at most {GATEWAY_BYTES} bytes; more was sent")
            data = self._http.send(h11.Data(chunk)) or b"" if chunk else b""
            if not more:
                received = self._scope["state"].get(RECEIVED_TRAILERS, ())
                data += self._http.send(h11.EndOfMessage(headers=trailers(received))) or b""
            writer.write(data)
            await writer.drain()

    async def _download(self) -> None:
        """Passes on the worker's response. What one read brought is passed on at once, however many chunks it
        was."""
        size, chunks = 0, list[bytes]()
        while True:
            match event := self._http.next_event():
                case h11.NEED_DATA:
                    if chunks:
                        await self._pass_on(b"".join(chunks), more=True)
                        chunks.clear()
                        await asyncio.sleep(0)  # neither side may hold up the loop by being always ready
                    received = await self._connection.reader.read(READ_BYTES)
                    self._received = self._received or bool(received)
                    self._http.receive_data(received)
                case h11.Response():
                    await self._begin(event)
                case h11.Data():
                    size += len(event.data)
                    if size > GATEWAY_BYTES:
                        raise self._failed(f"sent a response of over {GATEWAY_BYTES} bytes")
                    chunks.append(bytes(event.data))
                case h11.EndOfMessage():
                    return await self._end(b"".join(chunks), trailers(list(event.headers)))
                case h11.InformationalResponse() if event.status_code != 101:
                    pass
                case _:
                    raise self._failed("sent what is not an HTTP response")

    async def _begin(self, response: h11.Response) -> None:
        headers: list[Header] = list(response.headers)
        if response.status_code > _STATUS_MAX:
            raise self._failed(f"responded with status {response.status_code}")
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(declared) > GATEWAY_BYTES:
            raise self._failed(f"sent a response of over {GATEWAY_BYTES} bytes")
        if not has_body(self._scope["method"].encode(), response.status_code):
            self._connection.once = True
        passed = to_caller(headers, self._connection.worker, response.status_code, self._prefix)
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": passed})
        self.began = True

    async def _pass_on(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _end(self, data: bytes, sent: Sequence[Header]) -> None:
        """Passes on the last chunk, and the trailers that the worker sent."""
        if not sent:
            return await self._pass_on(data, more=False)
        if data:
            await self._pass_on(data, more=True)
        self._scope["state"][SEND_TRAILERS](self._scope, sent)
        await self._pass_on(b"", more=False)

    def _failed(self, why: str) -> UpstreamFailed:
        return UpstreamFailed(self._connection.worker, why)


def request_of(
    method: str, target: bytes, headers: Sequence[Header], framed: Sequence[Header]
) -> h11.Request:
    """Returns the head of the request to the worker. `framed` are the headers as they came from the caller.
    Raises BadRequest and TooLarge."""
    declared = next((value for name, value in framed if name == b"content-length"), b"0")
    if not declared.isdigit() or len(declared) > _LENGTH_DIGITS or int(declared) > GATEWAY_BYTES:
        raise TooLarge(f"the body must be at most {GATEWAY_BYTES} bytes")
    try:
        return h11.Request(method=method, target=target, headers=[*headers, *framing(framed)])
    except h11.LocalProtocolError:
        raise BadRequest(_no_request(headers)) from None


def _no_request(headers: Sequence[Header]) -> str:
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts != 1:
        return f"a request must have one Host header, with the name that it was sent to; this one has {hosts}"
    return (
        "the request cannot be passed on: its method, its path or one of its headers has what HTTP/1.1 does"
        " not allow there, such as control characters, or headers contradict each other"
    )


_FRAMES = frozenset({b"content-length", b"transfer-encoding"})
_NO_BODY = "the body is not as long as its Content-Length, or its trailers have what HTTP/1.1 does not allow"
_LENGTH_DIGITS = 20
_STATUS_MAX = 599
