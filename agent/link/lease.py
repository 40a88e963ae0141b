"""The lease of this node: how long it may still run its attempts.

The lease starts when the last *acknowledged* beat was *sent*: control need not have received anything later.
It is counted on a clock that goes on while the host sleeps. Pure: time is an argument.
"""

from __future__ import annotations


class Lease:
    def __init__(self) -> None:
        self._lease_s = 0.0
        self._basis: float | None = None
        self._beats: dict[int, float] = {}

    def begin(self, lease_s: float, hello_sent: float) -> None:
        """Begins the lease with a Welcome, which acknowledges the Hello. Beats of an earlier connection are
        not acknowledged any more."""
        self._lease_s = lease_s
        self._basis = hello_sent
        self._beats.clear()

    def sent(self, beat: int, at: float) -> None:
        self._beats[beat] = at

    def acked(self, beat: int) -> None:
        """Beats are numbered upwards, and control acknowledges the newest."""
        for number in [number for number in self._beats if number <= beat]:
            self._basis = self._beats.pop(number)

    def left(self, at: float) -> float | None:
        """Seconds left, 0 or less when it is over; None before the first Welcome."""
        return None if self._basis is None else self._basis + self._lease_s - at

    def unanswered_since(self) -> float | None:
        """Returns when the oldest beat without an acknowledgement was sent."""
        return next(iter(self._beats.values()), None)
