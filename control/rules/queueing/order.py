"""The order of an endpoint's queue: the class of a job, and the place at which it stands. Pure.

    lane 0   jobs that are tried again, by the end of their back-off
    lane 1   all others, by `since`: when they came, less the head start of their class

    urgent   3 h      before it go only jobs that came earlier, and normal ones that came an hour earlier
    normal   2 h
    low      1 h      starts no worker; also where it is tried again, it stands in lane 1

So age raises a job: an urgent one overtakes the normal ones of the last hour, and a low one is overtaken by
the normal ones of the next. Nothing starves, and an index gives the order. Every class has a head start, so
that no place lies ahead of the clock of another control process. `since` is also what a back-off is stored
as: a place that lies ahead is not reached before its time.
"""

from __future__ import annotations

from msgspec import Struct

from stoker.control.rules.queueing.priorities import HEAD_START_S, Priority

RETRY, IN_LINE, LAST = 0, 1, 3
"""The lanes. Tables of schema version 12 and earlier may hold 2 and 3, for jobs of low priority."""


class Place(Struct, frozen=True):
    """A place in an endpoint's queue: the lower, the earlier."""

    lane: int
    since: float


def place(priority: Priority, created_at: float) -> Place:
    """Returns the place of a new job."""
    return Place(IN_LINE, created_at - HEAD_START_S[priority])


def place_yielded(priority: Priority, created_at: float, now: float) -> Place:
    """Returns the place of a job that yielded its slot: its own, but behind every urgent job that waits now,
    as it is for one of these."""
    return Place(IN_LINE, max(place(priority, created_at).since, place(Priority.URGENT, now).since))


def place_again(*, low: bool, created_at: float, not_before: float, now: float) -> Place:
    """Returns the place of a job that is tried again, not before this time. A job of low priority returns to
    where it stood; after a back-off, it stands as if it came at its end."""
    if not low:
        return Place(RETRY, not_before)
    return Place(IN_LINE, not_before) if not_before > now else place(Priority.LOW, created_at)
