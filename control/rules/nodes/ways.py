"""The ways in which control reaches the http workers of a node, and which it tries first. Pure.

    local    the agent's port on loopback, in the clear    it is in control's own network namespace
    direct   the node's gateway port, over TLS             its agent listens there
    tunnel   a stream that the agent opened                always, but each byte takes a detour

They are tried in this order, those that failed a moment ago last: a node behind NAT may name an address that
nobody reaches. A way that failed is tried again after AVOID_S, then after twice as long each time, up to
AVOID_MAX_S. All of it is forgotten when the node's next session begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.wire.records import Hiding

Way = Literal["local", "direct", "tunnel"]
WAYS: tuple[Way, ...] = ("local", "direct", "tunnel")

AVOID_S = 60.0
AVOID_MAX_S = 3600.0


class NodeGateway(Hiding, frozen=True):
    """A port of a node's agent. With a `certificate` (DER), it speaks TLS and shows that one."""

    HIDDEN = ("token", "certificate")

    host: str
    port: int
    token: str
    certificate: bytes = b""

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Failure(Struct, frozen=True):
    why: str
    avoid_s: float
    until: float


class Reach(Struct, frozen=True):
    """The ways to a node in one session. `tunnels`: its agent opens a tunnel; `tunnel_open`: the tunnel is
    there."""

    ports: Mapping[Way, NodeGateway] = field(default_factory=dict)
    tunnels: bool = False
    tunnel_open: bool = False
    failures: Mapping[Way, Failure] = field(default_factory=dict)

    @property
    def wants_tunnel(self) -> bool:
        """True if control requests a tunnel from the agent."""
        return self.tunnels and "local" not in self.ports

    @property
    def possible(self) -> bool:
        """True if there is any way, now or in a moment."""
        return bool(self.ports) or self.tunnels

    def failed(self, way: Way, why: str, now: float) -> Reach:
        earlier = self.failures.get(way)
        if earlier is not None and now < earlier.until:
            return self  # requests that were tried together count once
        avoid_s = AVOID_S if earlier is None else min(2 * earlier.avoid_s, AVOID_MAX_S)
        return replace(self, failures={**self.failures, way: Failure(why, avoid_s, now + avoid_s)})

    def worked(self, way: Way) -> Reach:
        if way not in self.failures:
            return self
        return replace(self, failures={known: one for known, one in self.failures.items() if known != way})


class Chosen(Struct, frozen=True):
    """A way to a node. `why` is a sentence about the node, for its operator."""

    way: Way
    why: str


def allowed(reach: Reach, ways: Collection[Way]) -> Reach:
    """Returns the ways without those that the operator of control has disabled."""
    ports = {way: port for way, port in reach.ports.items() if way in ways}
    return replace(reach, ports=ports, tunnels=reach.tunnels and "tunnel" in ways)


def choose(reach: Reach, now: float) -> tuple[Chosen, ...]:
    """Returns the ways in the order in which they are tried; none where the node cannot be reached now."""
    tunnel = reach.tunnels and reach.tunnel_open
    there = [way for way in WAYS if way in reach.ports or (way == "tunnel" and tunnel)]
    avoided = [way for way in there if way in reach.failures and now < reach.failures[way].until]
    return tuple(
        Chosen(way, _why(reach, way)) for way in [*(one for one in there if one not in avoided), *avoided]
    )


def _why(reach: Reach, way: Way) -> str:
    failed = [f"{one} failed: {reach.failures[one].why}" for one in WAYS if one in reach.failures]
    if failed:
        return "; ".join(failed)
    if way == "tunnel":
        return "control knows no port of the node"
    where = "on this host" if way == "local" else "its gateway port"
    return f"{where}, {reach.ports[way].address}"
