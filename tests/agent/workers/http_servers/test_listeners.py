"""Who listens at a worker's port: parsed from what the kernel says, and asked of real processes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.workers.http_servers.listeners import Listeners, listeners, listening
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0
   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0
   2: 0700000A:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0
   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4714 1 0
   4: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 4715 1 0
   5: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4716 1 0
"""
LISTEN = """
import socket, sys, time
for fd in sys.argv[1:]:
    socket.socket(fileno=int(fd))
print("listens", flush=True)
sys.stdin.read()
"""


def test_all_who_a_connection_to_loopback_may_reach_are_found_among_the_first_lines() -> None:
    assert listening(TCP.splitlines(), 0x1F90) == {4711, 4712}
    assert listening(TCP.splitlines(), 0x1F91) == {4714}
    assert listening(TCP.splitlines(), 80) == set()


@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")],
)
def test_the_kernel_writes_them_so(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as one:
        one.bind((address, 0))
        port = one.getsockname()[1]
        assert listeners(port) == set()
        one.listen()
        assert listeners(port) == {os.fstat(one.fileno()).st_ino}


@contextmanager
def process(*sockets: socket.socket) -> Iterator[int]:
    """A process that has these listening sockets, as the child of one that leads a session."""
    fds = [one.fileno() for one in sockets]
    inner = [sys.executable, "-c", LISTEN, *map(str, fds)]
    outer = f"import subprocess; subprocess.run({inner!r}, pass_fds={fds!r})"
    child = subprocess.Popen(
        [sys.executable, "-c", outer],
        pass_fds=fds,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"listens\n"
        yield child.pid
    finally:
        child.stdin.close()
        child.wait()
        child.stdout.close()


async def test_a_worker_may_listen_in_any_of_its_processes() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        looking = Listeners()
        with process(server) as pid:
            assert not await looking.foreign(port, pid)
            server.close()
            assert not await looking.foreign(port, pid)
        assert not await looking.foreign(port, pid)  # nobody listens


async def test_a_rogue_listener_gets_no_connection() -> None:
    """It took the worker's port, and then shares it."""
    with socket.create_server((LOOPBACK, 0), reuse_port=True) as rogue, process() as pid:
        port = rogue.getsockname()[1]
        ports = WorkerPorts(HostPorts())
        ports.add("w1", port, pid)
        relay = Relay(ports)
        assert await connect(relay) == b"502"
        rogue.setblocking(False)
        accepted, _ = rogue.accept()
        with accepted:
            assert accepted.recv(100) == b""
        with socket.create_server((LOOPBACK, port), reuse_port=True) as own, process(own) as worker:
            own.close()
            ports.add("w1", port, worker)
            assert await connect(relay) == b"502"
            rogue.close()
            assert await connect(relay) == b"200"
        await relay.close()


async def test_one_that_stops_listening_when_it_got_a_connection_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server((LOOPBACK, 0)) as rogue, process() as pid:
        port = rogue.getsockname()[1]
        ports = WorkerPorts(HostPorts())
        ports.add("w1", port, pid)
        relay, look = Relay(ports), ports.foreign

        async def late(worker: str, port: int, **options: bool) -> bool:
            taken.append(rogue.accept()[0])
            rogue.close()
            return await look(worker, port, **options)

        taken: list[socket.socket] = []
        monkeypatch.setattr(ports, "foreign", late)
        assert await connect(relay) == b"502"
        with taken[0]:
            taken[0].setblocking(True)
            assert taken[0].recv(100) == b""
        await relay.close()


async def test_a_worker_that_ends_while_its_server_is_connected_to_gets_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another worker may have its port by now."""
    with socket.create_server((LOOPBACK, 0)) as own:
        ports = WorkerPorts(HostPorts())
        ports.add("w1", own.getsockname()[1], os.getpid())
        relay, look = Relay(ports), ports.foreign

        async def ended(worker: str, port: int, **options: bool) -> bool:
            ports.remove(worker)
            return await look(worker, port, **options)

        monkeypatch.setattr(ports, "foreign", ended)
        assert await connect(relay) == b"404"
        await relay.close()


async def connect(relay: Relay) -> bytes:
    """The status that a connection to `w1` gets."""
    accepting: asyncio.Queue[None] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await relay.serve(reader, writer)
        accepting.put_nowait(None)

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    reader, writer = await asyncio.open_connection(LOOPBACK, server.sockets[0].getsockname()[1])
    writer.write(b"CONNECT w1 HTTP/1.1\r\n\r\n")
    status = (await reader.readuntil(b"\r\n\r\n"))[9:12]
    writer.close()
    await accepting.get()
    server.close()
    await server.wait_closed()
    return status
