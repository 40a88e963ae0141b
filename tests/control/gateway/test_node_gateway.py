"""Where control reaches a node's http workers: at the session's own address, and only on this host."""

from __future__ import annotations

import pytest

from stoker.control.rules.hello import NodeGateway, gateway_of
from stoker.wire.messages import GatewayAddress

TOKEN = "a-token-of-the-agent"


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
    found = gateway_of(GatewayAddress(20_000, TOKEN), peer)
    assert found == (None if host is None else NodeGateway(host, 20_000, TOKEN))
    assert TOKEN not in repr(found)


@pytest.mark.parametrize(
    "told",
    [
        None,
        GatewayAddress(0, TOKEN),
        GatewayAddress(65_536, TOKEN),
        GatewayAddress(20_000, ""),
        GatewayAddress(20_000, "short"),
        GatewayAddress(20_000, TOKEN + "\r\nX: y"),
        GatewayAddress(20_000, "a" * 257),
    ],
)
def test_what_is_no_gateway(told: GatewayAddress | None) -> None:
    assert gateway_of(told, "ipv4:127.0.0.1:4711") is None
