"""Simulates short urgent jobs among long ones that save, with yielding and without: how many end in time, and
what it costs.

    python bench/yielding.py [--hours 24] [--seeds 5] [--again 2] [--json FILE]

Time is virtual: a day takes seconds. The rules are the real ones: who yields
(`stoker.control.rules.queueing.yielding`, asked each second, as control asks), and where each job stands
(`…queueing.order`). The rest is a model: slots take one job each; long jobs take 5 to 15 minutes and save
each 5 seconds, and there is always another one; urgent jobs take 5 to 15 seconds and come at random, one in
two minutes for each slot. To go on from a save takes `--again` seconds, which are lost. Without yielding,
urgent jobs are still first in line.

`in time` is the share of urgent jobs that end within three times their own duration after they came. `work`
is the part of the slots' time in which work is done that counts; its ratio is what yielding costs.
"""

from __future__ import annotations

import argparse
import heapq
import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from measured_on import commit
from msgspec.structs import replace

from stoker.control.rules.queueing.order import place, place_yielded
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.queueing.yielding import Asked, Running, Waiting, decide
from stoker.control.scheduling.cluster_state import averaged

HERE = Path(__file__).resolve().parent
LONG_S, SHORT_S, SAVES_EACH_S, EVERY_S = (300.0, 900.0), (5.0, 15.0), 5.0, 120.0
IN_TIME = 3.0
QUEUED_LONG = 3
"""Long jobs that wait at any time, beside one for each slot."""


@dataclass
class Job:
    """A job of the model. `left_s`: the work that is still to be done."""

    number: int
    priority: Priority
    came: float
    takes_s: float
    left_s: float
    since: float
    yields: int = 0
    yielded_at: float | None = None


@dataclass
class Slot:
    """A slot and its job: `works_from` is when it goes on with its work, `ends` when it leaves."""

    job: Job | None = None
    began: float = 0.0
    works_from: float = 0.0
    ends: float = 0.0
    asked: bool = False

    def done_s(self, now: float) -> float:
        return max(now - self.works_from, 0.0)


@dataclass
class Found:
    urgent: int = 0
    in_time: int = 0
    worked_s: float = 0.0
    yields: int = 0


@dataclass
class Model:
    slots: list[Slot]
    again_s: float
    yielding: bool
    rng: Random
    queue: list[tuple[float, int, Job]] = field(default_factory=list)
    job_s: float | None = None
    drawn: int = 0
    found: Found = field(default_factory=Found)

    def come(self, priority: Priority, now: float) -> None:
        takes_s = self.rng.uniform(*(SHORT_S if priority is Priority.URGENT else LONG_S))
        self.drawn += 1
        self._queue(Job(self.drawn, priority, now, takes_s, takes_s, place(priority, now).since))

    def _queue(self, job: Job) -> None:
        heapq.heappush(self.queue, (job.since, job.number, job))

    def play(self, until: float) -> Found:
        now, next_urgent = 0.0, self._next_urgent(0.0)
        while now < until:
            while next_urgent <= now:
                self.come(Priority.URGENT, next_urgent)
                next_urgent = self._next_urgent(next_urgent)
            self._free(now)
            while sum(1 for *_, job in self.queue if job.priority is Priority.NORMAL) < QUEUED_LONG + len(
                self.slots
            ):
                self.come(Priority.NORMAL, now)
            self._fill(now)
            if self.yielding:
                self._look(now)
            now += 1.0
        self.found.worked_s += sum(slot.done_s(now) for slot in self.slots if slot.job is not None)
        return self.found

    def _next_urgent(self, now: float) -> float:
        return now + self.rng.expovariate(len(self.slots) / EVERY_S)

    def _free(self, now: float) -> None:
        for slot in self.slots:
            if slot.job is None or slot.ends > now:
                continue
            job, done_s = slot.job, slot.done_s(slot.ends)
            self.job_s = averaged(self.job_s, slot.ends - slot.began)
            self.found.worked_s += done_s
            slot.job, job.left_s = None, job.left_s - done_s
            if job.left_s > 1e-6:
                self.found.yields += 1
                at = place_yielded(job.priority, job.came, now)
                job.since, job.yields, job.yielded_at = at.since, job.yields + 1, now
                self._queue(job)
            elif job.priority is Priority.URGENT:
                self.found.urgent += 1
                self.found.in_time += slot.ends - job.came <= IN_TIME * job.takes_s

    def _fill(self, now: float) -> None:
        for slot in self.slots:
            if slot.job is None:
                job = heapq.heappop(self.queue)[2]
                works_from = now + (self.again_s if job.yields else 0.0)
                slot.job, slot.began, slot.works_from = job, now, works_from
                slot.ends, slot.asked = works_from + job.left_s, False

    def _look(self, now: float) -> None:
        head = self.queue[0][2]
        running = [self._running(slot, now) for slot in self.slots if slot.job is not None]
        decision = decide(Waiting(str(head.number), head.priority), running, self.job_s)
        if isinstance(decision, Asked):
            slot = next(one for one in self.slots if one.job and str(one.job.number) == decision.attempt.job)
            saved = SAVES_EACH_S * (slot.done_s(now) // SAVES_EACH_S + 1)
            slot.asked, slot.ends = True, min(slot.ends, slot.works_from + saved)

    def _running(self, slot: Slot, now: float) -> Running:
        job = slot.job
        assert job is not None
        saves = 0 if job.priority is Priority.URGENT else int(slot.done_s(now) // SAVES_EACH_S)
        ago_s = None if job.yielded_at is None else now - job.yielded_at
        running = Running(str(job.number), 1, job.priority, now - slot.began, saves)
        return replace(running, asked=slot.asked, yields=job.yields, yielded_ago_s=ago_s)


def compare(slots: int, hours: float, seeds: int, again_s: float) -> dict[str, float]:
    """The figures of both, over all seeds, and their ratios."""
    found: dict[str, float] = {"slots": slots}
    for name, yielding in (("without", False), ("with", True)):
        runs = [
            Model([Slot() for _ in range(slots)], again_s, yielding, Random(seed)).play(hours * 3600)
            for seed in range(seeds)
        ]
        urgent = sum(run.urgent for run in runs)
        found[f"in_time_{name}"] = round(sum(run.in_time for run in runs) / urgent, 3)
        found[f"work_{name}"] = round(sum(run.worked_s for run in runs) / (seeds * slots * hours * 3600), 4)
        found[f"yields_{name}"] = sum(run.yields for run in runs)
        found[f"urgent_{name}"] = urgent
    found["in_time_ratio"] = round(found["in_time_with"] / found["in_time_without"], 2)
    found["work_ratio"] = round(found["work_with"] / found["work_without"], 4)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hours", type=float, default=24.0, help="of virtual time")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--again", type=float, default=2.0, help="seconds to go on from a save")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    figures = [compare(slots, arguments.hours, arguments.seeds, arguments.again) for slots in (1, 4)]
    for found in figures:
        print(
            f"{found['slots']} slots: of the urgent jobs {found['in_time_without']:.1%} end in time without"
            f" yielding, {found['in_time_with']:.1%} with it ({found['in_time_ratio']:.2f} x); work"
            f" {found['work_ratio']:.4f} x, {found['yields_with']} yields for {found['urgent_with']} urgent"
            " jobs"
        )
    if arguments.json is not None:
        document = {"commit": commit("../control/rules", "."), "again_s": arguments.again, "figures": figures}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
