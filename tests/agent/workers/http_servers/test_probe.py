"""Probes of servers that do not speak HTTP: callers read the reason, and it quotes nothing of theirs."""

from __future__ import annotations

import asyncio

import pytest

from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.workers.http_servers.probe import probe


@pytest.mark.parametrize("answer", [b"private words\r\n\r\n", b"HTTP/1.1 101 private\r\n\r\n", b""])
async def test_what_is_no_answer_is_not_quoted(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(serve, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        status, why = await probe(port, "/ping")
    assert (status, why) == (None, f"GET /ping on port {port} was answered by something else than HTTP")
