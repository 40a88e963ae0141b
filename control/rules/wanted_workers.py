"""The number of workers that an endpoint should have now, and why. Pure: a sample and a memory in, a decision
and the next memory out.

It does not decide where they run (`control.rules.placement`), which of them go
(`control.scheduling.rollout`), nor start them (`control.scheduling.worker_scaling`). Low-priority jobs are
left out of the demand that adds workers, but keep those that are there.

    REQUEST_COUNT  one worker for every `scaler_value` jobs that wait or run
    QUEUE_DELAY    one at once where there is none; more once a job has waited longer than `scaler_value`
                   seconds: for the jobs that the others will not have begun by the time a new worker could
                   be ready and has had `scaler_value` seconds itself. So a burst is answered once, and
                   workers that are starting count for what they will take. Where jobs still wait too
                   long after that time, one more.

A worker goes when it was idle for the idle timeout, and no sooner. One stays longer (the hysteresis) while
jobs come so often that the next is expected before another worker could be started: at most until a window
of the longer of both, cold start and idle timeout, has passed twice without a job.

Where jobs are spread over all workers (requests of load-balancing endpoints), none grows idle under a load
that fewer could bear. There a worker goes, too, when the demand of the last whole window and since asked for
fewer.
"""

from __future__ import annotations

from math import ceil

from msgspec import Struct
from msgspec.structs import replace

UNMEASURED_START_S = 10.0
"""What a start is taken to last until one was measured."""


class ScaleSample(Struct, frozen=True):
    """A sample of an endpoint. Times are seconds.

    `idle_for` holds, per idle worker, for how long it has been idle; `starting_for`, per starting one, for
    how long it has been that; `running_for`, per job of a ready one, for how long it has run. `slots` holds,
    per ready worker, how many jobs it takes at once; `concurrency` is what the endpoint allows, and what is
    expected of a worker while none is ready. `waited_s`: the longest wait. `cold_start_s` and `job_time_s`
    are measured at this endpoint, None before; `begun` counts the jobs that were ever sent to a worker.
    """

    queued: int
    in_progress: int
    workers: int
    idle_for: tuple[float, ...] = ()
    low_priority_queued: int = 0
    concurrency: int = 1
    slots: tuple[int, ...] = ()
    starting_for: tuple[float, ...] = ()
    running_for: tuple[float, ...] = ()
    waited_s: float = 0.0
    cold_start_s: float | None = None
    job_time_s: float | None = None
    begun: int = 0
    now: float = 0.0

    @property
    def each(self) -> float:
        """Jobs that a worker takes at once, on average."""
        return sum(self.slots) / len(self.slots) if self.slots else self.concurrency


class ScalePolicy(Struct, frozen=True):
    workers_min: int
    workers_max: int
    idle_timeout_s: float
    scaler: str = "REQUEST_COUNT"
    scaler_value: float = 1
    spread: bool = False


class ScaleMemory(Struct, frozen=True):
    """Jobs begun until this window began, and in the one before: how often they came of late. `late_since`:
    since when some job or other has waited too long while no worker was starting; None: none does. `needed`:
    the most workers that demand asked for in this window, and in the one before."""

    since: float = 0.0
    begun: int = 0
    before: int = 0
    late_since: float | None = None
    needed: int = 0
    needed_before: int = 0


class ScaleDecision(Struct, frozen=True):
    workers: int
    why: str


def decide(
    sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None = None
) -> tuple[ScaleDecision, ScaleMemory]:
    """Returns the number of workers wanted, between `workers_min` and `workers_max`, and the next memory. No
    memory: this is the first look."""
    memory = _remember(sample, policy, memory)
    by_delay = policy.scaler == "QUEUE_DELAY"
    demand = _delay_demand(sample, policy, memory) if by_delay else _count_demand(sample, policy)
    memory = replace(memory, needed=max(memory.needed, demand))
    soon, spare = _soon_needed(sample, policy, memory), _spare(sample, policy, memory)
    return _decide(sample, policy, demand, soon, spare), memory


def _decide(sample: ScaleSample, policy: ScalePolicy, demand: int, soon: int, spare: int) -> ScaleDecision:
    if sample.workers < policy.workers_min:
        return ScaleDecision(_clamp(max(demand, policy.workers_min), policy), "below the minimum")
    if sample.workers > policy.workers_max:
        return ScaleDecision(policy.workers_max, "above the maximum")
    if demand > sample.workers:
        wanted = _clamp(demand, policy)
        return ScaleDecision(wanted, "jobs wait" if wanted > sample.workers else "jobs wait, at the maximum")
    if sample.low_priority_queued:
        return ScaleDecision(sample.workers, "low-priority jobs keep what is there")
    surplus = sum(1 for idle in sample.idle_for if idle >= policy.idle_timeout_s)
    wanted = max(sample.workers - max(surplus, spare), demand, policy.workers_min)
    if wanted < min(soon, sample.workers):
        return ScaleDecision(min(soon, sample.workers), "the next job comes before another worker could")
    fewer = "fewer bear the load" if spare > surplus else "idle too long"
    return ScaleDecision(wanted, fewer if wanted < sample.workers else "enough")


def _clamp(wanted: int, policy: ScalePolicy) -> int:
    return max(policy.workers_min, min(wanted, policy.workers_max))


# -- what the jobs that are there ask for


def _count_demand(sample: ScaleSample, policy: ScalePolicy) -> int:
    """Returns how many workers the jobs ask for: none for a job that another worker could take too, since
    each counts for as many as it takes at once."""
    return _workers_for(sample, max(policy.scaler_value, sample.each))


def _workers_for(sample: ScaleSample, each: float) -> int:
    return ceil((sample.queued + sample.in_progress) / each - 1e-9)


def _delay_demand(sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory) -> int:
    needed = min(_workers_for(sample, sample.each), sample.workers)
    if not sample.workers:
        return min(sample.queued, 1)
    if not _late(sample, policy):
        return needed
    more = _more(sample, policy.scaler_value)
    if memory.late_since is not None and sample.slots:
        stays_late = sample.now - memory.late_since > _horizon(sample, policy.scaler_value)
        more = max(more, int(stays_late))  # who was expected to end the waiting did not
    return sample.workers + more if more else needed


def _late(sample: ScaleSample, policy: ScalePolicy) -> bool:
    return sample.queued > 0 and sample.waited_s > policy.scaler_value


def _horizon(sample: ScaleSample, patience: float) -> float:
    """Returns the seconds until a worker that starts now is ready, and has had its time to begin what
    waits."""
    return (UNMEASURED_START_S if sample.cold_start_s is None else sample.cold_start_s) + patience


def _more(sample: ScaleSample, patience: float) -> int:
    """Returns how many workers are needed for the jobs that no other worker begins in time; a worker that had
    half a job to do is not worth its start."""
    horizon, job = _horizon(sample, patience), _job_time(sample)
    if not sample.slots and not sample.starting_for:
        return 0  # they all fail to start, and so would others
    starting = [left for left in _starts_left(sample) if left < horizon]
    if job is None:  # nothing has run yet, so the first may do all of it in no time
        return 0 if starting or sample.slots else 1

    def begun(free_in: float) -> float:
        return 1 + (horizon - free_in) / job if free_in < horizon else 0.0

    free = max(sum(sample.slots) - len(sample.running_for), 0)
    taken = free * begun(0.0) + sum(begun(abs(job - age)) for age in sample.running_for)
    taken += sample.each * sum(begun(left) for left in starting)
    return max(ceil((sample.queued - taken) / (sample.each * (1 + patience / job)) - 0.5), 0)


# Of a start and of a job alike: what is overdue is expected to need as long again as it is late.


def _starts_left(sample: ScaleSample) -> list[float]:
    if sample.cold_start_s is None:
        return [0.0 for _ in sample.starting_for]
    return [abs(sample.cold_start_s - age) for age in sample.starting_for]


def _job_time(sample: ScaleSample) -> float | None:
    """Returns how long a job is expected to take. While none has ended, the job that runs longest is expected
    to need as long again."""
    if sample.job_time_s is None and not sample.running_for:
        return None
    return max(2 * max(sample.running_for) if sample.job_time_s is None else sample.job_time_s, 1e-3)


# -- what the jobs to come will ask for


def _remember(sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory | None) -> ScaleMemory:
    if memory is None:
        memory = ScaleMemory(sample.now, sample.begun, needed=sample.workers)
    late = _late(sample, policy) and not sample.starting_for
    since = sample.now if memory.late_since is None else min(memory.late_since, sample.now)
    memory = replace(memory, late_since=since if late else None)
    window, passed = _window(sample, policy), sample.now - memory.since
    if 0 <= passed < window:
        return memory
    before = sample.begun - memory.begun if 0 <= passed < 2 * window else 0
    return replace(
        memory, since=sample.now, begun=sample.begun, before=before, needed=0, needed_before=memory.needed
    )


def _window(sample: ScaleSample, policy: ScalePolicy) -> float:
    return max(sample.cold_start_s or 0.0, policy.idle_timeout_s, 1.0)


def _spare(sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory) -> int:
    """Returns how many workers have jobs only because these are spread."""
    return max(sample.workers - max(memory.needed, memory.needed_before), 0) if policy.spread else 0


def _soon_needed(sample: ScaleSample, policy: ScalePolicy, memory: ScaleMemory) -> int:
    """Returns how many workers are busy on average at the recent rate, if a job is expected within a cold
    start."""
    window = _window(sample, policy)
    left = 1 - (sample.now - memory.since) / window  # of the window before, what is within one of now
    rate = (memory.before * left + sample.begun - memory.begun) / window
    if rate * (sample.cold_start_s or 0.0) <= 1:  # a lone job is not a rate
        return 0
    return max(ceil(rate * (sample.job_time_s or 0.0) / sample.each), 1)
