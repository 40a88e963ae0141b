"""Gives out free ports of this host: to pods for what they publish, and to http workers.

The ports are below the range from which the kernel takes ports for outgoing connections. A port that was free
when a container was created is therefore mostly free when it is started again.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Collection, Iterable
from random import SystemRandom

PORTS = range(20_000, 32_768)


class NoPort(Exception):
    """Too few ports are free. The message is for the owner of the pod or endpoint."""


def is_free(port: int) -> bool:
    """Returns whether nothing listens at the port, by TCP or UDP, at any address."""
    families = (socket.AF_INET6, socket.AF_INET) if socket.has_dualstack_ipv6() else (socket.AF_INET,)
    for family in families:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(family, kind) as tried:
                if family == socket.AF_INET6:
                    tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                try:
                    tried.bind(("", port))
                except OSError:
                    return False
    return True


def free_ports(
    count: int, taken: Collection[int], free: Callable[[int], bool] = is_free, ports: range = PORTS
) -> list[int]:
    """Returns free ports that are not in `taken`: a stopped container keeps its ports. Raises NoPort."""
    found: list[int] = []
    for port in SystemRandom().sample(ports, len(ports)) if count else ():
        if port not in taken and free(port):
            found.append(port)
        if len(found) == count:
            return found
    if count:
        raise NoPort(f"{count} ports are needed, and this host has {len(found)} free ones")
    return []


class HostPorts:
    """The ports that this agent gave out, by owner: no other owner gets them, whether anything listens there
    or not. A pod keeps its ports while it is stopped. May be used in threads."""

    def __init__(self, free: Callable[[int], bool] = is_free) -> None:
        self._free = free
        self._of: dict[str, frozenset[int]] = {}
        self._lock = threading.Lock()

    def take(self, owner: str, count: int) -> list[int]:
        """Takes free ports for the owner, in place of those it had, if any. Raises NoPort."""
        with self._lock:
            found = free_ports(count, frozenset().union(*self._of.values()), self._free)
            self._of[owner] = frozenset(found)
        return found

    def keep(self, owner: str, ports: Iterable[int]) -> None:
        """Keeps for the owner ports that it has already."""
        with self._lock:
            self._of[owner] = frozenset(ports)

    def give_back(self, owner: str) -> None:
        with self._lock:
            self._of.pop(owner, None)
