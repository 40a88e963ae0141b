"""The end of a tunnel over a stream: its connections as asyncio's readers and writers.

    writer.write ──> Multiplexer ──sender task──> stream ══> the other end ──> Multiplexer ──> reader

How a connection behaves is described in `wire.tunnel.connection`. The end of the stream resets all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from stoker.wire.messages import TunnelPieces
from stoker.wire.streams import StreamEnded, TunnelStream
from stoker.wire.tunnel.connection import Connection
from stoker.wire.tunnel.multiplexer import Closed, Event, Multiplexer, Opened, Received, TunnelBroken

log = logging.getLogger(__name__)

READER_BYTES = 64 * 1024
"""A reader that holds twice as much unread takes no more from its connection."""

MESSAGE_BYTES = 128 * 1024
"""The data of one message, roughly."""

STREAM_BYTES = 256 * 1024
"""Bytes that wait in the tunnel's stream in each direction, in addition to what its connections hold."""

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]


class Tunnel:
    """A tunnel over one stream. `accept` is called with each connection that the other end opens; without it,
    this end opens them. `run` must be running for anything to move."""

    def __init__(self, stream: TunnelStream, accept: Accept | None = None) -> None:
        self._stream = stream
        self._accept = accept
        self._multiplexer = Multiplexer(opens=accept is None)
        self._transports: dict[int, Connection] = {}
        self._written = asyncio.Event()
        self._over = False

    def connect(self) -> Pair:
        """Opens a new connection. Raises OSError where the tunnel has ended, and TooManyConnections."""
        if self._over:
            raise ConnectionResetError("the tunnel has ended")
        return self._pair(self._multiplexer.open())

    async def run(self) -> NoReturn:
        """Raises StreamEnded when the stream has ended; every connection has ended then, too."""
        sending = asyncio.create_task(self._send(), name="send through a tunnel")
        try:
            await self._receive()
        finally:
            self._over = True
            for transport in list(self._transports.values()):
                transport.lost(ConnectionResetError("the tunnel ended"))
            self._transports.clear()
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _pair(self, connection: int) -> Pair:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(READER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport = Connection(self._multiplexer, connection, protocol, self._written.set, self._forget)
        self._transports[connection] = transport
        protocol.connection_made(transport)
        self._written.set()
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def _forget(self, connection: int) -> None:
        self._transports.pop(connection, None)

    # -- the stream

    async def _send(self) -> None:
        multiplexer = self._multiplexer
        try:
            while True:
                await self._written.wait()
                self._written.clear()
                while pieces := multiplexer.take(MESSAGE_BYTES):
                    await self._stream.send(TunnelPieces(None, pieces))
                    for connection in {piece.connection for piece in pieces}:
                        if (transport := self._transports.get(connection)) is not None:
                            transport.sent()
        except StreamEnded:
            return  # the receiving half says why
        except Exception:
            log.exception("a tunnel failed")
            self._stream.end("the tunnel failed")

    async def _receive(self) -> NoReturn:
        multiplexer = self._multiplexer
        while True:
            for message in await self._stream.receive_all():
                for piece in message.pieces:
                    try:
                        events = multiplexer.received(piece)
                    except TunnelBroken as error:
                        self._stream.end(f"the other end of the tunnel broke its protocol: {error}")
                        raise StreamEnded(str(error)) from None
                    for event in events:
                        self._on(event)
            if multiplexer.sendable:
                self._written.set()
            await asyncio.sleep(0)  # a tunnel that is always full must not hold up the loop

    def _on(self, event: Event) -> None:
        match event:
            case Opened(connection):
                assert self._accept is not None
                self._accept(*self._pair(connection))
            case Received(connection, data):
                self._transports[connection].received(data)
            case Closed(connection, reset):
                if (transport := self._transports.pop(connection, None)) is not None:
                    transport.ended(reset=reset)
