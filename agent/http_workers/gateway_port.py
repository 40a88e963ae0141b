"""The node's gateway port: connections from control to the http workers of this node.

    control --CONNECT worker, with this agent's token--> here --> 127.0.0.1:$PORT of the worker
            <--200-- and then bytes both ways, until either side closes

- Whoever has not this agent's token gets 401 and no connection. The token is drawn at each start, and only
  control is told it.
- It speaks in the clear, so it listens on loopback only: for a control on the same host.
- A connection that one side closes is closed at the other: a worker hears at once that its caller left.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from contextlib import suppress

from stoker.agent.http_workers.worker_ports import LOOPBACK, WorkerPorts
from stoker.wire.messages import GatewayAddress

HEAD_S = 10.0
"""How long the CONNECT of a caller may take."""

CONNECT_S = 5.0
COPY_BYTES = 64 * 1024

OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


class ConnectRefused(Exception):
    """The status line of the response."""


class GatewayPort:
    """`open` listens; `close` ends every connection."""

    def __init__(self, ports: WorkerPorts) -> None:
        self._ports = ports
        self._token = secrets.token_urlsafe(32)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server

    async def open(self) -> GatewayAddress:
        """Returns how control reaches it. Raises OSError."""
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0, limit=COPY_BYTES)
        return GatewayAddress(self._server.sockets[0].getsockname()[1], self._token)

    async def close(self) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer), name="connection to an http worker")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                worker = self._worker(await reader.readuntil(b"\r\n\r\n"))
            await self._relay(worker, reader, writer)
        except ConnectRefused as refused:
            writer.write(f"HTTP/1.1 {refused}\r\nContent-Length: 0\r\n\r\n".encode())
            with suppress(OSError):
                await writer.drain()
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the caller left, was too slow (TimeoutError is an OSError), or sent no head
        finally:
            writer.close()

    def _worker(self, head: bytes) -> str:
        """The worker that a head names. Raises ConnectRefused."""
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        token = fields.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise ConnectRefused("401 Unauthorized")
        method, _, worker = first.partition(" ")
        if method != "CONNECT":
            raise ConnectRefused("405 Method Not Allowed")
        return worker.partition(" ")[0]

    async def _relay(self, worker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ConnectRefused where the worker cannot be reached."""
        port = self._ports.of(worker)
        if port is None:
            raise ConnectRefused("404 Not Found")
        try:
            async with asyncio.timeout(CONNECT_S):
                from_worker, to_worker = await asyncio.open_connection(LOOPBACK, port, limit=COPY_BYTES)
        except OSError:
            raise ConnectRefused("502 Bad GatewayAddress") from None
        with self._ports.connected(worker, to_worker):
            writer.write(OPEN)
            try:
                async with asyncio.TaskGroup() as copies:
                    copies.create_task(_copy(reader, to_worker, writer))
                    copies.create_task(_copy(from_worker, writer, to_worker))
            finally:
                to_worker.close()


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
    """Copies until the source ends, and then closes both connections: the other copy ends, too."""
    with suppress(OSError):
        while data := await source.read(COPY_BYTES):
            to.write(data)
            await to.drain()
    to.close()
    back.close()
