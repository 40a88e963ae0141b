"""Decides who may have one more connection to control's doors, so that no address fills them. It waits for
nothing.

Of the files that the process may have open, a third is for callers, a third for agents, and a third for what
control itself opens: the store, and connections to workers and webhooks. An address gets at most half of what
the others leave free, so that one that holds all it can leaves room for others, and these for still others.
An IPv6 caller has a whole network of addresses (/64), which counts as one.
"""

from __future__ import annotations

import resource
from collections import Counter
from ipaddress import IPv6Address, ip_address

OPEN_FILES = 65_536
"""Where the system allows more, this is enough, and what walks all descriptors stays quick."""

NETWORK_BITS = 64


def raise_open_files() -> None:
    """Raises the process's own limit as far as it may: the usual 1,024 is for programs with select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def connections_of_a_door() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (OPEN_FILES if soft == resource.RLIM_INFINITY else soft) // 3


class ConnectionShares:
    """Counts the connections of one door by address. Without `by_address`, as behind a proxy, all callers
    have the same one, and only their number is limited."""

    def __init__(self, most: int, *, by_address: bool = True) -> None:
        self._most = most
        self._by_address = by_address
        self._taken: Counter[str] = Counter()
        self._total = 0

    @property
    def taken(self) -> int:
        """The number of connections."""
        return self._total

    def enter(self, address: str) -> bool:
        """Returns whether this address may open a connection. If so, the connection is counted until it
        leaves."""
        sharer = _sharer(address)
        own, free = self._taken[sharer], self._most - self._total
        if free <= 0 or (self._by_address and own >= max(1, (free + own) // 2)):
            self._taken += Counter()  # forgets those that have none
            return False
        self._taken[sharer] += 1
        self._total += 1
        return True

    def leave(self, address: str) -> None:
        sharer = _sharer(address)
        self._total -= 1
        self._taken[sharer] -= 1
        if not self._taken[sharer]:
            del self._taken[sharer]


def _sharer(address: str) -> str:
    """Returns an IPv4 address itself, and the network of an IPv6 address."""
    if ":" not in address:
        return address
    found = ip_address(address.partition("%")[0])
    assert isinstance(found, IPv6Address)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(IPv6Address(int(found) >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS)))
