"""Passes connections from control on to the http workers of this node.

    control --CONNECT worker--> here --> 127.0.0.1:$PORT of the worker
            <--200-- and then bytes both ways, until either side closes

- Connections come by a gateway port (`agent.http_workers.gateway_port`), where each must prove that it is
  control's, or through the tunnel (`agent.http_workers.tunnel`), which only control has.
- Only the worker's own server gets one: the listener is checked first (`agent.http_workers.listeners`).
- A connection that one side closes is closed at the other: a worker hears at once that its caller left.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress

from stoker.agent.http_workers.listeners import FOREIGN
from stoker.agent.http_workers.worker_ports import LOOPBACK, WorkerPorts

log = logging.getLogger(__name__)

HEAD_S = 10.0
"""How long the CONNECT of a caller may take."""

CONNECT_S = 2.0
"""How long a worker's server may take to accept: control then hears that it does not, and does not take the
way to this node for a broken one (`FALL_BACK_S` in control.gateway.reaching)."""

STUCK_S = 360.0
"""How long a side may take nothing before the connection is closed. Control waits for a request for a shorter
time."""

COPY_BYTES = 64 * 1024

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Unproven(Exception):
    """The connection did not bring the token."""


class ConnectRefused(Exception):
    """The status line of the response."""


class Relay:
    """`close` ends every connection."""

    def __init__(self, ports: WorkerPorts) -> None:
        self._ports = ports
        self._connections: set[asyncio.Task[None]] = set()

    def begin(self, serving: Coroutine[None, None, None]) -> None:
        """One connection, which ends by itself."""
        connection = asyncio.create_task(serving, name="connection to an http worker")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def close(self) -> None:
        for connection in list(self._connections):
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        token: str | None = None,
        proven: Callable[[], None] = lambda: None,
    ) -> None:
        """A connection, from its CONNECT to its end. Where there is a `token`, it must bring that: `proven`
        is called when it did, and Unproven is raised otherwise."""
        try:
            worker = await self._worker(reader, token)
            proven()
            await self._relay(worker, reader, writer)
        except ConnectRefused as refused:
            await _answer(writer, str(refused))
        except Unproven:
            await _answer(writer, "401 Unauthorized")
            raise
        except (OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the caller left, was too slow (TimeoutError is an OSError), or sent no head
        finally:
            writer.close()

    async def _worker(self, reader: asyncio.StreamReader, token: str | None) -> str:
        """The worker that the connection names. Raises Unproven and ConnectRefused."""
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        if token is not None:
            fields = {name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
            brought = fields.get("authorization", "").removeprefix("Bearer ")
            if not hmac.compare_digest(brought.encode(), token.encode()):
                raise Unproven
        method, _, worker = first.partition(" ")
        if method != "CONNECT":
            raise ConnectRefused("405 Method Not Allowed")
        return worker.partition(" ")[0]

    async def _relay(self, worker: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Raises ConnectRefused where the worker cannot be reached."""
        port = self._ports.of(worker)
        if port is None:
            raise ConnectRefused("404 Not Found")
        from_worker, to_worker = await self._connect(worker, port)
        with self._ports.connected(worker, to_worker):
            writer.write(OPEN)
            try:
                async with asyncio.TaskGroup() as copies:
                    copies.create_task(_copy(reader, to_worker, writer))
                    copies.create_task(_copy(from_worker, writer, to_worker))
            finally:
                to_worker.close()

    async def _connect(self, worker: str, port: int) -> Pair:
        """The process that accepted the connection has read nothing of it when it is inspected. Meanwhile the
        worker may have ended, and another have got its port."""
        try:
            async with asyncio.timeout(CONNECT_S):
                pair = await asyncio.open_connection(LOOPBACK, port, limit=COPY_BYTES)
        except OSError:
            raise ConnectRefused("502 Bad Gateway") from None
        try:
            if await self._ports.foreign(worker, port, connected=True):
                log.warning("worker %s gets no connection: %s", worker, FOREIGN.format(port=port))
                raise ConnectRefused("502 Bad Gateway")
            if self._ports.of(worker) != port:
                raise ConnectRefused("404 Not Found")
        except BaseException:
            pair[1].transport.abort()
            raise
        return pair


async def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    with suppress(OSError):
        await writer.drain()


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
    """Copies until the source ends, and then closes both connections: the other copy ends, too. What was
    copied is flushed, for STUCK_S at most: a worker that hangs must not keep what its callers left."""
    try:
        while data := await source.read(COPY_BYTES):
            to.write(data)
            async with asyncio.timeout(STUCK_S):
                await to.drain()
        to.close()
        back.close()
        async with asyncio.timeout(STUCK_S):
            await to.wait_closed()
    except TimeoutError:
        to.transport.abort()
        back.transport.abort()
    except OSError:
        pass
    to.close()
    back.close()
