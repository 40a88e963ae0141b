"""Jobs that lie ahead of a worker, assigned to it while it still runs another: how many there may be. Pure.

    a job that took  20 ms  10 ms  5 ms  2.5 ms and less        over 20 ms, or unknown
    jobs ahead         1      2     4       8                          0

A worker that must ask for each job is idle for some milliseconds between two of them. What lies ahead has no
other worker, though, so it is bounded by time: it begins after about `WAIT_S`, and its agent hands it back
when the one before it takes longer than `PATIENCE_S`. To its caller it is a job in the queue.
"""

from __future__ import annotations

from typing import Protocol

MOST = 8
"""Jobs ahead of one worker, however short they are. Its agent takes no more. At 0 nothing lies ahead."""

WAIT_S = 0.02
"""How long the jobs may take together that are assigned to a busy worker."""

PACK_S = 0.002
"""To begin so soon, a job is better off behind another than on a worker that must be woken."""

PATIENCE_S = 0.05
"""Of an agent: after this it hands back what lies behind a job that still runs."""

SHORTEST_S = 0.00025
"""A job takes no less: agents count whole milliseconds."""


class RunsJobs(Protocol):
    """The facts about a worker that decide whether jobs may lie ahead of it, see
    `wire.messages.WorkerSpec`."""

    @property
    def kind(self) -> str: ...

    @property
    def concurrency(self) -> int: ...

    @property
    def max_jobs(self) -> int | None: ...


def takes_ahead(worker: RunsJobs | None) -> bool:
    """Returns whether jobs may lie ahead of such a worker: where it runs one job at a time, in order, and no
    limit of jobs replaces the worker between two."""
    if worker is None:
        return False
    return worker.kind == "python" and worker.concurrency == 1 and worker.max_jobs is None


def depth(run_s: float | None) -> int:
    """Returns how many jobs may lie ahead of a worker, by how long the endpoint's jobs run; None: nothing is
    known."""
    return 0 if run_s is None else min(MOST, int(WAIT_S / max(run_s, SHORTEST_S)))


def packed(run_s: float | None) -> int:
    """Returns how many jobs are assigned to a busy worker before another worker is used."""
    return 0 if run_s is None else min(MOST, int(PACK_S / max(run_s, SHORTEST_S)))
