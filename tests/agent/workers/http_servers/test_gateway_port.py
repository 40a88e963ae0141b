"""The node's gateway port: who gets a connection to a worker, and how it ends."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.workers.http_servers import gateway_port
from stoker.agent.workers.http_servers import relay as relay_module
from stoker.agent.workers.http_servers.certificate import make_certificate
from stoker.agent.workers.http_servers.gateway_port import GatewayPort
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.unproven import FROM_ONE, STRANGERS
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.control.http.gateway.reaching import FALL_BACK_S, dial
from stoker.control.rules.nodes.ways import NodeGateway
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
    ports, worker = WorkerPorts(HostPorts()), Worker()
    server = await asyncio.start_server(worker.serve, LOOPBACK, 0)
    port = server.sockets[0].getsockname()[1]
    unused = await asyncio.start_server(worker.serve, LOOPBACK, 0)
    closed = unused.sockets[0].getsockname()[1]
    unused.close()
    await unused.wait_closed()
    ports.add("w1", port, os.getpid())
    ports.add("w2", closed, os.getpid())
    relay = Relay(ports)
    gateway = GatewayPort(relay)
    await gateway.open(LOOPBACK, 0)
    try:
        yield GatewayAddress(gateway.port, gateway.token), ports, worker
    finally:
        await gateway.close()
        await relay.close()
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
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except BaseException:
        writer.close()
        raise
    return int(head.split()[1]), reader, writer


@asynccontextmanager
async def over_tls(folder: Path) -> AsyncIterator[tuple[GatewayPort, Worker, ssl.SSLContext]]:
    """A gateway port for other hosts, the worker `w1` behind it, and what control trusts there."""
    async with node() as (_, ports, worker):
        context, certificate = make_certificate(folder)
        assert not os.listdir(folder)
        relay = Relay(ports)
        gateway = GatewayPort(relay, context)
        await gateway.open(LOOPBACK, 0)
        try:
            yield gateway, worker, trusting(certificate)
        finally:
            await gateway.close()
            await relay.close()


def trusting(certificate: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context


async def test_over_tls_each_side_knows_the_other(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (gateway, worker, trusted):
        reader, writer = await asyncio.open_connection(LOOPBACK, gateway.port, ssl=trusted)
        writer.write(f"CONNECT w1 HTTP/1.1\r\nAuthorization: Bearer {gateway.token}\r\n\r\n".encode())
        assert (await reader.readuntil(b"\r\n\r\n")).split()[1] == b"200"
        data = bytes(range(256)) * 8_192
        writer.write(data)
        assert await reader.readexactly(len(data)) == data
        writer.close()
        await worker.left.wait()
        assert gateway.refused == 0


async def test_over_tls_another_certificate_is_not_believed(tmp_path: Path) -> None:
    _, another = make_certificate(tmp_path)
    async with over_tls(tmp_path) as (gateway, _, _):
        with pytest.raises(ssl.SSLError, match="certificate verify failed"):
            await asyncio.open_connection(LOOPBACK, gateway.port, ssl=trusting(another))


async def test_who_brings_no_proof_is_closed_and_counted_and_reaches_nothing(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (gateway, worker, trusted):
        for head, ssl_, answer in (
            (b"CONNECT w1 HTTP/1.1\r\nAuthorization: Bearer wrong\r\n\r\n", trusted, b"HTTP/1.1 401 "),
            (b"CONNECT w1 HTTP/1.1\r\n\r\n", trusted, b"HTTP/1.1 401 "),
            (b"GET / HTTP/1.1\r\n\r\n", None, b""),
        ):
            reader, writer = await asyncio.open_connection(LOOPBACK, gateway.port, ssl=ssl_)
            writer.write(head)
            assert (await reader.read()).startswith(answer)
            writer.close()
        assert (gateway.refused, worker.writers) == (3, [])


@asynccontextmanager
async def empty_port() -> AsyncIterator[GatewayPort]:
    """A gateway port of a node without workers."""
    relay = Relay(WorkerPorts(HostPorts()))
    gateway = GatewayPort(relay)
    await gateway.open(LOOPBACK, 0)
    try:
        yield gateway
    finally:
        await gateway.close()
        await relay.close()


@asynccontextmanager
async def silent_strangers(gateway: GatewayPort, *addresses: str, of_each: int) -> AsyncIterator[None]:
    """Connections that send nothing, all of which the port has accepted."""
    held = [
        await asyncio.open_connection(LOOPBACK, gateway.port, local_addr=(address, 0))
        for _ in range(of_each)
        for address in addresses
    ]
    try:
        yield
    finally:
        for _, writer in held:
            await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Closes a connection and waits until its transport has ended, so that no later test finds it open."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("addresses", "of_each"),
    [(("127.0.0.2",), 64), (tuple(f"127.0.0.{n}" for n in range(2, 34)), 8), ((LOOPBACK,), 64)],
    ids=["of one address", "of 32 addresses", "of control's own address"],
)
async def test_silent_strangers_refuse_control_nothing(addresses: tuple[str, ...], of_each: int) -> None:
    async with empty_port() as gateway:
        address = GatewayAddress(gateway.port, gateway.token)
        async with silent_strangers(gateway, *addresses, of_each=of_each):
            for _ in range(33):
                status, _, writer = await connect(address, "w3")
                assert status == 404
                await closed(writer)
        assert len(gateway._unproven) <= STRANGERS


async def test_a_stranger_s_ninth_connection_ends_its_first() -> None:
    async with empty_port() as gateway:
        first, writer = await asyncio.open_connection(LOOPBACK, gateway.port)
        async with silent_strangers(gateway, LOOPBACK, of_each=FROM_ONE):
            assert await first.read() == b""
            assert (len(gateway._unproven), gateway.refused) == (FROM_ONE, 1)
        writer.close()


@pytest.mark.parametrize("shakes_hands", [False, True])
async def test_who_brings_no_proof_in_time_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shakes_hands: bool
) -> None:
    monkeypatch.setattr(gateway_port, "HEAD_S", 0.2)
    async with over_tls(tmp_path) as (gateway, _, trusted):
        reader, writer = await asyncio.open_connection(
            LOOPBACK, gateway.port, ssl=trusted if shakes_hands else None
        )
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        while gateway._unproven:
            await asyncio.wait(gateway._relay._connections)
        assert gateway.refused == 1


async def test_one_without_proof_counts_until_its_socket_is_closed(tmp_path: Path) -> None:
    """Its end of TLS may be long in coming."""
    async with over_tls(tmp_path) as (gateway, _, trusted):

        def bring_nothing() -> ssl.SSLSocket:
            raw = socket.create_connection((LOOPBACK, gateway.port))
            silent = trusted.wrap_socket(raw)
            silent.sendall(b"CONNECT w1 HTTP/1.1\r\n\r\n")
            assert silent.recv(12) == b"HTTP/1.1 401"
            return silent

        silent = await asyncio.to_thread(bring_nothing)
        assert len(gateway._unproven) == 1
        silent.close()
        while gateway._unproven:
            await asyncio.wait(gateway._relay._connections)


async def test_a_control_that_vanished_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    relay, asked = Relay(WorkerPorts(HostPorts())), asyncio.Queue[int]()

    async def serve(_: object, writer: asyncio.StreamWriter, *_more: object) -> None:
        connected = writer.get_extra_info("socket")
        asked.put_nowait(connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
        writer.close()

    monkeypatch.setattr(relay, "serve", serve)
    gateway = GatewayPort(relay)
    await gateway.open(LOOPBACK, 0)
    reader, writer = await dial(NodeGateway(LOOPBACK, gateway.port, gateway.token))
    found = writer.get_extra_info("socket")
    assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == await asked.get() == 1
    assert await reader.read() == b""
    writer.close()
    await gateway.close()
    await relay.close()


async def test_a_worker_that_takes_nothing_keeps_no_caller_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "STUCK_S", 0.05)
    with socket.create_server((LOOPBACK, 0)) as hung:
        ports = WorkerPorts(HostPorts())
        ports.add("w1", hung.getsockname()[1], os.getpid())
        relay = Relay(ports)
        gateway = GatewayPort(relay)
        await gateway.open(LOOPBACK, 0)
        status, _, writer = await connect(GatewayAddress(gateway.port, gateway.token), "w1")
        assert status == 200
        writer.write(bytes(32 << 20))
        writer.transport.abort()
        assert relay._connections
        while relay._connections:
            await asyncio.wait(relay._connections)
        idle = asyncio.Event()
        ports.close("w1", idle.set)
        assert idle.is_set()
        await gateway.close()


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


def test_a_slow_worker_is_not_taken_for_a_way_that_is_broken() -> None:
    assert relay_module.CONNECT_S < FALL_BACK_S
