"""The running attempt that is asked to yield its slot to a waiting job of a higher class. Pure.

    the next job in line ──┐
    attempts that run ─────┼──> one of them, or none; with the reason
    the pace ──────────────┘

An attempt is asked only if it is of a lower class, and has saved: it yields at its next save, so no work is
lost but what starting again takes. It must pay: the job that waits would start earlier by more than that. Of
those that pay, the lowest class yields, then the one that saves soonest. A job is asked at most MOST_YIELDS
times, and not again within AGAIN_S, so that it gets on.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from stoker.control.rules.queueing.priorities import Priority, outranks

MOST_YIELDS = 10
AGAIN_S = 60.0

START_AGAIN_S = 2.0
"""What an attempt takes to go on from a save. Its worker stays warm: it runs the other job meanwhile."""


class Running(Struct, frozen=True):
    """An attempt that runs since `ran_s` seconds, and made `saves` in that time. `asked`: it was asked to
    yield of late. `yields`: how often its job did, the last time `yielded_ago_s` seconds ago."""

    job: str
    attempt: int
    priority: Priority
    ran_s: float
    saves: int = 0
    asked: bool = False
    yields: int = 0
    yielded_ago_s: float | None = None

    @property
    def save_in_s(self) -> float:
        """Seconds until the next save, at the latest, if it saves as often as before."""
        return self.ran_s / self.saves

    def left_s(self, job_s: float | None) -> float:
        """Returns how long the attempt is expected to run on: as long as jobs take, and where it took longer
        than that, or nobody knows, as long again."""
        return job_s - self.ran_s if job_s is not None and self.ran_s < job_s else self.ran_s


class Waiting(Struct, frozen=True):
    """The next job in line. `late_in_s`: in how many seconds it misses a deadline, if it has one and does not
    start before."""

    job: str
    priority: Priority
    late_in_s: float | None = None


class Asked(Struct, frozen=True):
    """The decision to ask this attempt to yield."""

    attempt: Running
    why: str


class Nobody(Struct, frozen=True):
    """No attempt is asked."""

    why: str


def decide(
    waiting: Waiting, running: Sequence[Running], job_s: float | None, starting_in_s: Sequence[float] = ()
) -> Asked | Nobody:
    """Returns the attempt that yields to the job that waits. `job_s`: how long jobs take on average; None
    where nobody knows. `starting_in_s`: in how many seconds each worker that starts is expected to be
    ready."""
    lower = [one for one in running if outranks(waiting.priority, one.priority)]
    if not lower:
        return Nobody("no job of a lower class runs")
    if any(one.asked for one in running):
        return Nobody("one was asked, and has not yielded yet")
    able = [one for one in lower if _may_yield(one)]
    if not able:
        return Nobody("none of them has saved, or may yield again")
    free_in_s = min((*(one.left_s(job_s) for one in running), *starting_in_s))
    paying = [one for one in able if free_in_s - one.save_in_s > START_AGAIN_S and _in_time(one, waiting)]
    if not paying:
        return Nobody(f"a slot is expected to be free in {free_in_s:.0f} s: too soon for a yield to pay")
    best = min(paying, key=lambda one: (outranks(one.priority, Priority.LOW), one.save_in_s, one.job))
    return Asked(best, f"a job of class {waiting.priority} waits")


def _may_yield(one: Running) -> bool:
    rested = one.yielded_ago_s is None or one.yielded_ago_s >= AGAIN_S
    return one.saves > 0 and one.yields < MOST_YIELDS and rested


def _in_time(one: Running, waiting: Waiting) -> bool:
    """Returns whether the job that waits can still start in time: else the work would be put off for
    nothing."""
    return waiting.late_in_s is None or one.save_in_s < waiting.late_in_s
