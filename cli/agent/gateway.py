"""The ports at which control reaches this host's http workers, as its operator configured them.

STOKER_GATEWAY_LISTEN           HOST:PORT, or --gateway-listen; without it only a control on this host has one
STOKER_GATEWAY_ADVERTISE        HOST or HOST:PORT at which control reaches it, or --gateway-advertise
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from stoker.agent.host.own_network import LOOPBACK
from stoker.agent.workers.http_servers.gateway_port import GatewayPort
from stoker.agent.workers.http_servers.relay import Relay
from stoker.cli.errors import CliError
from stoker.wire.messages import DirectGateway, GatewayAddress
from stoker.wire.network_namespace import network_namespace

LISTEN, ADVERTISE = "STOKER_GATEWAY_LISTEN", "STOKER_GATEWAY_ADVERTISE"


@dataclass(frozen=True, slots=True)
class GatewayAt:
    """The address of a gateway port. An empty `advertised_host` stands for the address that the session comes
    from."""

    host: str
    port: int
    advertised_host: str
    advertised_port: int


class Gateways:
    """The open ports, and how control reaches them."""

    def __init__(self) -> None:
        self.local: GatewayAddress | None = None
        self.direct: DirectGateway | None = None
        self._ports: list[GatewayPort] = []

    async def open_local(self, relay: Relay) -> None:
        port = GatewayPort(relay)
        await port.open(LOOPBACK, 0)
        self._ports.append(port)
        self.local = GatewayAddress(port.port, port.token, network_namespace())

    async def open_direct(self, relay: Relay, at: GatewayAt, folder: Path) -> None:
        """Raises CliError where the address cannot be listened at."""
        from stoker.agent.workers.http_servers.certificate import make_certificate

        context, certificate = make_certificate(folder)
        port = GatewayPort(relay, context)
        try:
            await port.open(at.host, at.port)
        except OSError as error:
            raise CliError(
                f"cannot listen at the gateway port {at.host}:{at.port}: {error.strerror or error}"
            ) from None
        self._ports.append(port)
        self.direct = DirectGateway(
            at.advertised_host, at.advertised_port or port.port, port.token, certificate
        )

    async def close(self) -> None:
        """Closes the ports: no more connections are accepted."""
        for port in self._ports:
            await port.close()


async def open_gateways(relay: Relay, at: GatewayAt | None, folder: Path, *, here: bool) -> Gateways:
    """Opens the gateways of this host. `here`: control is on this host. Raises CliError."""
    opened = Gateways()
    if here:
        await opened.open_local(relay)
    if at is not None:
        await opened.open_direct(relay, at, folder)
    return opened


def gateway_at(listen: str | None, advertise: str | None, variables: Mapping[str, str]) -> GatewayAt | None:
    """Returns where this host's gateway port is; None if this host has none. Raises CliError."""
    listen, advertise = listen or variables.get(LISTEN), advertise or variables.get(ADVERTISE)
    if not listen:
        if advertise:
            raise CliError("--gateway-advertise names a port that --gateway-listen must open: give both")
        return None
    host, port = _address(listen, "--gateway-listen")
    if port is None:
        raise CliError(f"--gateway-listen must be HOST:PORT, such as 0.0.0.0:8002; got {listen!r}")
    if advertise:
        advertised_host, advertised_port = _address(advertise, "--gateway-advertise")
        return GatewayAt(host, port, advertised_host, advertised_port or 0)
    return GatewayAt(host, port, "" if ip_address(host).is_unspecified else host, 0)


def _address(text: str, option: str) -> tuple[str, int | None]:
    """Returns the IP address and the port of `10.0.0.7`, `10.0.0.7:8002` or `[fd00::7]:8002`."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in host and not host.startswith("[")):
        host, port = text, ""
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise CliError(f"{option} must begin with an IP address; got {text!r}") from None
    if port and not (port.isascii() and port.isdigit() and int(port) < 65_536):
        raise CliError(f"{option}: {port!r} is not a port")
    return str(address), int(port) if port else None
