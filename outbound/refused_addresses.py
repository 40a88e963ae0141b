"""Decides whether a URL may be connected to: the reason for a refusal, or None. Pure: resolves no name.

`refusal` checks a URL together with the addresses that its host resolved to. The caller then connects to
exactly those addresses and to no others, so it does not matter how another parser would read the host, or
what it resolves to a moment later.

    never                     0.0.0.0/8, link-local, multicast, reserved, documentation, cloud metadata
    only with allow_private   loopback, 10/8, 172.16/12, 192.168/16, CGNAT 100.64/10, fc00::/7
    IPv4 inside IPv6          (mapped, compatible, 6to4, NAT64) is checked as the IPv4 address it reaches
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

_METADATA = {ip_address("100.100.100.200"), ip_address("168.63.129.16"), ip_address("fd00:ec2::254")}
"""Metadata services outside the link-local range, or inside a range that `allow_private` allows."""

_PRIVATE = {
    ip_network("127.0.0.0/8"): "loopback",
    ip_network("10.0.0.0/8"): "private",
    ip_network("172.16.0.0/12"): "private",
    ip_network("192.168.0.0/16"): "private",
    ip_network("100.64.0.0/10"): "shared (CGNAT)",
    ip_network("::1/128"): "loopback",
    ip_network("fc00::/7"): "private",
}

_NEVER = {
    ip_network("0.0.0.0/8"): "unspecified",
    ip_network("169.254.0.0/16"): "link-local",
    ip_network("192.0.0.0/24"): "reserved",
    ip_network("192.0.2.0/24"): "documentation",
    ip_network("192.88.99.0/24"): "reserved",
    ip_network("198.18.0.0/15"): "benchmarking",
    ip_network("198.51.100.0/24"): "documentation",
    ip_network("203.0.113.0/24"): "documentation",
    ip_network("224.0.0.0/4"): "multicast",
    ip_network("240.0.0.0/4"): "reserved",
    ip_network("::/128"): "unspecified",
    ip_network("fe80::/10"): "link-local",
    ip_network("fec0::/10"): "site-local",
    ip_network("ff00::/8"): "multicast",
    ip_network("2001::/23"): "reserved",
    ip_network("2001:db8::/32"): "documentation",
    ip_network("3fff::/20"): "documentation",
}

_GLOBAL_V6 = IPv6Network("2000::/3")
_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")


def is_loopback(host: str) -> bool:
    """Returns whether `host` is this machine, by its name or number alone; resolves nothing."""
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def redacted_url(url: str) -> str:
    """Returns `url` for a message or a log: without credentials, query and fragment, which may be secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "the URL"
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"[:200]


def refusal(url: str, addresses: Sequence[str], allow_private: bool) -> str | None:
    """Returns why `url`, whose host has these `addresses`, may not be used; None if `url` may be used.

    One forbidden address is enough: an honest name does not mix private and public addresses.
    """
    if why := malformed(url):
        return why
    if not addresses:
        return f"{redacted_url(url)} is refused: its host has no address"
    for address in addresses:
        if kind := forbidden(address, allow_private):
            return f"{redacted_url(url)} is refused: its host is the {kind} address {address}"
    return None


def refusal_before_lookup(url: str, allow_private: bool) -> str | None:
    """Returns the refusal that the URL alone decides: of hosts that are numbers or names of this machine."""
    if why := malformed(url):
        return why
    host = (urlsplit(url).hostname or "").rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return refusal(url, ("127.0.0.1",), allow_private)
    address = _numeric(host)
    return None if address is None else refusal(url, (str(address),), allow_private)


def _numeric(host: str) -> Address | None:
    """Returns the address that a resolver makes of a host of numbers: 127.1 and 0x7f000001 are loopback,
    too."""
    try:
        return ip_address(host)
    except ValueError:
        parts = host.split(".")
    numbers = [_number(part) for part in parts]
    if len(parts) > 4 or None in numbers:
        return None
    *high, low = (number or 0 for number in numbers)
    if any(number > 255 for number in high) or low >= 1 << 8 * (4 - len(high)):
        return None
    return IPv4Address(sum(number << 8 * (3 - at) for at, number in enumerate(high)) + low)


def _number(part: str) -> int | None:
    base = 16 if part[:2] in ("0x", "0X") else 8 if part[:1] == "0" else 10
    digits = part[2:] if base == 16 else part
    if not (digits.isascii() and digits.isalnum()):
        return None
    try:
        return int(digits, base)
    except ValueError:
        return None


def malformed(url: str) -> str | None:
    """Returns what is wrong with the URL itself, before its host is resolved; None if nothing is wrong."""
    if any(c.isspace() or ord(c) < 0x20 or c in "\\\x7f" for c in url):
        return "the URL is refused: it holds a space, a control character or a backslash"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "the URL is refused: it cannot be read as one"
    if parts.scheme not in ("http", "https"):
        return f"{redacted_url(url)} is refused: the scheme must be http or https"
    if "@" in parts.netloc:
        return f"{redacted_url(url)} is refused: a URL must not hold a user name or a password"
    if not host or port == 0:
        return f"{redacted_url(url)} is refused: it names no host or port 0"
    return None


def forbidden(address: str, allow_private: bool) -> str | None:
    """Returns the kind of a forbidden address, such as "loopback"; None for an allowed address."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unreadable"
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            return "link-local"
        parsed = _reached(parsed)
    return _kind(parsed, allow_private)


def _reached(address: IPv6Address) -> Address:
    """Returns the IPv4 address that traffic to `address` reaches, if `address` embeds one, else `address`."""
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        return IPv4Address(number & 0xFFFFFFFF)
    if address in _COMPATIBLE and number > 1:  # :: and ::1 are themselves
        return IPv4Address(number & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(number >> 80 & 0xFFFFFFFF)
    return address


def _kind(address: Address, allow_private: bool) -> str | None:
    if address in _METADATA:
        return "cloud metadata"
    for network, kind in _NEVER.items():
        if address in network:
            return kind
    for network, kind in _PRIVATE.items():
        if address in network:
            return None if allow_private else kind
    if isinstance(address, IPv6Address) and address not in _GLOBAL_V6:
        return "reserved"
    return None
