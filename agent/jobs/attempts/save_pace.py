"""The pace at which the small saves of an attempt are reported: each at once within a bound, then the newest.
Pure.

    save ──┬─ bytes are left ──────────────────────────────────> reported
           └─ none ──> waits, in place of the one before it ──> reported when bytes are left, or at the end,
                                                                if it is of use then

A save takes its size, LEAST_BYTES at least, of BURST_BYTES, which come back at BYTES_PER_S. Nothing is lost
with a save that a newer one replaces: the newer covers as much. Large saves are paced by their upload: while
one is uploaded, the newest waits (`agent.jobs.attempts.chunks`).
"""

from __future__ import annotations

from msgspec import Struct

from stoker.agent.jobs.attempts.events import Verdict
from stoker.agent.jobs.attempts.states import Cancelling, Flushing, Over, Reporting, State, Terminating

BYTES_PER_S = 32 * 1024
BURST_BYTES = 512 * 1024
LEAST_BYTES = 4 * 1024
"""A save of no bytes is a row to change, too."""

_ROUNDING = 1.0
"""In bytes. The time of one is far over the resolution of a clock that has run for years: a save that is
offered again in its time is reported."""


class SavePace(Struct, frozen=True):
    """The bytes that were left at a time, in seconds."""

    left: float = BURST_BYTES
    at: float = 0.0

    def offered(self, size: int, now: float) -> tuple[SavePace, float | None]:
        """Returns the pace after this offer, and when the save is to be offered again; None: it is reported
        now."""
        cost = max(size, LEAST_BYTES)
        left = min(self.left + max(now - self.at, 0.0) * BYTES_PER_S, BURST_BYTES)
        if left + _ROUNDING >= cost:
            return SavePace(left - cost, now), None
        return SavePace(left, now), now + (cost - left) / BYTES_PER_S


def is_of_use(state: State, *, keeps_case: bool) -> bool:
    """Returns whether an attempt's last save is of use: to the next attempt, also where the result of this
    one may still be lost, or to the case of a job that failed."""
    match state:
        case Over() | Cancelling(verdict=None) | Terminating(verdict=None):
            return False
        case (
            Cancelling(verdict=Verdict() as verdict)
            | Terminating(verdict=Verdict() as verdict)
            | Flushing(verdict=verdict)
            | Reporting(verdict=verdict)
        ):
            goes_on = verdict.retryable or verdict.end == "completed"
            return goes_on or (keeps_case and verdict.end != "cancelled")
        case _:
            return True
