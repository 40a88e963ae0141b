"""Both kinds of stream as one fixture: a pair in memory, and real gRPC on loopback with and without TLS."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from stoker.agent.grpc_stream import connect
from stoker.control.grpc_stream import GrpcServer, TlsFiles, serve
from stoker.wire.streams import AgentStream, ControlStream, memory_pair


@dataclass
class Pair:
    agent: AgentStream
    control: ControlStream


@dataclass
class Certificate:
    files: TlsFiles
    pem: bytes
    key: bytes


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make_certificate(tmp_path_factory.mktemp("tls"))


def make_certificate(folder: Path) -> Certificate:
    """Self-signed, for loopback, good as its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "control")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "cert.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(secret)
    return Certificate(TlsFiles(folder / "cert.pem", folder / "key.pem"), pem, secret)


class Sessions:
    """A handler that hands each stream to the test, and returns when the test is done with it."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[ControlStream] = asyncio.Queue()
        self.peers: list[str] = []
        self.done = asyncio.Event()
        self.returned = asyncio.Event()

    async def handle(self, stream: ControlStream, peer: str) -> None:
        self.peers.append(peer)
        self.streams.put_nowait(stream)
        await self.done.wait()
        self.returned.set()


@contextlib.asynccontextmanager
async def _serving(
    handle: Callable[[ControlStream, str], Awaitable[None]], tls: TlsFiles | None = None
) -> AsyncIterator[GrpcServer]:
    server = await serve("127.0.0.1", 0, handle, tls)
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
        agent = await connect(f"127.0.0.1:{server.port}", ca=certificate.pem if tls else None)
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
