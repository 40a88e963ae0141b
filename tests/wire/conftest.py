"""Both kinds of stream as one fixture: a pair in memory, and real gRPC on loopback with and without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from stoker.agent.link.grpc_stream import connect
from stoker.control.config.tls import TlsFiles
from stoker.control.nodes.grpc_stream import Admit, GrpcServer, Handle, serve
from stoker.testing.memory_stream import memory_pair
from stoker.wire.streams import AgentStream, ControlStream
from tests.certificates import Certificate, make_certificate


@dataclass
class Pair:
    agent: AgentStream
    control: ControlStream


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


class Sessions:
    """A handler that hands each stream to the test, and returns when the test is done with it."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[ControlStream] = asyncio.Queue()
        self.peers: list[str] = []
        self.done = asyncio.Event()
        self.returned = asyncio.Event()

    async def handle(self, stream: ControlStream, peer: str, token: str) -> None:
        self.peers.append(peer)
        self.streams.put_nowait(stream)
        await self.done.wait()
        self.returned.set()


async def anyone(token: str) -> str | None:
    return None


@contextlib.asynccontextmanager
async def _serving(
    handle: Handle, tls: TlsFiles | None = None, admit: Admit = anyone, logs: Any = None
) -> AsyncIterator[GrpcServer]:
    server = await serve("127.0.0.1", 0, admit, handle, tls, logs)
    try:
        yield server
    finally:
        await server.stop(0)


@pytest.fixture
def serving() -> Any:
    """`async with serving(handle, tls=None) as server`."""
    return _serving


@pytest.fixture
async def sessions() -> Sessions:
    return Sessions()


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("other-tls"))


@pytest.fixture(params=["memory", "grpc", "grpc-tls"])
async def pair(request: pytest.FixtureRequest, certificate: Certificate) -> AsyncIterator[Pair]:
    if request.param == "memory":
        yield Pair(*memory_pair())
        return
    tls = request.param == "grpc-tls"
    sessions = Sessions()
    async with _serving(sessions.handle, certificate.files if tls else None) as server:
        agent = await connect(f"127.0.0.1:{server.port}", "token", ca=certificate.pem if tls else None)
        control = await sessions.streams.get()
        yield Pair(agent, control)
        control.end()
        agent.end()
        sessions.done.set()
        await agent.closed()


@pytest.fixture(scope="module")
def held_before() -> int:
    """Other folders keep servers for the session, and their tests may come between two of our modules."""
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture(autouse=True)
def no_descriptor_leaks(held_before: int) -> Iterator[None]:
    yield
    # gRPC keeps a few of its own for the process's life: they do not grow with each stream.
    assert len(os.listdir("/proc/self/fd")) < held_before + 48
