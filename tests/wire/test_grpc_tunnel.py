"""A tunnel over real gRPC: bytes both ways, its end, and a control that has none."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from stoker.agent.link.grpc_stream import GrpcAgentStream, connect
from stoker.control.nodes.grpc_stream import GrpcServer, serve
from stoker.wire.messages import StreamHello, TunnelPieces
from stoker.wire.streams import ControlStream, NoTunnels, StreamEnded, TunnelStream
from stoker.wire.tunnel.tunnel import Tunnel

HELLO = StreamHello("node-1", 7)


async def anyone(token: str) -> str | None:
    return None


async def silent(stream: ControlStream, peer: str, token: str) -> None:
    await stream.receive()


class Control:
    """Holds the tunnel of the one agent that opens one."""

    def __init__(self) -> None:
        self.tunnel: asyncio.Future[Tunnel] = asyncio.get_running_loop().create_future()
        self.server: GrpcServer

    async def serve(self, stream: TunnelStream, peer: str, token: str) -> None:
        assert ((await stream.receive()).hello, token) == (HELLO, "token")
        tunnel = Tunnel(stream)
        self.tunnel.set_result(tunnel)
        await tunnel.run()


async def echoes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionResetError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def accepting(stream: GrpcAgentStream, serving: set[asyncio.Task[None]]) -> None:
    opened = await stream.open_tunnel()
    await opened.send(TunnelPieces(HELLO))
    with suppress(StreamEnded):
        await Tunnel(opened, lambda *pair: serving.add(asyncio.create_task(echoes(*pair)))).run()


async def exchanged(tunnel: Tunnel, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection through which the data went there and back."""
    reader, writer = tunnel.connect()

    async def send() -> None:
        for start in range(0, len(data), 1 << 16):
            writer.write(data[start : start + (1 << 16)])
            await writer.drain()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(send())
        assert await reader.readexactly(len(data)) == data
    return reader, writer


async def test_bytes_both_ways_on_many_connections_and_the_end_of_the_agent() -> None:
    control = Control()
    server = await serve("127.0.0.1", 0, anyone, silent, None, None, control.serve)
    stream = await connect(f"127.0.0.1:{server.port}", "token")
    serving: set[asyncio.Task[None]] = set()
    agent = asyncio.create_task(accepting(stream, serving))
    tunnel = await control.tunnel
    data = bytes(range(256)) * 4096
    pairs = await asyncio.gather(*(exchanged(tunnel, data) for _ in range(8)))
    stream.end()
    await stream.closed()
    await agent
    for reader, writer in pairs:
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert writer.is_closing()
    await asyncio.gather(*serving)
    await server.stop()


async def test_a_control_that_is_older_has_none() -> None:
    server = await serve("127.0.0.1", 0, anyone, silent, None)
    stream = await connect(f"127.0.0.1:{server.port}", "token")
    with pytest.raises(NoTunnels):
        await stream.open_tunnel()
    stream.end()
    await stream.closed()
    await server.stop()
