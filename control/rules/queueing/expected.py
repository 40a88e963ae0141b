"""The expected start of a waiting job, from the jobs ahead of it and the pace of its endpoint. Pure.

    the slots of ready workers ──> when each is free, if each job takes as long as jobs took on average
    jobs ahead ──────────────────> the slot that is free next, round by round

Nothing is expected before SAMPLES jobs have ended, without a ready worker, or behind more than MOST_AHEAD
jobs. Workers that start and jobs of a higher class that come are not foreseen.
"""

from __future__ import annotations

from msgspec import Struct

SAMPLES = 10
"""Jobs of the endpoint that must have ended here before anything is expected."""

MOST_AHEAD = 1_000
"""Jobs ahead of one that are counted."""


class Pace(Struct, frozen=True):
    """The pace of an endpoint. `slots`: jobs that its ready workers run at once; `running_for`: per job that
    runs, for how many seconds; `job_s` and `run_s`: how long jobs hold their slot, and their handler runs, on
    average of the `ended` ones."""

    slots: int = 0
    running_for: tuple[float, ...] = ()
    job_s: float | None = None
    run_s: float | None = None
    ended: int = 0


def expected_wait_s(ahead: int | None, pace: Pace) -> float | None:
    """Returns for how many seconds a job waits with so many ahead of it; None where nobody knows."""
    if ahead is None or pace.job_s is None or pace.ended < SAMPLES or pace.slots < 1:
        return None
    free = sorted(_left(ran, pace.job_s) for ran in pace.running_for)[: pace.slots]
    free = [0.0] * (pace.slots - len(free)) + free
    return free[ahead % pace.slots] + ahead // pace.slots * pace.job_s


def _left(ran_s: float, job_s: float) -> float:
    """Returns how long a job still takes. One that took longer than others may take any time: as long as
    others."""
    return job_s - ran_s if ran_s < job_s else job_s


def expected_run_s(pace: Pace) -> float | None:
    """Returns for how many seconds a job runs; None where nobody knows."""
    return None if pace.ended < SAMPLES else pace.run_s
