"""Connections to http workers, kept for the next request for a moment.

    connect ──a new one──> Connection ──give_back──> idle ──connect──> used again
                                                       └── IDLE_S ──> closed

Little is sent twice, so a connection is kept for a shorter time than servers keep theirs: one that the worker
is just closing would fail a request that reached no worker.

What a worker sends beyond the end of a response would be taken for the next one, another caller's. So a
connection with such bytes is closed, and so is one after a response that has no body by its kind: a server
that sends one nevertheless may be still about to.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import h11
from msgspec import Struct

IDLE_S = 1.0
READ_BYTES = 64 * 1024
HEAD_BYTES = 64 * 1024
"""The most that the head of a worker's response may take."""


Open: TypeAlias = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class Connection(Struct, eq=False):
    """A connection to a worker. `http` is the state of the exchange; in a tunnel of bytes it is not used.
    `kept`: another request had it before. `once`: no other request may have it."""

    worker: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    http: h11.Connection
    expires: asyncio.TimerHandle | None = None
    kept: bool = False
    once: bool = False

    @property
    def usable(self) -> bool:
        """True if the connection may be used again: the worker has not closed it, nor sent anything
        unrequested."""
        surplus, ended = self.http.trailing_data
        if surplus or ended or self.once:
            return False
        return not (self.writer.is_closing() or self.reader.at_eof() or self.reader._buffer)  # type: ignore[attr-defined]

    def close(self) -> None:
        self.writer.transport.abort()


class Connections:
    """The connections to workers. `open_new` opens a connection to a worker, or raises UpstreamFailed."""

    def __init__(self, open_new: Open) -> None:
        self._open = open_new
        self._idle: defaultdict[str, list[Connection]] = defaultdict(list)

    async def connect(self, worker: str, *, new: bool = False) -> Connection:
        """Returns a connection that no other request uses. With `new`, no request has used the connection
        before. Raises UpstreamFailed."""
        while not new and (idle := self._idle.get(worker)):
            connection = idle.pop()
            assert connection.expires is not None
            connection.expires.cancel()
            if connection.usable:
                connection.kept = True
                return connection
            connection.close()
        return await self._new(worker)

    def give_back(self, connection: Connection) -> None:
        """Keeps it for the next request, if its exchange is complete; closes it otherwise."""
        try:
            connection.http.start_next_cycle()
        except h11.ProtocolError:
            connection.once = True
        if not connection.usable:
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
        reader, writer = await self._open(worker)
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
        return Connection(worker, reader, writer, http)
