"""Where control reaches a node's http workers: in the clear on this host only, over TLS elsewhere, too."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.nodes.hello import CERTIFICATE_MAX, reach_of
from stoker.control.rules.nodes.ways import NodeGateway
from stoker.wire.messages import PROTOCOL, DirectGateway, GatewayAddress, Hello

TOKEN = "a-token-of-the-agent"
SHARED = "the namespace of control"
LOOPBACK = "ipv4:127.0.0.1:4711"
CERTIFICATE = b"certificate"


def local(told: GatewayAddress | None, peer: str) -> NodeGateway | None:
    return reach_of(Hello(PROTOCOL, "n", "n", "b", "1", gateway=told), peer, SHARED).ports.get("local")


def direct(told: DirectGateway | None, peer: str) -> NodeGateway | None:
    return reach_of(Hello(PROTOCOL, "n", "n", "b", "1", direct=told), peer, SHARED).ports.get("direct")


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:4711", "127.0.0.1"),
        ("ipv6:[::1]:4711", "::1"),
        ("ipv6:%5B::1%5D:4711", "::1"),
        ("ipv4:10.0.0.7:4711", None),
        ("ipv6:%5B2001:db8::1%5D:4711", None),
        ("ipv4:localhost.example.org:1", None),
        ("unix:/run/control", None),
        ("", None),
    ],
)
def test_the_address_is_the_sessions(peer: str, host: str | None) -> None:
    found = local(GatewayAddress(20_000, TOKEN, SHARED), peer)
    assert found == (None if host is None else NodeGateway(host, 20_000, TOKEN))
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    "told",
    [
        None,
        GatewayAddress(0, TOKEN, SHARED),
        GatewayAddress(65_536, TOKEN, SHARED),
        GatewayAddress(20_000, "", SHARED),
        GatewayAddress(20_000, "short", SHARED),
        GatewayAddress(20_000, TOKEN + "\r\nX: y", SHARED),
        GatewayAddress(20_000, "a" * 257, SHARED),
    ],
)
def test_what_is_no_gateway(told: GatewayAddress | None) -> None:
    assert local(told, "ipv4:127.0.0.1:4711") is None


@given(
    st.sampled_from([LOOPBACK, "ipv6:%5B::1%5D:4711", "ipv4:10.0.0.7:4711", "unix:/run/control", ""]),
    st.sampled_from(["", SHARED, "another", SHARED.upper(), SHARED + " "]) | st.text(),
    st.sampled_from(["", SHARED, "another"]),
    st.booleans(),
)
def test_only_one_that_shares_the_loopback_is_local_and_any_other_gets_a_tunnel(
    peer: str, theirs: str, here: str, tunnels: bool
) -> None:
    gateway = GatewayAddress(20_000, TOKEN, theirs)
    hello = Hello(PROTOCOL, "n", "n", "b", "1", gateway=gateway, tunnels=tunnels)
    reach = reach_of(hello, peer, here)
    shares = ("127.0.0.1" in peer or "::1" in peer) and here != "" and theirs == here
    assert ("local" in reach.ports) is shares
    assert reach.wants_tunnel is (tunnels and not shares)


@pytest.mark.parametrize(
    ("named", "peer", "host"),
    [
        ("", "ipv4:10.0.0.7:4711", "10.0.0.7"),
        ("", "ipv6:%5Bfd00::7%5D:4711", "fd00::7"),
        ("10.0.0.8", "ipv4:10.0.0.7:4711", "10.0.0.8"),
        ("", "ipv4:127.0.0.1:4711", "127.0.0.1"),
        ("127.0.0.1", "ipv4:127.0.0.1:4711", "127.0.0.1"),
        ("127.0.0.1", "ipv4:10.0.0.7:4711", None),
        ("::1", "ipv4:10.0.0.7:4711", None),
        ("::ffff:127.0.0.1", "ipv4:10.0.0.7:4711", None),
        ("169.254.169.254", "ipv4:10.0.0.7:4711", None),
        ("0.0.0.0", "ipv4:10.0.0.7:4711", None),
        ("node.example.org", "ipv4:10.0.0.7:4711", None),
        ("", "unix:/run/control", None),
        ("10.0.0.8", "unix:/run/control", "10.0.0.8"),
    ],
)
def test_a_port_with_tls_may_be_elsewhere_but_on_no_host_that_is_not_a_nodes(
    named: str, peer: str, host: str | None
) -> None:
    found = direct(DirectGateway(named, 8002, TOKEN, CERTIFICATE), peer)
    assert found == (None if host is None else NodeGateway(host, 8002, TOKEN, CERTIFICATE))


@pytest.mark.parametrize(
    "told",
    [
        DirectGateway("", 0, TOKEN, CERTIFICATE),
        DirectGateway("", 8002, "short", CERTIFICATE),
        DirectGateway("", 8002, TOKEN, b""),
        DirectGateway("", 8002, TOKEN, bytes(CERTIFICATE_MAX + 1)),
    ],
)
def test_what_is_no_port_with_tls(told: DirectGateway) -> None:
    assert direct(told, "ipv4:10.0.0.7:4711") is None


def test_an_agent_that_knows_of_neither_has_no_other_way() -> None:
    assert not reach_of(Hello(PROTOCOL, "n", "n", "b", "1"), "ipv4:10.0.0.7:4711", SHARED).possible
