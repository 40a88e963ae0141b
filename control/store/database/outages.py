"""An outage of the database: one line of the log when it begins, and one when it is over. Pure.

Whatever cannot be stored meanwhile is tried again in several places, each second; they leave the log to this.
"""

from __future__ import annotations

from msgspec import Struct

CALM_S = 5.0
"""An outage is over when nothing has failed for so long: on a full disk small writes succeed between large
ones, and reads always do."""


class Outage(Struct, frozen=True):
    """An outage that lasts: when its first failure was, in seconds; when its last one was, and why."""

    began: float
    failed: float
    why: str


def outage_after(outage: Outage | None, why: str | None, now: float) -> tuple[Outage | None, str]:
    """Returns the outage after some work, and a line for the log, mostly empty. `why` the work failed; None
    where it was done."""
    if why is not None:
        if outage is None:
            return Outage(now, now, why), f"an outage of the database begins: {why}"
        return Outage(outage.began, now, why), ""
    if outage is None or now - outage.failed < CALM_S:
        return outage, ""
    return None, f"the outage of the database is over; it took {outage.failed - outage.began:.0f} s"
