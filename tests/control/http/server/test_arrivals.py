"""Connections that are held open and say nothing: few of one address, and not for long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import cast

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.control.auth.connection_shares import ConnectionShares
from stoker.control.http.server import arrivals, connection, server
from stoker.control.http.server.forwarded import Proxies
from stoker.control.http.server.server import HttpServer, UpgradeProtocol, serve_http
from tests.certificates import make_certificate
from tests.control.http.server.test_protocol_offers import HANDSHAKE, LAST, Echo, Taken
from tests.profiles import examples

MOST = 16
UPGRADE = cast(UpgradeProtocol, Taken)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "connections_of_a_door", lambda: MOST)


class Strangers:
    """Connections of one address that say nothing, until they are closed."""

    def __init__(self, port: int, address: str) -> None:
        self._to, self._from = ("127.0.0.1", port), (address, 0)
        self.held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, count: int) -> None:
        for _ in range(count):
            self.held.append(await asyncio.open_connection(*self._to, local_addr=self._from))

    async def refused(self) -> int:
        """How many the server has closed. The others are asked something, and answer."""
        return sum([not await asked(*one) for one in self.held])

    def close(self) -> None:
        for _, writer in self.held:
            writer.close()


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether it gets an answer."""
    with contextlib.suppress(ConnectionError):
        writer.write(LAST)
        await writer.drain()
        return b"200 OK" in await reader.read()
    return False


async def answers(port: int, address: str, context: ssl.SSLContext | None = None) -> bool:
    connected = await asyncio.open_connection(
        "127.0.0.1",
        port,
        local_addr=(address, 0),
        ssl=context,
        server_hostname="localhost" if context else None,
    )
    try:
        return await asked(*connected)
    finally:
        connected[1].close()


async def emptied(http: HttpServer) -> None:
    shares = http._server._shares
    while shares._total:  # noqa: ASYNC110 - until the server has heard of it, too
        await asyncio.sleep(0)


async def test_one_address_leaves_room_for_others_and_these_for_still_others() -> None:
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0) as http:
        first, second = Strangers(http.port, "127.0.0.2"), Strangers(http.port, "127.0.0.3")
        await first.connect(MOST)
        await second.connect(MOST)
        for address in ("127.0.0.4", "127.0.0.5"):
            assert await answers(http.port, address)
        assert (await first.refused(), await second.refused()) == (MOST - 8, MOST - 4)
        first.close()
        second.close()
        await emptied(http)


async def test_a_web_socket_has_its_share_until_it_is_lost() -> None:
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0, upgrade=UPGRADE) as http:
        held = Strangers(http.port, "127.0.0.2")
        await held.connect(8)
        for _, writer in held.held:
            writer.write(HANDSHAKE)
        while http._server.server_state.connections:  # noqa: ASYNC110 - until all are handed on
            await asyncio.sleep(0)
        assert http._server._shares._total == 8
        held.close()
        await emptied(http)
        assert await answers(http.port, "127.0.0.2")


async def test_behind_a_proxy_all_callers_have_one_address() -> None:
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0, proxies=Proxies()) as http:
        held = Strangers(http.port, "127.0.0.2")
        await held.connect(MOST - 1)
        assert await answers(http.port, "127.0.0.2")
        held.close()


async def test_a_tls_handshake_counts_and_has_a_time_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=made.files.cert)
    monkeypatch.setattr(arrivals, "HANDSHAKE_S", 0.3)
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0, tls=made.files) as http:
        held = Strangers(http.port, "127.0.0.2")
        await held.connect(MOST)
        assert await answers(http.port, "127.0.0.3", context)
        for reader, _ in held.held:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await emptied(http)
        assert await answers(http.port, "127.0.0.2", context)
        held.close()


async def test_a_connection_that_never_asks_anything_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "FIRST_HEAD_S", 0.2)
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0) as http:
        held = Strangers(http.port, "127.0.0.2")
        await held.connect(4)
        for reader, _ in held.held:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        await emptied(http)
        held.close()


async def test_what_is_refused_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with await serve_http(Echo(), "127.0.0.1", 0, grace_s=0) as http:
        held = Strangers(http.port, "127.0.0.2")
        await held.connect(3 * MOST)
        await held.refused()
        held.close()
    assert [one.getMessage() for one in caplog.records if one.name == arrivals.__name__] == [
        "connections refused: 1; the last ones of 127.0.0.2 are too many"
    ]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["192.0.2.1", "192.0.2.2", "2001:db8::1"]))))
@settings(max_examples=examples(200))
def test_shares_never_pass_the_limit_and_are_given_back(steps: list[tuple[bool, str]]) -> None:
    shares, held = ConnectionShares(8), list[str]()
    for enters, address in steps:
        if enters:
            held += [address] if shares.enter(address) else []
        elif address in held:
            held.remove(address)
            shares.leave(address)
        assert len(held) == shares._total <= 8
        assert len(set(held)) == 3 or deepcopy(shares).enter("198.51.100.1")
    for address in held:
        shares.leave(address)
    assert (shares._total, dict(shares._taken)) == (0, {})


def test_a_network_of_ipv6_is_one_address() -> None:
    shares = ConnectionShares(8)
    assert [shares.enter(f"2001:db8:0:1::{n:x}") for n in range(5)] == [True] * 4 + [False]
    assert shares.enter("2001:db8:0:2::1")
    assert shares.enter("::ffff:192.0.2.1")
    shares.leave("192.0.2.1")
    assert shares.enter("fe80::1%eth0")


RAISES = """
import json, resource
from stoker.control.auth.connection_shares import connections_of_a_door, raise_open_files
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
before = connections_of_a_door()
raise_open_files()
raise_open_files()
print(json.dumps([before, most // 3, connections_of_a_door(), resource.getrlimit(resource.RLIMIT_NOFILE)]))
"""


def test_the_soft_limit_of_open_files_is_raised() -> None:
    ran = subprocess.run([sys.executable, "-c", RAISES], capture_output=True, check=True, text=True)
    before, third, found, limits = json.loads(ran.stdout)
    assert (before, found, limits[0]) == (256 // 3, third, limits[1])


def test_sockets_send_at_once_on_the_loop_that_control_runs_on() -> None:
    async def delays() -> list[int]:
        found = []

        async def app(scope: object, receive: object, send: object) -> None:
            (one,) = http._server.server_state.connections
            taken = one.transport.get_extra_info("socket")
            found.append(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            await Echo()(scope, receive, send)  # type: ignore[arg-type]

        async with await serve_http(app, "127.0.0.1", 0, grace_s=0) as http:
            assert await answers(http.port, "127.0.0.1")
        return found

    assert uvloop.run(delays()) == [1]
