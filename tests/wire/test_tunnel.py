"""Connections through a tunnel in memory: streams both ways, their ends, and what a slow reader holds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from stoker.testing.memory_stream import MemoryStream, memory_tunnel
from stoker.wire.codec import WireError
from stoker.wire.messages import Piece, TunnelPieces
from stoker.wire.streams import StreamEnded
from stoker.wire.tunnel.connection import HIGH_BYTES
from stoker.wire.tunnel.multiplexer import WINDOW_BYTES
from stoker.wire.tunnel.tunnel import READER_BYTES, Pair, Tunnel


class Ends:
    """Control's tunnel, and the connections that the agent's has accepted."""

    def __init__(self, control: Tunnel, stream: MemoryStream[TunnelPieces, TunnelPieces]) -> None:
        self.control, self.stream = control, stream
        self.accepted: asyncio.Queue[Pair] = asyncio.Queue()
        self._kept: list[Pair] = []  # a writer that nobody has closes its connection

    async def connect(self) -> tuple[Pair, Pair]:
        ours = self.control.connect()
        theirs = await self.accepted.get()
        self._kept += (ours, theirs)
        return ours, theirs


@asynccontextmanager
async def tunnel() -> AsyncIterator[Ends]:
    at_agent, at_control = memory_tunnel()
    ends = Ends(Tunnel(at_control), at_control)
    agent = Tunnel(at_agent, lambda reader, writer: ends.accepted.put_nowait((reader, writer)))
    running = [asyncio.create_task(end.run()) for end in (ends.control, agent)]
    try:
        yield ends
    finally:
        at_control.end()
        with suppress(StreamEnded):
            await asyncio.gather(*running, return_exceptions=True)


async def drained(writer: asyncio.StreamWriter) -> bool:
    """Whether the writer may go on, once all that can move has moved."""
    draining = asyncio.create_task(writer.drain())
    for _ in range(200):
        await asyncio.sleep(0)
    draining.cancel()
    return (await asyncio.gather(draining, return_exceptions=True)) == [None]


async def test_bytes_pass_both_ways_and_a_close_comes_after_them() -> None:
    async with tunnel() as ends:
        (reader, writer), (other_reader, other_writer) = await ends.connect()
        data = bytes(range(256)) * 8192

        async def send() -> None:
            writer.write(data)
            await writer.drain()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            assert await other_reader.readexactly(len(data)) == data
        other_writer.write(data[:100])
        other_writer.close()
        await other_writer.wait_closed()
        assert await reader.read() == data[:100]
        assert writer.is_closing()
        writer.write(b"x")
        with pytest.raises(ConnectionResetError):
            await writer.drain()


async def test_an_abort_is_a_reset_at_the_other_end() -> None:
    async with tunnel() as ends:
        (_, writer), (other_reader, other_writer) = await ends.connect()
        writer.write(b"half of it")
        await other_reader.readexactly(4)
        writer.transport.abort()
        with pytest.raises(ConnectionResetError, match="reset the connection"):
            await other_reader.read()
        assert other_writer.is_closing()


async def test_a_slow_reader_holds_its_writer_and_no_other_connection() -> None:
    async with tunnel() as ends:
        (_, slow), (slow_reader, _) = await ends.connect()
        written = HIGH_BYTES
        slow.write(bytes(HIGH_BYTES))
        while await drained(slow):
            slow.write(bytes(HIGH_BYTES))
            written += HIGH_BYTES
        held = WINDOW_BYTES + 2 * READER_BYTES
        assert written <= held + 3 * HIGH_BYTES
        assert len(slow_reader._buffer) <= 3 * READER_BYTES  # type: ignore[attr-defined]
        (_, writer), (reader, _) = await ends.connect()
        writer.write(b"quick")
        assert await reader.readexactly(5) == b"quick"
        got = 0
        while got < written:
            got += len(await slow_reader.read(READER_BYTES))
        await slow.drain()


async def test_the_end_of_the_stream_ends_every_connection() -> None:
    async with tunnel() as ends:
        (reader, _), (other_reader, other_writer) = await ends.connect()
        ends.stream.end("control is stopping")
        for one in (reader, other_reader):
            with pytest.raises(ConnectionResetError, match="the tunnel ended"):
                await one.read()
        assert other_writer.is_closing()
        with pytest.raises(OSError, match="the tunnel has ended"):
            ends.control.connect()


async def test_an_end_that_breaks_the_protocol_ends_the_tunnel() -> None:
    at_agent, at_control = memory_tunnel()
    running = asyncio.create_task(Tunnel(at_control).run())
    await at_agent.send(TunnelPieces(None, (Piece(1, "open"),)))
    with pytest.raises(StreamEnded, match="from the end that only accepts"):
        await running
    with pytest.raises(StreamEnded, match="broke its protocol"):
        await at_agent.receive()


async def test_an_end_that_cannot_send_ends_the_tunnel(caplog: pytest.LogCaptureFixture) -> None:
    _, at_control = memory_tunnel()

    async def send(message: TunnelPieces) -> None:
        raise WireError("a number is too large")

    at_control.send = send  # type: ignore[method-assign]
    control = Tunnel(at_control)
    running = asyncio.create_task(control.run())
    reader, _writer = control.connect()
    with pytest.raises(StreamEnded, match="the tunnel failed"):
        await running
    with pytest.raises(ConnectionResetError):
        await reader.read()
    assert "a number is too large" in caplog.text


async def test_what_is_held_of_tiny_pieces_takes_no_more_than_its_bytes() -> None:
    at_agent, at_control = memory_tunnel()
    accepted: asyncio.Queue[Pair] = asyncio.Queue()
    agent = Tunnel(at_agent, lambda reader, writer: accepted.put_nowait((reader, writer)))
    running = asyncio.create_task(agent.run())
    tiny = Piece(1, data=b"xy")
    await at_control.send(TunnelPieces(None, (Piece(1, "open"), *[tiny] * (WINDOW_BYTES // 2))))
    reader, writer = await accepted.get()
    held = writer.transport._received  # type: ignore[attr-defined]
    assert 0 < sys.getsizeof(held) < WINDOW_BYTES
    assert await reader.readexactly(WINDOW_BYTES) == b"xy" * (WINDOW_BYTES // 2)
    at_control.end()
    with pytest.raises(StreamEnded):
        await running


async def test_a_writer_that_closes_what_the_other_end_has_closed_is_closed() -> None:
    """Though what had come before is not read, and never will be."""
    async with tunnel() as ends:
        (_, writer), (_, other) = await ends.connect()
        writer.write(bytes(WINDOW_BYTES))
        writer.close()
        await drained(other)
        assert other.is_closing()
        other.close()
        await asyncio.wait_for(other.wait_closed(), 10)
