"""Ports of the host for what pods publish: free, nobody else's, and none of another pod's."""

from __future__ import annotations

import socket

import pytest

from stoker.agent.host.free_ports import PORTS, HostPorts, NoPort, free_ports, is_free


def test_they_are_free_differ_and_are_no_pods() -> None:
    found = free_ports(3, {3, 5}, lambda port: port != 7, range(1, 9))
    assert len(set(found)) == 3
    assert set(found) <= {1, 2, 4, 6, 8}
    assert sorted(free_ports(5, {3, 5}, lambda port: port != 7, range(1, 9))) == [1, 2, 4, 6, 8]
    with pytest.raises(NoPort, match="6 ports are needed, and this host has 5 free ones"):
        free_ports(6, {3, 5}, lambda port: port != 7, range(1, 9))
    assert free_ports(0, (), lambda port: False) == []


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_one_that_somebody_listens_at_is_not_free(kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as listening:
        listening.bind(("127.0.0.1", 0))
        assert not is_free(listening.getsockname()[1])


def test_a_host_has_some() -> None:
    (port,) = free_ports(1, ())
    assert port in PORTS


def test_no_two_owners_have_a_port_whether_or_not_anything_listens_there() -> None:
    ports = HostPorts(lambda port: True)
    ports.keep("stopped-pod", set(PORTS) - {20_000, 20_001})
    (first,) = ports.take("worker", 1)
    (second,) = ports.take("pod", 1)
    assert {first, second} == {20_000, 20_001}
    with pytest.raises(NoPort, match="1 ports are needed"):
        ports.take("another", 1)
    ports.give_back("worker")
    assert ports.take("another", 1) == [first]
