"""How fast an endpoint goes, as far as this process has seen: what a start takes, and what a job takes.

Plain averages, in which what came last weighs more; no clock. None until there was one.
"""

from __future__ import annotations

from dataclasses import dataclass

WEIGHT = 0.2
"""Of the newest in the average: after ten others, a tenth of what was first is left."""


@dataclass(slots=True)
class Pace:
    """`begun`: jobs that were given to workers, so far. Seconds."""

    begun: int = 0
    start_s: float | None = None
    job_s: float | None = None

    def started(self, seconds: float) -> None:
        self.start_s = _average(self.start_s, max(seconds, 0.0))

    def ended(self, seconds: float) -> None:
        self.job_s = _average(self.job_s, max(seconds, 0.0))


def _average(before: float | None, newest: float) -> float:
    return newest if before is None else before + WEIGHT * (newest - before)
