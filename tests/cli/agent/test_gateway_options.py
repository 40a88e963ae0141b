"""--gateway-listen and --gateway-advertise: where an agent listens, and what it tells control."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.agent.host.free_ports import HostPorts
from stoker.agent.workers.http_servers.relay import Relay
from stoker.agent.workers.http_servers.worker_ports import WorkerPorts
from stoker.cli.agent.gateway import GatewayAt, gateway_at, open_gateways
from stoker.cli.errors import CliError


@pytest.mark.parametrize(
    ("listen", "advertise", "found"),
    [
        ("0.0.0.0:8002", None, GatewayAt("0.0.0.0", 8002, "", 0)),
        ("10.0.0.7:8002", None, GatewayAt("10.0.0.7", 8002, "10.0.0.7", 0)),
        ("[::]:8002", "198.18.0.7", GatewayAt("::", 8002, "198.18.0.7", 0)),
        ("[fd00::7]:8002", "[fd00::8]:9002", GatewayAt("fd00::7", 8002, "fd00::8", 9002)),
        ("10.0.0.7:8002", "fd00::8", GatewayAt("10.0.0.7", 8002, "fd00::8", 0)),
        (None, None, None),
    ],
)
def test_what_is_configured(listen: str | None, advertise: str | None, found: GatewayAt | None) -> None:
    assert gateway_at(listen, advertise, {}) == found
    variables = {"STOKER_GATEWAY_LISTEN": listen or "", "STOKER_GATEWAY_ADVERTISE": advertise or ""}
    assert gateway_at(None, None, variables) == found


@pytest.mark.parametrize(
    ("listen", "advertise", "why"),
    [
        ("0.0.0.0", None, "must be HOST:PORT"),
        ("localhost:8002", None, "must begin with an IP address"),
        ("0.0.0.0:80000", None, "'80000' is not a port"),
        ("0.0.0.0:8002", "node.example.org", "--gateway-advertise must begin with an IP address"),
        (None, "10.0.0.7", "give both"),
    ],
)
def test_what_is_refused(listen: str | None, advertise: str | None, why: str) -> None:
    with pytest.raises(CliError, match=why):
        gateway_at(listen, advertise, {})


async def test_an_agent_tells_control_of_the_ports_that_it_opened(tmp_path: Path) -> None:
    relay = Relay(WorkerPorts(HostPorts()))
    at = gateway_at("127.0.0.1:0", "10.0.0.7:9002", {})
    both = await open_gateways(relay, at, tmp_path, here=True)
    assert both.local is not None
    assert both.direct is not None
    assert (both.direct.host, both.direct.port) == ("10.0.0.7", 9002)
    assert both.local.token != both.direct.token
    taken = gateway_at(f"127.0.0.1:{both.local.port}", None, {})
    with pytest.raises(CliError, match="cannot listen at the gateway port"):
        await open_gateways(relay, taken, tmp_path, here=False)
    neither = await open_gateways(relay, None, tmp_path, here=False)
    assert (neither.local, neither.direct) == (None, None)
    await both.close()
    await relay.close()
