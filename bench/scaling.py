"""Simulates traffic with the scaling policy and with simple policies: cost, and how long jobs wait.

    python bench/scaling.py [--cold 20] [--json FILE]

Time is virtual: an hour takes a second. The policy is the real one (`stoker.control.rules.wanted_workers`),
called as control calls it: each second, and after each change. The rest is a model: workers take one job at a
time, the first in the queue; a start takes `--cold` seconds; jobs take 8 s on average; there is always a free
device. Cost is worker-seconds from the start to the stop. Delay is from a job's arrival to its start.

Traffic: steady, bursts, a day in six hours, on and off, and `scaling_trace.json`, a recorded hour of a
service (its first line names it). The simple policies:

    always max   always the maximum of workers: the lowest delay
    always one   always one worker: the lowest cost
    reactive     each second, one worker per waiting job, ignoring workers that are starting
    literal      each second, one more worker while a job has waited for more than 4 s
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import platform
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from measured_on import commit

from stoker.control.rules.wanted_workers import ScaleMemory, ScalePolicy, ScaleSample, decide
from stoker.control.scheduling.cluster_state import Throughput, averaged

HERE = Path(__file__).resolve().parent
HOUR = 3600.0
MOST = 10
IDLE_S = 5.0
JOB_S = 8.0
LOOK_S = 1.0
PATIENCE_S = 4.0

Jobs = Sequence[tuple[float, float]]
"""The arrival and the duration of each job in seconds, in the order of arrival."""
Policy = Callable[[ScaleSample], int]


# ---- traffic ------------------------------------------------------------------------------------


def arrivals(rate: Callable[[float], float], most: float, until: float, rng: Random) -> Jobs:
    """Arrivals of a Poisson process with a changing rate; `most` is the highest rate."""
    jobs, now = [], rng.expovariate(most)
    while now < until:
        if rng.random() * most < rate(now):
            jobs.append((now, job_time(rng)))
        now += rng.expovariate(most)
    return jobs


def job_time(rng: Random) -> float:
    return rng.lognormvariate(math.log(JOB_S) - 0.08, 0.4)


def traffic() -> dict[str, Jobs]:
    rng = Random(7)
    bursts = [(600.0 * n + 0.05 * k, job_time(rng)) for n in range(6) for k in range(40)]
    return {
        "steady": arrivals(lambda now: 0.4, 0.4, HOUR, rng),
        "bursts": bursts,
        "day": arrivals(lambda now: 0.4 - 0.39 * math.cos(now / HOUR * math.pi / 3), 0.8, 6 * HOUR, rng),
        "on and off": arrivals(lambda now: 0.5 * (now % 600 < 300), 0.5, HOUR, rng),
        "trace": [(at, took) for at, took in json.loads((HERE / "scaling_trace.json").read_text())["jobs"]],
    }


# ---- policies -----------------------------------------------------------------------------------


def ours(scaler: str, value: float) -> Policy:
    policy = ScalePolicy(0, MOST, IDLE_S, scaler, value)
    memory: ScaleMemory | None = None

    def wanted(sample: ScaleSample) -> int:
        nonlocal memory
        decision, memory = decide(sample, policy, memory)
        return decision.workers

    return wanted


def rested(sample: ScaleSample) -> int:
    return sample.workers - sum(1 for idle in sample.idle_for if idle >= IDLE_S)


def each_second(wanted: Callable[[ScaleSample], int]) -> Policy:
    """A policy that is evaluated once a second, and not after changes."""
    last = -math.inf

    def looks(sample: ScaleSample) -> int:
        nonlocal last
        if sample.now - last < LOOK_S:
            return sample.workers
        last = sample.now
        return max(0, min(wanted(sample), MOST))

    return looks


def reactive(sample: ScaleSample) -> int:
    return sample.workers + sample.queued if sample.queued else rested(sample)


def literal(sample: ScaleSample) -> int:
    if sample.queued and (not sample.workers or sample.waited_s > PATIENCE_S):
        return sample.workers + 1
    return sample.workers if sample.queued else rested(sample)


def policies() -> dict[str, Policy]:
    return {
        "ours, QUEUE_DELAY 4": ours("QUEUE_DELAY", PATIENCE_S),
        "ours, REQUEST_COUNT 1": ours("REQUEST_COUNT", 1),
        "ours, REQUEST_COUNT 4": ours("REQUEST_COUNT", 4),
        "always max": lambda sample: MOST,
        "always one": lambda sample: 1,
        "reactive": each_second(reactive),
        "literal": each_second(literal),
    }


# ---- the model ----------------------------------------------------------------------------------


@dataclass
class Worker:
    started_at: float
    ready: bool = False
    gone: bool = False
    since: float = 0.0
    busy: bool = False


@dataclass(order=True)
class Event:
    at: float
    order: int
    act: Callable[[], None] = field(compare=False)


class Run:
    """One traffic with one policy; `play` returns the figures."""

    def __init__(self, jobs: Jobs, policy: Policy, cold: float) -> None:
        self.jobs, self.policy, self.cold = jobs, policy, cold
        self.now = self.cost = 0.0
        self.waiting: deque[tuple[float, float]] = deque()
        self.workers: list[Worker] = []
        self.events: list[Event] = []
        self.starts = self.ended = self.most = 0
        self.delays: list[float] = []
        self.throughput = Throughput()

    def play(self) -> dict[str, float]:
        for at, took in self.jobs:
            self._at(at, lambda at=at, took=took: self.waiting.append((at, took)))  # type: ignore[misc]
        self._look()
        look_at = LOOK_S
        while self.ended < len(self.jobs):
            event_at = self.events[0].at if self.events else math.inf
            self.now = min(event_at, look_at)
            while self.events and self.events[0].at <= self.now:
                heapq.heappop(self.events).act()
            self._assign()
            self._look()
            quiet = not self.workers and not self.waiting
            look_at = math.inf if quiet else self.now + LOOK_S
        self.cost += sum(self.now + IDLE_S - worker.started_at for worker in self.workers)
        return self._figures()

    def _figures(self) -> dict[str, float]:
        ranked = sorted(self.delays)
        return {
            "worker_seconds": round(self.cost),
            "delay_mean_s": round(sum(ranked) / len(ranked), 2),
            "delay_p50_s": round(ranked[len(ranked) // 2], 2),
            "delay_p95_s": round(ranked[int(len(ranked) * 0.95)], 2),
            "most_workers": self.most,
            "starts": self.starts,
            "jobs": len(ranked),
        }

    def _at(self, at: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, Event(at, len(self.events) + self.starts + self.ended, act))

    def _assign(self) -> None:
        """Assigns waiting jobs, first to the worker that was idle for the shortest time: the others may
        stop."""
        free = sorted((w for w in self.workers if w.ready and not w.busy), key=lambda w: w.since)
        while self.waiting and free:
            worker, (came, took) = free.pop(), self.waiting.popleft()
            worker.busy, worker.since = True, self.now
            self.throughput.begun += 1
            self.delays.append(self.now - came)
            self._at(self.now + took, lambda worker=worker: self._ends(worker))  # type: ignore[misc]

    def _ends(self, worker: Worker) -> None:
        self.throughput.job_s = averaged(self.throughput.job_s, self.now - worker.since)
        worker.busy, worker.since = False, self.now
        self.ended += 1

    def _ready(self, worker: Worker) -> None:
        if not worker.gone:
            worker.ready, worker.since = True, self.now
            self.throughput.start_s = averaged(self.throughput.start_s, self.now - worker.started_at)

    def _look(self) -> None:
        wanted = self.policy(self._sample())
        for _ in range(wanted - len(self.workers)):
            worker = Worker(self.now)
            self.workers.append(worker)
            self.starts += 1
            self._at(self.now + self.cold, lambda worker=worker: self._ready(worker))  # type: ignore[misc]
        idle = sorted((w for w in self.workers if w.ready and not w.busy), key=lambda w: w.since)
        for worker in idle[: max(len(self.workers) - wanted, 0)]:
            self.workers.remove(worker)
            worker.gone = True
            self.cost += self.now - worker.started_at
        self.most = max(self.most, len(self.workers))

    def _sample(self) -> ScaleSample:
        ready = [worker for worker in self.workers if worker.ready]
        running = tuple(self.now - worker.since for worker in ready if worker.busy)
        return ScaleSample(
            queued=len(self.waiting),
            in_progress=len(running),
            workers=len(self.workers),
            idle_for=tuple(self.now - worker.since for worker in ready if not worker.busy),
            slots=(1,) * len(ready),
            starting_for=tuple(self.now - worker.started_at for worker in self.workers if not worker.ready),
            running_for=running,
            waited_s=self.now - self.waiting[0][0] if self.waiting else 0.0,
            cold_start_s=self.throughput.start_s,
            job_time_s=self.throughput.job_s,
            begun=self.throughput.begun,
            now=self.now,
        )


def compare(jobs: Jobs, cold: float) -> dict[str, dict[str, float]]:
    """The figures of every policy, with its cost relative to always having the maximum."""
    found = {name: Run(jobs, policy, cold).play() for name, policy in policies().items()}
    full = found["always max"]["worker_seconds"]
    return {
        name: figures | {"cost_of_max": round(figures["worker_seconds"] / full, 3)}
        for name, figures in found.items()
    }


def show(name: str, found: dict[str, dict[str, float]]) -> None:
    base = found["ours, QUEUE_DELAY 4"]
    print(f"\n{name}: {base['jobs']:.0f} jobs")
    print(f"  {'':24}{'worker-s':>9}{'of max':>8}{'ours':>7}{'mean':>8}{'p50':>8}{'p95':>8}{'starts':>8}")
    for policy, row in found.items():
        ratio = row["worker_seconds"] / base["worker_seconds"]
        print(
            f"  {policy:24}{row['worker_seconds']:9.0f}{row['cost_of_max']:8.2f}{ratio:6.2f}x"
            f"{row['delay_mean_s']:8.1f}{row['delay_p50_s']:8.1f}{row['delay_p95_s']:8.1f}{row['starts']:8.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--cold", type=float, default=20.0, help="how long a start takes, in seconds")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    found = {name: compare(jobs, options.cold) for name, jobs in traffic().items()}
    for name, rows in found.items():
        show(name, rows)
    if options.json:
        settings = {"cold_s": options.cold, "idle_s": IDLE_S, "job_s": JOB_S, "workers_max": MOST}
        kept: dict[str, Any] = {
            "commit": commit("../control", "scaling.py"),
            "python": platform.python_version(),
            "settings": settings,
            "traffic": found,
        }
        options.json.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
