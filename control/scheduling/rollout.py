"""The rollout of an endpoint: how its workers come to the number wanted, and to its newest version. Pure.

    of the old version:  ready, idle ── a new one is ready in its place ──> stop
                         ready, busy ── the same ──> retiring: it ends its jobs, gets no more, then stop
                         not ready ──> stop at once: it serves no caller
    of the new version:  what demand lacks, and in addition a share of the maximum at a time

So an old worker serves until a new one can, and a new version that does not start interrupts no caller: no
more of it than a share is tried, and the old ones stay. While one is replaced there may be that share more
workers than the maximum, those that still end or stop among them. Where there is no room for one more,
`make_room` names the old worker to go first; then the endpoint has one less until the new one is ready.

The old ones of a temporary endpoint go `at_once`, ready or not: who changes it wants the change in the next
call, and not the old version until a new worker is ready.

It starts and stops nothing; `control.scheduling.worker_scaling` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf

from msgspec import Struct

PARTS = 10
"""One in this many of the maximum of workers is replaced at a time; at least one."""


class RolloutWorker(Struct, frozen=True):
    """A worker of the endpoint. `new`: it runs the version that is wanted. `idle_for` counts seconds, of an
    idle one; `reason` says why it is unhealthy. `ill`: it served before it became unhealthy, so another may
    serve in its place; it keeps its place below the maximum until then."""

    name: str
    new: bool
    state: str
    reason: str = ""
    jobs: int = 0
    idle_for: float = 0.0
    retiring: bool = False
    ill: bool = False


class RolloutPlan(Struct, frozen=True):
    """The steps to take now: how many workers of the new version to start (`start`), of them `lacking`
    because fewer serve than are wanted; which to stop, and which to `retire`, which get no more jobs.
    `failing`: why the new version does not start, if the old one stays for that reason."""

    start: int = 0
    lacking: int = 0
    stop: tuple[str, ...] = ()
    retire: tuple[str, ...] = ()
    failing: str = ""


def plan(
    workers: Sequence[RolloutWorker], wanted: int, workers_max: int, *, at_once: bool = False
) -> RolloutPlan:
    """Returns what to do now; `wanted` is the number of workers that shall serve."""
    ill = [worker for worker in workers if worker.new and worker.ill]
    new = [worker for worker in workers if worker.new and worker.state != "stopping" and not worker.ill]
    old = [worker for worker in workers if not worker.new and worker.state == "ready"]
    ready = sum(1 for worker in new if worker.state == "ready")
    leaving = _victims(old, len(old) - (0 if at_once else max(wanted - ready, 0)))
    victims = leaving + _victims(new, len(new) - wanted) + _victims(ill, len(ill) if ready >= wanted else 0)
    busy = {worker.name for worker in workers if worker.jobs}
    useless = [
        worker.name
        for worker in workers
        if not worker.new and worker.state in ("starting", "unhealthy") and worker.name not in busy
    ]
    staying = len(old) - len(leaving)
    lacking = max(min(wanted, workers_max - len(ill)) - staying - len(new), 0)
    if at_once:
        lacking = min(lacking, max(workers_max + _share(workers_max) - len(workers), 0))
    stopping = sum(1 for worker in workers if not worker.new and worker.state == "stopping")
    under_way = len(new) - ready + len(leaving) + stopping
    replaced = min(_share(workers_max) - under_way, staying, wanted - len(new))
    failing = [worker.reason or "it is unhealthy" for worker in new if worker.state == "unhealthy"]
    broken = bool(old and failing) and not ready and not at_once
    return RolloutPlan(
        start=0 if broken else max(lacking, replaced, 0),
        lacking=0 if broken else lacking,
        stop=(*useless, *(name for name in victims if name not in busy)),
        retire=tuple(name for name in victims if name in busy),
        failing=failing[0] if broken else "",
    )


def make_room(workers: Sequence[RolloutWorker]) -> list[RolloutWorker]:
    """Returns old workers of which one is stopped first where no new one can be placed, the best choice
    first: to stop if it is idle, to retire if it is busy. One at a time, so there is none while one ends or
    starts."""
    if any(worker.state == "stopping" or (worker.new and worker.state != "ready") for worker in workers):
        return []
    old = {worker.name: worker for worker in workers if not worker.new and worker.state == "ready"}
    return [old[name] for name in _victims(list(old.values()), len(old))]


def _share(workers_max: int) -> int:
    return max(ceil(workers_max / PARTS), 1)


def _victims(workers: Sequence[RolloutWorker], surplus: int) -> list[str]:
    """Returns the workers that end first: first those that do not serve yet, then the longest idle; those
    that retire already before the others that are busy, and the least busy before the rest."""
    by_ease = sorted(workers, key=lambda worker: (-_ease(worker), worker.name))
    return [worker.name for worker in by_ease[: max(surplus, 0)]]


def _ease(worker: RolloutWorker) -> float:
    if worker.jobs:
        return -0.5 if worker.retiring else -float(worker.jobs)
    return worker.idle_for if worker.state == "ready" else inf
