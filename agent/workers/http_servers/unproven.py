"""Connections to a gateway port that have brought no proof yet, and which must go for another. Pure.

A newcomer always gets a place, mostly that of the oldest: control proves itself within a round trip, and who
stays silent waits the longest. Places are shared by address:

| address | places |
|---|---|
| it never brought proof | FROM_ONE, and STRANGERS of all such; beyond that, who has the most gives one |
| it did, as control's | KNOWN of its own, which strangers there share with control |
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

FROM_ONE = 8
STRANGERS = 64
KNOWN = 512
"""Control may open many connections at once."""

ADDRESSES = 64
"""Addresses that are remembered for their proof, the latest."""

C = TypeVar("C", bound=Hashable)


class Waiting(Generic[C]):
    """The connections `C` without proof, by address, the oldest first."""

    def __init__(self) -> None:
        self._by_address: dict[str, OrderedDict[C, None]] = {}
        self._address: dict[C, str] = {}
        self._known: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, connection: C) -> bool:
        return connection in self._address

    def __len__(self) -> int:
        return len(self._address)

    def add(self, connection: C, address: str) -> C | None:
        """Takes a newcomer. Returns which one must go for it, and no longer waits."""
        gone = self._to_go(address)
        if gone is not None:
            self.remove(gone)
        self._by_address.setdefault(address, OrderedDict())[connection] = None
        self._address[connection] = address
        return gone

    def remove(self, connection: C) -> None:
        """Removes a connection that has ended; does nothing if it left already."""
        address = self._address.pop(connection, None)
        if address is not None:
            same = self._by_address[address]
            del same[connection]
            if not same:
                del self._by_address[address]

    def proven(self, connection: C) -> None:
        """Removes a connection that brought its proof, which makes its address a known one."""
        address = self._address.get(connection)
        if address is None:
            return
        self.remove(connection)
        self._known[address] = None
        self._known.move_to_end(address)
        if len(self._known) > ADDRESSES:
            self._known.popitem(last=False)

    def _to_go(self, address: str) -> C | None:
        own = self._by_address.get(address, ())
        if len(own) >= (KNOWN if address in self._known else FROM_ONE):
            return next(iter(own))
        if address in self._known:
            return None
        strangers = {one: len(ones) for one, ones in self._by_address.items() if one not in self._known}
        if sum(strangers.values()) < STRANGERS:
            return None
        return next(iter(self._by_address[max(strangers, key=strangers.__getitem__)]))
