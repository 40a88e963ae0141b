"""The port of the local server: the requested one, or the next that is free."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from stoker.cli.dev.local_server.listening import listen
from stoker.cli.errors import CliError
from stoker.control.rules.limits import DEV_PORTS


@pytest.fixture
def taken() -> Iterator[list[int]]:
    """DEV_PORTS ports in a row that are in use."""
    for first in range(20_000, 60_000, 997):
        with ExitStack() as stack:
            try:
                for port in range(first, first + DEV_PORTS):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            yield list(range(first, first + DEV_PORTS))
            return
    pytest.fail("no ports in a row are free")


def test_the_next_free_one_is_taken(taken: list[int]) -> None:
    with closing(listen("127.0.0.1", taken[1])) as found:
        assert found.getsockname()[1] > taken[-1]


def test_where_twenty_are_in_use_it_says_so(taken: list[int]) -> None:
    with pytest.raises(CliError, match=f"the ports {taken[0]} to {taken[-1]} of 127.0.0.1 are in use"):
        listen("127.0.0.1", taken[0])


@pytest.mark.parametrize("port", [-1, 0, 65_536, 10**9])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(CliError, match=f"--port must be from 1 to 65535; got {port}"):
        listen("127.0.0.1", port)


def test_an_address_that_is_not_here_is_refused() -> None:
    with pytest.raises(CliError, match=r"192\.0\.2\.1 port 8888 cannot be used"):
        listen("192.0.2.1", 8888)
