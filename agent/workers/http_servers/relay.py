"""Passes connections from control on to the http workers of this node.

    control --CONNECT worker--> here --> 127.0.0.1:$PORT of the worker
            <--200-- and then bytes both ways, until either side closes

- Connections come by a gateway port (`agent.workers.http_servers.gateway_port`), where each must prove that
  it is control's, or through the tunnel (`agent.workers.http_servers.tunnel`), which only control has.
- Only the worker's own server gets one: the listener is checked first
  (`agent.workers.http_servers.listeners`).
- A connection that one side closes is closed at the other: a worker hears at once that its caller left.
- A worker may answer before it has read the request, and close. To write to it fails then, and asyncio's
  transport would drop what is not read yet: so the one that reads writes nothing. Control gets all of the
  answer: what control still sends is taken and dropped until control closes (`_linger`).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum

from stoker.agent.host.own_network import LOOPBACK, NoEntry
from stoker.agent.workers.http_servers.listeners import FOREIGN
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts

log = logging.getLogger(__name__)

HEAD_S = 10.0
"""How long the CONNECT of a caller may take."""

CONNECT_S = 2.0
"""How long a worker's server may take to accept: control then hears that it does not, and does not take the
way to this node for a broken one (`FALL_BACK_S` in control.http.gateway.reaching)."""

STUCK_S = 360.0
"""How long a side may take nothing before the connection is closed. Control waits for a request for a shorter
time."""

LINGER_S = 5.0
"""How long what control still sends to a worker that closed is taken and dropped, until control closes."""

COPY_BYTES = 64 * 1024

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]

OPEN = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Unproven(Exception):
    """The connection did not bring the token."""


class ConnectRefused(Exception):
    """The status line of the response."""


class Relay:
    """The relay of connections from control to http workers. `close` ends every connection."""

    def __init__(self, ports: WorkerPorts) -> None:
        self._ports = ports
        self._connections: set[asyncio.Task[None]] = set()

    def begin(self, serving: Coroutine[None, None, None]) -> None:
        """Begins to serve a connection, which ends by itself."""
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
        """Serves a connection, from its CONNECT to its end. Where there is a `token`, the connection must
        bring it: `proven` is called when it did, and Unproven is raised otherwise."""
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
        """Returns the worker that the connection names. Raises Unproven and ConnectRefused."""
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
        with await self._connect(worker, port) as to_worker:
            from_worker, closing = await _reader(to_worker.dup())
            with self._ports.connected(worker, to_worker):
                try:
                    writer.write(OPEN)
                    ended = await _both_ways(reader, writer, from_worker, to_worker)
                finally:
                    closing.abort()
        if ended is not None:
            await _linger(reader, writer, ended)
        await _flush(writer)

    async def _connect(self, worker: str, port: int) -> socket.socket:
        """Connects to the worker. The process that accepted the connection has read nothing of it when it is
        inspected. Meanwhile the worker may have ended, and another have got its port."""
        try:
            connected = self._ports.tcp_socket(worker)
        except (NoEntry, OSError) as why:
            log.warning("worker %s gets no connection: %s", worker, why)
            raise ConnectRefused("502 Bad Gateway") from None
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().sock_connect(connected, (LOOPBACK, port))
            if await self._ports.foreign(worker, port, connected=True):
                log.warning("worker %s gets no connection: %s", worker, FOREIGN.format(port=port))
                raise ConnectRefused("502 Bad Gateway")
            if self._ports.of(worker) != port:
                raise ConnectRefused("404 Not Found")
            if opening := self._ports.opening(worker):
                connected.send(opening)  # a new connection takes a line at once
        except OSError:
            connected.close()
            raise ConnectRefused("502 Bad Gateway") from None
        except BaseException:
            connected.close()
            raise
        return connected


class _Reader(asyncio.StreamReader):
    """Gives what came before its connection broke, too."""

    _broke: Exception | None = None

    def set_exception(self, error: Exception) -> None:
        self._broke = error
        self.feed_eof()

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        if not data and self._broke is not None:
            raise self._broke
        return data


async def _reader(connected: socket.socket) -> tuple[_Reader, asyncio.Transport]:
    """Reads a connected socket. Its transport writes nothing, so no failure to write ends the reading."""
    loop = asyncio.get_running_loop()
    reader = _Reader(COPY_BYTES)
    transport, _ = await loop.create_connection(lambda: asyncio.StreamReaderProtocol(reader), sock=connected)
    return reader, transport


class _Ended(Enum):
    """The way in which a worker's side of a connection ended."""

    READ = "it read what it got"
    UNREAD = "it did not read all that control sent"


async def _both_ways(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    from_worker: asyncio.StreamReader,
    to_worker: socket.socket,
) -> _Ended | None:
    """Copies until the worker has ended, or control has: None."""
    up = asyncio.create_task(_to_worker(reader, to_worker), name="to an http worker")
    down = asyncio.create_task(_from_worker(from_worker, writer), name="from an http worker")
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
        if up.done() and up.result() is None:
            return None
        ended = await down  # it may have answered although it takes nothing more
        up.cancel()
        await asyncio.wait((up,))
        return _Ended.UNREAD if ended is not None and not up.cancelled() else ended
    finally:
        for copy in (up, down):
            copy.cancel()
        await asyncio.wait((up, down))


async def _to_worker(reader: asyncio.StreamReader, worker: socket.socket) -> _Ended | None:
    """Copies to the worker. Returns None where control has ended, or the worker takes nothing for too
    long."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            data = await reader.read(COPY_BYTES)
        except OSError:
            return None
        if not data:
            return None
        try:
            if left := _sent_at_once(worker, data):
                async with asyncio.timeout(STUCK_S):
                    await loop.sock_sendall(worker, left)
        except TimeoutError:
            return None
        except (OSError, asyncio.CancelledError):  # it was cancelled with bytes in its hand
            return _Ended.UNREAD


def _sent_at_once(worker: socket.socket, data: bytes) -> bytes:
    """Sends what the socket takes, and returns the rest: mostly nothing. Raises OSError."""
    try:
        return data[worker.send(data) :]
    except BlockingIOError:
        return data


async def _from_worker(worker: asyncio.StreamReader, writer: asyncio.StreamWriter) -> _Ended | None:
    """Copies from the worker. Returns None where control takes nothing any more."""
    while True:
        try:
            data = await worker.read(COPY_BYTES)
        except OSError:
            return _Ended.UNREAD  # the kernel resets a connection that is closed with bytes unread
        if not data:
            return _Ended.READ
        writer.write(data)
        if not writer.transport.get_write_buffer_size():
            continue
        try:
            async with asyncio.timeout(STUCK_S):
                await writer.drain()
        except OSError:
            writer.transport.abort()
            return None


async def _linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ended: _Ended) -> None:
    """Takes and drops what control sends, until it closes: a connection that is closed with bytes unread is
    reset, and control could lose what it has not read. TLS and tunnels cannot end one direction, and a
    response may end with its connection, so there it is only done where something was not read."""
    if writer.is_closing():
        return
    if writer.can_write_eof():
        writer.write_eof()
    elif ended is _Ended.READ:
        return
    with suppress(OSError):
        async with asyncio.timeout(LINGER_S):
            while await reader.read(COPY_BYTES):
                pass


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Ends the connection once what was copied is sent, or nothing was taken for too long."""
    writer.close()
    try:
        async with asyncio.timeout(STUCK_S):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        pass


async def _answer(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
    with suppress(OSError):
        await writer.drain()
