"""The callers that the local server refuses: pages in a browser, because it requires no key. Pure.

a page of another site, or of      Sec-Fetch-Site, which browsers send to this machine and over TLS; else
another port of this machine       Origin, which they send with every POST
a page whose name was made to      the Host header: a name that anybody could register is refused
lead here (DNS rebinding)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""The names of this machine in the Host header."""

PORTS = {"http": 80, "https": 443}
OF_NO_OTHER_SITE = ("same-origin", "none")
PRIVATE_ENDINGS = (".localhost", ".local", ".internal", ".lan", ".home.arpa")
"""Of names that nobody can register."""


@dataclass(frozen=True, slots=True)
class Callers:
    """The callers that the local server answers. `hosts`: the names in the Host header. With `network`,
    addresses and names that no public name server knows are allowed, too."""

    hosts: frozenset[str] = LOOPBACK
    network: bool = False

    def refusal(self, headers: Mapping[str, str]) -> str | None:
        """Returns why a request with these headers is refused, if it is."""
        host, origin = headers.get("host", ""), headers.get("origin")
        site = headers.get("sec-fetch-site")
        if site is None and origin is not None and not _same_place(origin, host):
            site = "cross-site"
        if site is not None and site not in OF_NO_OTHER_SITE:
            return "a page of another site or of another port may not call these functions"
        name = _name(host)
        if name in self.hosts or (self.network and name is not None and _is_private(name)):
            return None
        allowed = ", ".join(sorted(self.hosts)) + (", an address or a local name" if self.network else "")
        return f"the Host header must be one of {allowed}; got {name}; have your proxy send localhost"


def _same_place(origin: str, host: str) -> bool:
    """Returns whether both are the same name and port. A scheme's own port may be left out."""
    try:
        scheme = urlsplit(origin).scheme
        page, server = urlsplit(origin), urlsplit(f"{scheme}://{host}")
        default = PORTS.get(scheme)
        return page.hostname is not None and (page.hostname, page.port or default) == (
            server.hostname,
            server.port or default,
        )
    except ValueError:  # as of "http://["
        return False


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_private(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(PRIVATE_ENDINGS)
    return True
