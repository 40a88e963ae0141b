"""The node's gateway port: who gets a connection to a worker, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from stoker.agent.http_workers.gateway_port import GatewayPort
from stoker.agent.http_workers.worker_ports import LOOPBACK, WorkerPorts
from stoker.wire.messages import GatewayAddress


class Worker:
    """A server that sends back what it gets. `left` is set when a caller has closed its connection."""

    def __init__(self) -> None:
        self.left = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        while data := await reader.read(1 << 20):
            writer.write(data)
            await writer.drain()
        self.left.set()
        writer.close()


@asynccontextmanager
async def node() -> AsyncIterator[tuple[GatewayAddress, WorkerPorts, Worker]]:
    """A gateway port, and the worker `w1` behind it; `w2` does not listen."""
    ports, worker = WorkerPorts(), Worker()
    server = await asyncio.start_server(worker.serve, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    unused = await asyncio.start_server(worker.serve, LOOPBACK, 0)
    closed = unused.sockets[0].getsockname()[1]
    unused.close()
    await unused.wait_closed()
    ports.add("w1", port, port)
    ports.add("w2", closed, closed)
    gateway = GatewayPort(ports)
    try:
        yield await gateway.open(), ports, worker
    finally:
        await gateway.close()
        for writer in worker.writers:
            writer.close()
        server.close()
        await server.wait_closed()


async def connect(
    address: GatewayAddress, worker: str, method: str = "CONNECT", token: str | None = None
) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(LOOPBACK, address.port)
    brought = address.token if token is None else token
    writer.write(f"{method} {worker} HTTP/1.1\r\nAuthorization: Bearer {brought}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    return int(head.split()[1]), reader, writer


async def test_only_who_has_the_token_reaches_a_worker() -> None:
    async with node() as (address, _, worker):
        asked = [
            ("w1", "CONNECT", "wrong", 401),
            ("w1", "CONNECT", "", 401),
            ("w1", "GET", None, 405),
            ("w3", "CONNECT", None, 404),
            ("w2", "CONNECT", None, 502),
        ]
        for name, method, token, status in asked:
            found, reader, writer = await connect(address, name, method, token)
            assert (found, await reader.read()) == (status, b"")
            writer.close()
        assert worker.writers == []
        assert address.token not in repr(address)


async def test_bytes_pass_both_ways_and_each_side_hears_of_the_others_end() -> None:
    async with node() as (address, _, worker):
        status, reader, writer = await connect(address, "w1")
        data = bytes(range(256)) * 8_192
        writer.write(data)
        assert (status, await reader.readexactly(len(data))) == (200, data)
        writer.close()
        await worker.left.wait()
        _, reader, writer = await connect(address, "w1")
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        worker.writers[-1].close()
        assert await reader.read() == b""
        writer.close()


async def test_a_worker_that_stops_takes_nothing_new_and_is_idle_after_the_last() -> None:
    async with node() as (address, ports, _):
        _, reader, writer = await connect(address, "w1")
        writer.write(b"x")
        await reader.readexactly(1)
        idle = asyncio.Event()
        ports.close("w1", idle.set)
        refused, _, other = await connect(address, "w1")
        assert (refused, idle.is_set()) == (404, False)
        other.close()
        writer.close()
        await idle.wait()
        ports.close("w2", idle.clear)  # it has no connection
        assert not idle.is_set()
        ports.remove("w1")
        assert ports.of("w1") is None


async def test_the_end_of_the_agent_ends_every_connection() -> None:
    async with node() as (address, _, worker):
        _, reader, writer = await connect(address, "w1")
        writer.write(b"x")
        await reader.readexactly(1)
    assert await reader.read() == b""
    await worker.left.wait()
    writer.close()
