"""WebSockets of load-balancing endpoints: the handshake is passed on, and then bytes both ways as they are.

    server ──connection with a request to upgrade──> head read ──admitted, a worker chosen──> tunnel
                                                         └── no ──> a response, and the end

Frames, extensions and subprotocols are between the caller and the worker: nothing here reads them. An open
WebSocket counts as a request of its worker. It has no limit of time or size; it ends when either side closes,
when its worker ends, or when this server stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
from starlette.types import Message

from stoker.control.api.answers import Answer, stopping, unexpected
from stoker.control.api.calls import CallerLeft
from stoker.control.errors import ControlError, NotFound
from stoker.control.gateway.connections import HEAD_BYTES, READ_BYTES, Connection
from stoker.control.gateway.gateway import EXCHANGE_S, Gateway, Incoming, affinity_of, late, refusal
from stoker.control.gateway.headers import WORKER_ID, CallerFacts, Header, to_worker
from stoker.control.gateway.refusals import GatewayError, UpstreamFailed

_UPGRADE: list[Header] = [(b"connection", b"Upgrade"), (b"upgrade", b"websocket")]


class Upgrades:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def protocol(self, config: Any, server_state: Any, app_state: Any) -> asyncio.StreamReaderProtocol:
        """What uvicorn hands a connection to."""
        connected = partial(self.serve, config, server_state)
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(READ_BYTES), connected)

    def serve(
        self, config: Any, server_state: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """The connection's task is one of the server's, which ends it when the server stops."""
        caller = _Caller(self._gateway, reader, writer, proxied=config.proxy_headers)
        task = asyncio.create_task(caller.run(), name="WebSocket")
        server_state.tasks.add(task)
        task.add_done_callback(server_state.tasks.discard)


class _Caller:
    """One connection. `proxied`: a proxy in front says who the caller is. `begun`: the caller has a response,
    or the start of one."""

    def __init__(
        self, gateway: Gateway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, proxied: bool
    ) -> None:
        self._gateway = gateway
        self._reader = reader
        self._writer = writer
        self._proxied = proxied
        self._begun = False

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
        endpoint = await gateway.admit(target, "WebSocket", dict(headers))
        passed = [*to_worker(headers, self._facts(headers, target.prefix)), *_UPGRADE]
        incoming = Incoming(self._receive)
        async with gateway.reached(endpoint, affinity_of(dict(headers)), incoming) as connection:
            connection.writer.write(_head(b"GET " + target.path + mark + query + b" HTTP/1.1", passed))
            await self._tunnel(connection)

    async def _request(self) -> h11.Request:
        """The server has read it, and checked that it is one."""
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        while (request := http.next_event()) is h11.NEED_DATA:
            http.receive_data(await self._reader.read(READ_BYTES))
        if not isinstance(request, h11.Request):
            raise CallerLeft
        return request

    async def _receive(self) -> Message:
        """The caller may send nothing before the handshake is complete, so that it sends ends it, too."""
        await self._reader.read(1)
        return {"type": "http.disconnect"}

    def _facts(self, headers: Sequence[Header], prefix: str) -> CallerFacts:
        address = (self._writer.get_extra_info("peername") or ("",))[0]
        scheme = "http" if self._writer.get_extra_info("sslcontext") is None else "https"
        if self._proxied:
            told = dict(headers)
            address = (
                told.get(b"x-forwarded-for", b"").decode("latin-1").rpartition(",")[2].strip() or address
            )
            scheme = told.get(b"x-forwarded-proto", b"").decode("latin-1") or scheme
        return CallerFacts(address, scheme, prefix)

    async def _tunnel(self, connection: Connection) -> None:
        """The worker's response, and then bytes both ways."""
        try:
            async with asyncio.timeout(EXCHANGE_S):
                head = await connection.reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            raise late(connection.worker) from None
        except (OSError, EOFError, asyncio.LimitOverrunError):
            raise UpstreamFailed(connection.worker, "did not answer the handshake") from None
        self._begun = True
        self._writer.write(head[:-2] + WORKER_ID + b": " + connection.worker.encode() + b"\r\n\r\n")
        async with asyncio.TaskGroup() as copies:
            copies.create_task(_copy(self._reader, connection.writer, self._writer))
            copies.create_task(_copy(connection.reader, self._writer, connection.writer))

    def _answer(self, answer: Answer) -> None:
        if not self._begun:
            fixed = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer.body))]
            line = f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}".encode()
            self._writer.write(
                _head(line, [*fixed, *answer.headers, (b"connection", b"close")]) + answer.body
            )


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
    """Copies until the source ends, and then closes both connections: the other copy ends, too."""
    with suppress(OSError):
        while data := await source.read(READ_BYTES):
            to.write(data)
            await to.drain()
    to.close()
    back.close()


def _head(line: bytes, headers: Sequence[Header]) -> bytes:
    return line + b"\r\n" + b"".join(name + b": " + value + b"\r\n" for name, value in headers) + b"\r\n"
