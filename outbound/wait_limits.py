"""The rule for whoever waits on somebody else's server: uploads, inputs, webhooks, tunnels, the bodies of
requests. Decides who may wait, and for how long. Pure; `outbound.waits` carries out what it decides.

- A wait has a deadline for the whole, which grows with the bytes that it moves.
- A wait holds a slot for its caller: for an account, in it for a key, in it for an endpoint, and in it for
  the host that is waited for. At each of these levels one group leaves half of the free slots (or a quarter)
  to groups that come later: a newcomer finds a slot, however long the others hold theirs, until as many
  groups hold slots as the number of slots can be halved.
- The platform's own store has slots that nothing else gets.
- Nothing that waits holds up an exit: a wait is cancelled, and what blocks a thread is ended
  (`outbound.line`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

Group: TypeAlias = tuple[str, ...]
"""Whose slots: their kind (OWN or OTHERS), then account, key, endpoint and host, or the first of these."""

Held: TypeAlias = Mapping[Group, int]
"""How many slots each group holds, the smaller groups within it included. Unknown groups hold none."""

OWN, OTHERS = "own", "others"


@dataclass(frozen=True, slots=True)
class Waiter:
    """A caller, and the host that it waits for. `own`: that is the platform's own store."""

    account: str = ""
    key: str = ""
    endpoint: str = ""
    host: str = ""
    own: bool = False

    def at(self, host: str, *, own: bool = False) -> Waiter:
        """Returns the same caller, waiting for this host."""
        return replace(self, host=host, own=own)

    @property
    def group(self) -> Group:
        """Returns the smallest group of the waiter. The platform's own store is one host."""
        caller = (OWN if self.own else OTHERS, self.account, self.key, self.endpoint)
        return caller if self.own else (*caller, self.host)


NOBODY = Waiter()


@dataclass(frozen=True, slots=True)
class WaitRule:
    """The numbers of one kind of wait. A group that could have n slots leaves n // `leaves` of them free."""

    slots: int
    own_slots: int = 0
    leaves: int = 2
    first_s: float = 60.0
    bytes_per_s: int = 128 << 10

    def admits(self, held: Held, waiter: Waiter) -> bool:
        """Returns whether the waiter gets a slot now."""
        return not self.full(held, waiter.group)

    def full(self, held: Held, group: Group) -> bool:
        """Returns whether nobody in this group gets a further slot now."""
        most = self.own_slots if group[0] == OWN else self.slots
        above = most
        for size in range(1, len(group) + 1):
            used = held.get(group[:size], 0)
            if size > 1:
                free = most - (above - used)
                most = free - free // self.leaves
            if used >= most:
                return True
            above = used
        return False

    def full_groups(self, held: Held, within: Group) -> list[Group] | None:
        """Returns the groups within this one that get no further slot now, without the smaller ones in them;
        None if this one gets none itself."""
        if self.full(held, within):
            return None
        inside = [group for group in held if group[: len(within)] == within]
        full = {group for group in inside if self.full(held, group)}
        return [group for group in full if group[:-1] not in full]

    def within_s(self, size: int = 0) -> float:
        """Returns how long the whole wait may take that moves so many bytes."""
        return self.first_s + size / self.bytes_per_s


def levels(group: Group) -> Iterator[Group]:
    """Yields the group and the groups that it is in, the largest first."""
    return (group[:size] for size in range(1, len(group) + 1))


def take(held: Counter[Group], group: Group) -> None:
    """Notes that somebody in this group got a slot."""
    for level in levels(group):
        held[level] += 1


def give_back(held: Counter[Group], group: Group) -> None:
    """Notes that somebody in this group gave a slot back."""
    for level in levels(group):
        held[level] -= 1
        if not held[level]:
            del held[level]


# Each kind of wait. A thread is dear, so uploads have few slots; what waits on the loop has many.
UPLOADS = WaitRule(slots=128, own_slots=32)
INPUTS = WaitRule(slots=256, own_slots=64, first_s=3600.0)
WEBHOOKS = WaitRule(slots=256, first_s=10.0)
TUNNELS = WaitRule(slots=1024, leaves=4, first_s=10.0)
BODIES = WaitRule(slots=512, first_s=30.0)
LOOKUPS = WaitRule(slots=128)
