"""How many workers an endpoint should have now, and why. Pure: a sample in, a decision out.

It does not say where they run (`control.placement`) nor start them (`control.staffing`). Low-priority jobs
are left out of the demand that adds workers, but keep those that are there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScaleSample:
    """One look at an endpoint. `idle_for` holds, per idle worker, for how many seconds it has been idle.

    `slots` holds, per ready worker, how many jobs it takes at once; `concurrency` is what the endpoint
    allows, and what is expected of a worker while none is ready.
    """

    queued: int
    in_progress: int
    workers: int
    idle_for: tuple[float, ...] = ()
    low_priority_queued: int = 0
    concurrency: int = 1
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    workers_min: int
    workers_max: int
    idle_timeout_s: float


@dataclass(frozen=True, slots=True)
class ScaleDecision:
    workers: int
    why: str


def decide(sample: ScaleSample, policy: ScalePolicy) -> ScaleDecision:
    """The number of workers wanted, between `workers_min` and `workers_max`."""
    demand = _workers_for(sample.queued + sample.in_progress, sample.slots or (sample.concurrency,))
    if sample.workers < policy.workers_min:
        return ScaleDecision(_clamp(max(demand, policy.workers_min), policy), "below the minimum")
    if sample.workers > policy.workers_max:
        return ScaleDecision(policy.workers_max, "above the maximum")
    if demand > sample.workers:
        wanted = _clamp(demand, policy)
        return ScaleDecision(wanted, "jobs wait" if wanted > sample.workers else "jobs wait, at the maximum")
    if sample.low_priority_queued:
        return ScaleDecision(sample.workers, "low-priority jobs keep what is there")
    tired = sum(1 for idle in sample.idle_for if idle >= policy.idle_timeout_s)
    wanted = max(sample.workers - tired, demand, policy.workers_min)
    return ScaleDecision(wanted, "idle too long" if wanted < sample.workers else "enough")


def _workers_for(jobs: int, slots: tuple[int, ...]) -> int:
    """As many as it takes if each has as many slots as these have on average."""
    return -(-jobs * len(slots) // sum(slots))


def _clamp(wanted: int, policy: ScalePolicy) -> int:
    return max(policy.workers_min, min(wanted, policy.workers_max))
