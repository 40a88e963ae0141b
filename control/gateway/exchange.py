"""One request and its response over one connection: both bodies as streams, and neither held in memory.

    caller --receive--> head, body chunks --> worker
    caller <---send---- head, body chunks <-- worker

- A chunk is read when the one before it was taken, so a slow side slows the other.
- A caller that leaves ends the exchange; its connection is closed, which the worker notices.
- The response may end before the request's body does. The connection is then not used again.
- A response that has begun can only be broken off: `began` says so.
- Trailers are passed on both ways.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import h11
from starlette.types import Receive, Scope, Send

from stoker.control.api.answers import RECEIVED_TRAILERS, SEND_TRAILERS
from stoker.control.api.calls import CallerLeft
from stoker.control.errors import BadRequest, ControlError, TooLarge
from stoker.control.gateway.connections import READ_BYTES, Connection
from stoker.control.gateway.headers import Header, framing, to_caller, trailers
from stoker.control.gateway.refusals import UpstreamFailed

BODY_BYTES = 30 * 1024 * 1024
"""The most that a body may have, of requests and of responses."""


class Exchange:
    """`began`: the caller has the head of the response. `scope` is the request's: its state has the
    trailers."""

    def __init__(self, connection: Connection, scope: Scope, receive: Receive, send: Send) -> None:
        self._connection = connection
        self._http = connection.http
        self._receive = receive
        self._send = send
        self._scope = scope
        self._over: Exception | None = None
        self.began = False

    async def run(self, request: h11.Request) -> None:
        """Raises UpstreamFailed, TooLarge, BadRequest and CallerLeft."""
        try:
            head = self._http.send(request)
        except h11.LocalProtocolError as error:
            raise BadRequest(f"the request cannot be passed on: {error}") from None
        self._connection.writer.write(head or b"")
        declared = dict(request.headers).get(b"content-length")
        length = None if declared is None else int(declared)
        upload = asyncio.create_task(self._upload(length), name="body of a request")
        try:
            await self._download()
        except (OSError, h11.ProtocolError) as error:
            why = "its connection broke" if isinstance(error, OSError) else str(error)
            raise self._over or self._failed(f"did not finish its response: {why}") from None
        finally:
            upload.cancel()
            await asyncio.wait((upload,))

    async def _upload(self, length: int | None) -> None:
        """Sends the body, and then waits for the caller to leave. What ends the exchange from here closes its
        connection, which ends the download."""
        try:
            with suppress(OSError):  # the worker reads no more: it may have responded
                await self._send_body(length)
            while (await self._receive())["type"] != "http.disconnect":
                pass
            raise CallerLeft
        except (CallerLeft, ControlError, h11.LocalProtocolError) as over:
            self._over = over if not isinstance(over, h11.ProtocolError) else BadRequest(str(over))
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
            if size > BODY_BYTES:
                raise TooLarge(f"the body must be at most {BODY_BYTES} bytes; more was sent")
            data = self._http.send(h11.Data(chunk)) or b"" if chunk else b""
            if not more:
                received = self._scope["state"].get(RECEIVED_TRAILERS, ())
                data += self._http.send(h11.EndOfMessage(headers=trailers(received))) or b""
            writer.write(data)
            await writer.drain()

    async def _download(self) -> None:
        """What one read brought is passed on at once, however many chunks it was."""
        size, chunks = 0, list[bytes]()
        while True:
            match event := self._http.next_event():
                case h11.NEED_DATA:
                    if chunks:
                        await self._pass_on(b"".join(chunks), more=True)
                        chunks.clear()
                        await asyncio.sleep(0)  # neither side may hold up the loop by being always ready
                    self._http.receive_data(await self._connection.reader.read(READ_BYTES))
                case h11.Response():
                    await self._begin(event)
                case h11.Data():
                    size += len(event.data)
                    if size > BODY_BYTES:
                        raise self._failed(f"sent a response of over {BODY_BYTES} bytes")
                    chunks.append(bytes(event.data))
                case h11.EndOfMessage():
                    return await self._end(b"".join(chunks), trailers(list(event.headers)))
                case h11.InformationalResponse() if event.status_code != 101:
                    pass
                case _:
                    raise self._failed("sent what is no response")

    async def _begin(self, response: h11.Response) -> None:
        headers: list[Header] = list(response.headers)
        if response.status_code > _STATUS_MAX:
            raise self._failed(f"responded with status {response.status_code}")
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(declared) > BODY_BYTES:
            raise self._failed(f"sent a response of over {BODY_BYTES} bytes")
        passed = to_caller(headers, self._connection.worker)
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": passed})
        self.began = True

    async def _pass_on(self, data: bytes, *, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _end(self, data: bytes, sent: Sequence[Header]) -> None:
        """The last chunk, and the trailers that the worker sent."""
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
    """`framed` are the headers as they came from the caller. Raises BadRequest and TooLarge."""
    declared = next((value for name, value in framed if name == b"content-length"), b"0")
    if not declared.isdigit() or len(declared) > _LENGTH_DIGITS or int(declared) > BODY_BYTES:
        raise TooLarge(f"the body must be at most {BODY_BYTES} bytes")
    try:
        return h11.Request(method=method, target=target, headers=[*headers, *framing(framed)])
    except h11.LocalProtocolError as error:
        raise BadRequest(f"the request cannot be passed on: {error}") from None


_LENGTH_DIGITS = 20
_STATUS_MAX = 599
