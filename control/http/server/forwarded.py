"""The caller behind proxies, read from their X-Forwarded-For and X-Forwarded-Proto. Pure.

    caller ──> proxy ──> trusted proxy ──> here
               "claimed, caller"  "claimed, caller, proxy"

Each proxy appends the address that called it. So the entries of trusted proxies are at the right. The first
entry from the right that is not a trusted proxy's address is the caller's; anybody can have written the
entries before it. uvicorn has such a reading, too, but not for WebSockets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from msgspec import Struct

Header = tuple[bytes, bytes]

_SCHEMES = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


class Proxies(Struct, frozen=True):
    """Proxies in front of this server. What calls this server directly is a proxy, whatever its address: the
    operator declared that nobody else reaches the server. `trusted` are the addresses of further proxies, in
    front of that one."""

    trusted: Sequence[IPv4Network | IPv6Network] = ()

    @classmethod
    def parse(cls, addresses: Iterable[str]) -> Self:
        """Reads the addresses of proxies. `addresses` are single ones or networks. Raises ValueError."""
        return cls(tuple(ip_network(address) for address in addresses))

    def caller(self, headers: Sequence[Header], peer: str) -> str:
        """Returns the caller's address, or `peer`, which called this server, where no header names a
        caller."""
        values = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
        found = peer
        for entry in reversed(",".join(values).split(",")):
            address = _address(entry.strip())
            if address is None:
                return found
            found = str(address)
            if not any(address in network for network in self.trusted):
                return found
        return found

    def scheme(self, headers: Sequence[Header], own: str) -> str:
        """Returns the scheme of the caller's request, http or https; `own` where no header has it."""
        values = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-proto"]
        return _SCHEMES.get(",".join(values).rpartition(",")[2].strip().lower(), own)


def _address(entry: str) -> IPv4Address | IPv6Address | None:
    """Returns the address of an entry, which may have a port: `192.0.2.1:80`, `[2001:db8::1]:80`. A proxy
    that listens at an IPv6 address writes an IPv4 caller as `::ffff:192.0.2.1`."""
    if entry.startswith("["):
        entry = entry[1:].partition("]")[0]
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        address = ip_address(entry)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
