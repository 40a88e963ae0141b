"""WebSockets of load-balancing endpoints: the handshake is passed on, and then bytes both ways as they are.

    server ──connection with a request to upgrade──> head read ──admitted, a worker chosen──> 101 ──> tunnel
                                                         └── no ──> a response, and the end <── other ──┘

Frames, extensions and subprotocols are between the caller and the worker: nothing here reads them. Only a
worker that answers 101 gets a tunnel: behind any other answer, a proxy or client that keeps the connection
would send its next request, with its key, to the worker. An open WebSocket counts as a request of its worker.
It has no limit of time or size; it ends when either side closes, vanishes or takes nothing for STUCK_S, when
its worker or its caller's key ends, or when this server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Message

from stoker.control.bodies import CallerLeft
from stoker.control.errors import BadRequest, ControlError, NotFound
from stoker.control.http.calls.answers import Answer, stopping, unexpected
from stoker.control.http.gateway.connections import HEAD_BYTES, READ_BYTES, Connection
from stoker.control.http.gateway.exchange import request_of
from stoker.control.http.gateway.gateway import EXCHANGE_S, Gateway, Incoming, affinity_of, late, refusal
from stoker.control.http.gateway.headers import (
    CallerFacts,
    Header,
    has_body,
    to_caller,
    to_switched,
    to_worker,
)
from stoker.control.http.gateway.refusals import GatewayError, UpstreamFailed
from stoker.control.http.server.forwarded import Proxies
from stoker.outbound.keepalive import find_vanished

STUCK_S = 60.0
"""How long a side may take nothing before the connection is closed."""

DECLINED_BYTES = 1024 * 1024
"""The most that the body of an answer other than 101 may have."""

_UPGRADE: list[Header] = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


class Upgrades:
    """The connections that became tunnels of bytes. `proxies` are those in front, which name the caller."""

    def __init__(self, gateway: Gateway, proxies: Proxies | None = None) -> None:
        self._gateway = gateway
        self._proxies = proxies

    def protocol(self, config: Any, server_state: Any, app_state: Any) -> asyncio.StreamReaderProtocol:
        """Returns the protocol to which uvicorn hands a connection."""
        connected = partial(self.serve, server_state)
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(READ_BYTES), connected)

    def serve(self, server_state: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves a connection in a task that belongs to the server, which ends the task when the server
        stops."""
        caller = _Caller(self._gateway, self._proxies, reader, writer)
        task = asyncio.create_task(caller.run(), name="WebSocket")
        server_state.tasks.add(task)
        task.add_done_callback(server_state.tasks.discard)


class _Caller:
    """The connection of a caller. `begun`: the caller has a response, or the start of a response."""

    def __init__(
        self,
        gateway: Gateway,
        proxies: Proxies | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._gateway, self._proxies, self._reader = gateway, proxies, reader
        self._writer = writer
        self._begun = False
        find_vanished(writer.get_extra_info("socket"))

    async def run(self) -> None:
        try:
            await self._serve()
        except (CallerLeft, OSError, EOFError):
            pass
        except (GatewayError, ControlError) as error:
            self._answer(refusal(error))
        except asyncio.CancelledError:
            self._answer(stopping())
        except Exception as error:
            self._answer(unexpected(error))
        finally:
            self._writer.close()

    async def _serve(self) -> None:
        gateway = self._gateway
        request = await self._request()
        headers: list[Header] = list(request.headers)
        path, mark, query = bytes(request.target).partition(b"?")
        target = gateway.target(path, dict(headers))
        if target is None:
            raise NotFound(
                "there is no load-balancing endpoint at this path, and nothing else has WebSockets"
            )
        endpoint, whose = await gateway.admit(target, "WebSocket", dict(headers))
        passed = [*to_worker(headers, self._facts(headers, target.prefix)), *_UPGRADE]
        incoming = Incoming(self._receive, whose)
        head = request_of("GET", target.path + mark + query, passed, [])
        async with (
            gateway.while_valid(endpoint, "WebSocket", dict(headers)),
            gateway.reached(endpoint, affinity_of(dict(headers)), incoming, new=True) as connection,
        ):
            connection.writer.write(connection.http.send(head) or b"")
            connection.writer.write(connection.http.send(h11.EndOfMessage()) or b"")
            try:
                async with asyncio.timeout(EXCHANGE_S):
                    accepted = await self._handshake(connection, target.prefix)
            except TimeoutError:
                raise late(connection.worker, EXCHANGE_S) from None
            except (OSError, h11.ProtocolError):
                raise UpstreamFailed(connection.worker, "did not answer the handshake") from None
            if accepted is not None:
                await self._tunnel(connection, accepted, target.prefix)

    async def _request(self) -> h11.Request:
        """Returns the request. The server has read it, and checked that it is a request; this parser refuses
        more. Raises BadRequest."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            while (request := http.next_event()) is h11.NEED_DATA:
                http.receive_data(await self._reader.read(READ_BYTES))
        except h11.RemoteProtocolError:
            raise BadRequest("the handshake is not a valid HTTP/1.1 request with one Host header") from None
        if not isinstance(request, h11.Request):
            raise CallerLeft
        return request

    async def _receive(self) -> Message:
        """Returns a disconnect when the caller leaves or sends: nothing may be sent before the handshake is
        complete, so sending ends the handshake, too."""
        await self._reader.read(1)
        return {"type": "http.disconnect"}

    def _facts(self, headers: Sequence[Header], prefix: str) -> CallerFacts:
        address = (self._writer.get_extra_info("peername") or ("",))[0]
        scheme = "http" if self._writer.get_extra_info("sslcontext") is None else "https"
        if self._proxies is not None:
            address = self._proxies.caller(headers, address)
            scheme = self._proxies.scheme(headers, scheme)
        return CallerFacts(address, scheme, prefix)

    async def _handshake(self, connection: Connection, prefix: str) -> h11.InformationalResponse | None:
        """Returns the worker's 101; None where the worker declined, and its response was sent to the
        caller."""
        declined, body = h11.Response(status_code=502, headers=[]), bytearray()
        while True:
            match event := connection.http.next_event():
                case h11.NEED_DATA:
                    connection.http.receive_data(await connection.reader.read(READ_BYTES))
                case h11.InformationalResponse():
                    if event.status_code == 101:
                        return event
                case h11.Response():
                    declined = event
                case h11.Data():
                    body += event.data
                    if len(body) > DECLINED_BYTES:
                        raise UpstreamFailed(
                            connection.worker, f"declined the WebSocket with over {DECLINED_BYTES} bytes"
                        )
                case _:
                    self._decline(connection.worker, declined, bytes(body), prefix)
                    return None

    def _decline(self, worker: str, response: h11.Response, body: bytes, prefix: str) -> None:
        """Passes the worker's answer on, whole, and ends the connection to the caller."""
        self._begun = True
        status = response.status_code
        passed = to_caller(list(response.headers), worker, status, prefix)
        framed = [header for header in passed if header[0] != b"content-length"]
        if has_body(b"GET", status):
            framed.append((b"content-length", b"%d" % len(body)))
        framed.append((b"connection", b"close"))
        line = b"HTTP/1.1 %d %s" % (status, response.reason)
        self._writer.write(_head(line, framed) + body)

    async def _tunnel(self, connection: Connection, accepted: h11.InformationalResponse, prefix: str) -> None:
        """Sends the worker's 101, and then copies bytes both ways."""
        self._begun = True
        headers = to_switched(list(accepted.headers), connection.worker, prefix)
        first, _ = connection.http.trailing_data
        self._writer.write(_head(b"HTTP/1.1 101 Switching Protocols", headers) + first)
        async with asyncio.TaskGroup() as copies:
            copies.create_task(_copy(self._reader, connection.writer, self._writer))
            copies.create_task(_copy(connection.reader, self._writer, connection.writer))

    def _answer(self, answer: Answer) -> None:
        if not self._begun:
            fixed = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body))]
            line = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}".encode()
            self._writer.write(_head(line, [*fixed, *answer.more, (b"connection", b"close")]) + answer.body)


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
    """Copies until the source ends, and then closes both connections: the other copy ends, too. One that
    takes nothing any more is not waited for, nor is what it left flushed."""
    try:
        while data := await source.read(READ_BYTES):
            to.write(data)
            async with asyncio.timeout(STUCK_S):
                await to.drain()
    except TimeoutError:
        to.transport.abort()
        back.transport.abort()
    except OSError:
        pass
    to.close()
    back.close()


def _head(line: bytes, headers: Sequence[Header]) -> bytes:
    return line + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"
