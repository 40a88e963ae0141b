"""Connections to http workers, by way of the gateway port of their node.

    connect ──CONNECT worker──> 200 ──> Connection ──give_back──> idle ──connect──> used again
                  └─ anything else ──> UpstreamFailed               └── IDLE_S ──> closed

Nothing is sent twice, so a connection is kept for a shorter time than servers keep theirs: one that the
worker is just closing would fail a request that reached nobody.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import h11

from stoker.control.gateway.refusals import UpstreamFailed
from stoker.control.rules.hello import NodeGateway

CONNECT_S = 10.0
IDLE_S = 1.0
READ_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""The most that the head of a worker's response may take."""


Dial: TypeAlias = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def dial(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host, port, limit=READ_BYTES)


@dataclass(slots=True, eq=False)
class Connection:
    """`http` is the state of the exchange; in a tunnel of bytes it is not used."""

    worker: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection
    expires: asyncio.TimerHandle | None = None

    @property
    def usable(self) -> bool:
        """Whether the worker has not closed it, nor sent what nobody asked for."""
        return not (self.writer.is_closing() or self.reader.at_eof() or self.reader._buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        self.writer.transport.abort()


class Connections:
    """`gateway_of` returns how the node of a worker is reached now; None where it is not. `dial` opens a
    connection to an address, as asyncio does."""

    def __init__(self, gateway_of: Callable[[str], NodeGateway | None], dial: Dial) -> None:
        self._gateway_of = gateway_of
        self._dial = dial
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)

    async def connect(self, worker: str) -> Connection:
        """A connection that nobody else uses. Raises UpstreamFailed."""
        while idle := self._idle.get(worker):
            connection = idle.pop()
            assert connection.expires is not None
            connection.expires.cancel()
            if connection.usable:
                return connection
            connection.close()
        return await self._new(worker)

    def give_back(self, connection: Connection) -> None:
        """Keeps it for the next request, if its exchange is complete; closes it otherwise."""
        try:
            connection.http.start_next_cycle()
        except h11.ProtocolError:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        connection.expires = loop.call_later(IDLE_S, self._expire, connection)
        self._idle[connection.worker].append(connection)

    def close(self) -> None:
        for idle in self._idle.values():
            for connection in idle:
                if connection.expires is not None:
                    connection.expires.cancel()
                connection.close()
        self._idle.clear()

    def _expire(self, connection: Connection) -> None:
        connection.close()
        idle = self._idle[connection.worker]
        idle.remove(connection)
        if not idle:
            del self._idle[connection.worker]

    async def _new(self, worker: str) -> Connection:
        gateway = self._gateway_of(worker)
        if gateway is None:
            raise UpstreamFailed(worker, "cannot be reached: its node is gone")
        try:
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await self._dial(gateway.host, gateway.port)
                try:
                    await _tunnel(worker, gateway, reader, writer)
                except BaseException:
                    writer.transport.abort()
                    raise
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            why = str(error) or f"no connection within {CONNECT_S:g} s"
            raise UpstreamFailed(worker, f"cannot be reached: {why}") from None
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        return Connection(worker, reader, writer, http)


async def _tunnel(
    worker: str, gateway: NodeGateway, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Opens a tunnel to the worker. Raises UpstreamFailed where its node refuses."""
    writer.write(f"CONNECT {worker} HTTP/1.1\r\nAuthorization: Bearer {gateway.token}\r\n\r\n".encode())
    status = (await reader.readuntil(b"\r\n\r\n"))[9:12]
    if status != b"200":
        why = _WHY.get(status, f"its node answered {status.decode('latin-1')}")
        raise UpstreamFailed(worker, f"cannot be reached: {why}")
    with suppress(OSError):
        await writer.drain()


_WHY = {b"404": "it has ended, or is just ending", b"502": "its server takes no connection"}
