"""Sockets in the network of another process: a real one, where this user may make one."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.host.own_network import LOOPBACK, NoEntry, OwnNetwork, may_enter

UP, SET_FLAGS = 0x41, 0x8914
"""IFF_UP and IFF_RUNNING, and SIOCSIFFLAGS."""


@pytest.fixture
def network() -> Iterator[OwnNetwork]:
    """The network of a process that waits in it, with its loopback up."""
    command = ["unshare", "--net", "sh", "-c", "echo; read line"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() == b"" or not may_enter():
            pytest.skip("no network namespace can be made or entered here: that needs root")
        made = OwnNetwork(process.pid)
        with made.tcp_socket() as any_socket:
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sH14x", b"lo", UP))
        yield made
        made.close()
        process.stdin.close()


def test_both_ends_are_inside_and_nobody_outside_reaches_them(network: OwnNetwork) -> None:
    before = os.stat("/proc/thread-self/ns/net").st_ino
    with network.listener(4711) as listener, network.tcp_socket() as caller:
        caller.connect((LOOPBACK, 4711))
        with listener.accept()[0] as accepted:
            accepted.sendall(b"hello")
            assert caller.recv(5) == b"hello"
        with socket.socket() as outside, pytest.raises(ConnectionRefusedError):
            outside.connect((LOOPBACK, 4711))
    assert os.stat("/proc/thread-self/ns/net").st_ino == before  # another thread entered, and has ended


def test_a_port_that_is_taken_is_a_sentence(network: OwnNetwork) -> None:
    with (
        network.listener(4711),
        pytest.raises(NoEntry, match="port 4711 of its loopback cannot be opened: Address already in use"),
    ):
        network.listener(4711)


def test_a_process_that_cannot_be_seen_or_is_on_the_same_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoEntry, match=r"cannot be entered \(No such file or directory\): .*--pid host"):
        OwnNetwork(1, tmp_path)
    with pytest.raises(NoEntry, match=r"its network is the agent's own: .*--cap-add SYS_ADMIN"):
        OwnNetwork(os.getpid())


@pytest.mark.parametrize(
    ("line", "may"),
    [("CapEff:\t000001ffffffffff", True), ("CapEff:\t00000000a80425fb", False), ("CapPrm:\t0", False)],
)
def test_the_right_to_enter(tmp_path: Path, line: str, may: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tx\n{line}\n")
    assert may_enter(status) is may
