"""Decides who may have one more of a few slots, so that one who holds slots for long does not block the
others. Pure.

A slot is held for an account and, within it, for the host that the account calls. An account gets at most
half of the slots that the other accounts leave free, and one host gets at most half of what the account's
other hosts leave of that. So a newcomer finds a slot however long the others hold theirs, until as many
accounts (or hosts of one account) hold slots as the number of slots can be halved.
"""

from __future__ import annotations

from collections.abc import Mapping

Requester = tuple[str, str]
"""An account, and the host that it calls."""

SlotsInUse = Mapping[Requester, int]


def admits(in_use: SlotsInUse, requester: Requester, slots: int) -> bool:
    """Whether `requester` gets one of the `slots` now."""
    account = requester[0]
    if sum(in_use.values()) >= slots or account_is_full(in_use, account, slots):
        return False
    own = in_use.get(requester, 0)
    return own < _half(_share(in_use, account, slots) - _of_account(in_use, account) + own)


def account_is_full(in_use: SlotsInUse, account: str, slots: int) -> bool:
    """Whether no host of the account gets a further slot now."""
    return _of_account(in_use, account) >= _share(in_use, account, slots)


def _share(in_use: SlotsInUse, account: str, slots: int) -> int:
    return _half(slots - sum(in_use.values()) + _of_account(in_use, account))


def _of_account(in_use: SlotsInUse, account: str) -> int:
    return sum(count for (one, _), count in in_use.items() if one == account)


def _half(slots: int) -> int:
    return max(1, slots // 2)
