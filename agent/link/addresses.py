"""The addresses of control: which of them an agent tries next, and whether it waits before that. Pure.

A standby listens only once it leads, and one address at most is of a control that leads. So each is tried in
turn, without a pause within a round, and an agent stays at the one that welcomed it. One that answers no more
counts as one that did not: it may stand still, and another lead.
"""

from __future__ import annotations

from msgspec import Struct


class Addresses(Struct, frozen=True):
    """The addresses of control. `at` is the index of the one to connect to; `failed`: how many in a row did
    not welcome this node."""

    all: tuple[str, ...]
    at: int = 0
    failed: int = 0

    @property
    def current(self) -> str:
        return self.all[self.at]


def parse_addresses(text: str) -> Addresses:
    """Returns the addresses of a list with commas. Raises ValueError, with a sentence."""
    found = tuple(part.strip() for part in text.split(","))
    if "" in found:
        raise ValueError("an address is empty: it must read HOST:PORT, or HOST:PORT,HOST:PORT")
    if len(set(found)) < len(found):
        raise ValueError("an address is there twice")
    return Addresses(found)


def after_session(addresses: Addresses, *, welcomed: bool) -> tuple[Addresses, bool]:
    """Returns the addresses after a session has ended or was not to be had, and whether to wait before the
    next connection: not within a round in which some have not been tried."""
    if welcomed:
        return Addresses(addresses.all, addresses.at), True
    failed = addresses.failed + 1
    following = Addresses(addresses.all, (addresses.at + 1) % len(addresses.all), failed)
    return following, failed % len(addresses.all) == 0
