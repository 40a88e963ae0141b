"""The probe of an http worker: GET its health path, on loopback, on a connection of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import h11

from stoker.agent.host.own_network import LOOPBACK, NoEntry

PROBE_S = 5.0
"""How long a response may take."""

READ_BYTES = 4_096


async def probe(
    port: int, path: str, opening: bytes = b"", tcp_socket: Callable[[], socket.socket] = socket.socket
) -> tuple[int | None, str]:
    """Returns the status, or None and why there is none. `opening` is what a connection to the worker begins
    with; `tcp_socket` makes its socket, in the worker's network. Never raises what the network or the worker
    does."""
    try:
        async with asyncio.timeout(PROBE_S):
            return await _get(port, path, opening, tcp_socket()), ""
    except TimeoutError:
        return None, f"GET {path} on port {port} was not answered within {PROBE_S:g} s"
    except NoEntry as why:
        return None, str(why)
    except OSError as error:
        return None, f"GET {path} on port {port}: {error.strerror or error}"
    except h11.ProtocolError:  # its words quote what came, and callers read why a worker is not healthy
        return None, f"GET {path} on port {port} was answered by something else than HTTP"


async def _get(port: int, path: str, opening: bytes, connected: socket.socket) -> int:
    connected.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connected, (LOOPBACK, port))
        reader, writer = await asyncio.open_connection(sock=connected)
    except BaseException:
        connected.close()
        raise
    try:
        connection = h11.Connection(h11.CLIENT)
        headers = [("Host", f"{LOOPBACK}:{port}"), ("Connection", "close"), ("User-Agent", "stoker-agent")]
        writer.write(opening)
        writer.write(connection.send(h11.Request(method="GET", target=path, headers=headers)))
        writer.write(connection.send(h11.EndOfMessage()))
        while not isinstance(event := connection.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
        return event.status_code
    finally:
        writer.transport.abort()  # whatever else it sends is of no interest
