"""Counts the jobs of one worker process and measures its memory: the shell of
`agent.workers.lifecycle.recycle_policy`.

    ready, job ended ──> a measurement, later, at most one in MEASURE_S ──> decide ──> retire(reason)

Memory is measured only where the endpoint limits its growth. A measurement that takes long delays the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from stoker.agent.alarm import Alarm, loop_time
from stoker.agent.host.process_tree.footprint import Footprint
from stoker.agent.workers.lifecycle import recycle_policy
from stoker.agent.workers.lifecycle.recycle_policy import RecycleLimits
from stoker.wire.messages import Device, WorkerSpec

MEASURE_S = 1.0
SHARE = 20
"""Measurements may take a twentieth of the time."""

Measure: TypeAlias = Callable[[int, Sequence[Device], bool], Awaitable[Footprint]]
"""Measures what the process of this id, with its descendants, and these devices hold. The last argument:
whether the devices are shared. Never raises."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


async def nothing_measured(pid: int, devices: Sequence[Device], shared: bool) -> Footprint:
    """Returns an unknown footprint, for an agent that cannot measure."""
    return Footprint()


class RecycleWatch:
    """For a worker whose endpoint limits one or the other. `pid` is called for each measurement, and returns
    0 where there is no process. `retire` is called with the reason."""

    def __init__(
        self,
        spec: WorkerSpec,
        devices: Sequence[Device],
        pid: Callable[[], int],
        measure: Measure,
        spawn: Spawn,
        retire: Callable[[str], None],
    ) -> None:
        self._limits = RecycleLimits(spec.max_jobs, spec.max_growth_bytes)
        self._name = spec.worker
        self._devices = devices
        self._shared = spec.share < 1.0
        self._pid, self._measure, self._spawn = pid, measure, spawn
        self._retire = retire
        self._record = recycle_policy.ProcessRecord()
        self._alarm = Alarm(self._begin)
        self._next = 0.0
        self._measuring = False
        self._over = False

    def ready(self) -> None:
        self._measure_soon()

    def job_ended(self) -> None:
        """Counts a job that has ended. To be called before its slot is free: a worker that retires gets no
        other job."""
        self._record = recycle_policy.job_ended(self._record)
        self._decide()
        self._measure_soon()

    def close(self) -> None:
        """Closes the watch, when the process has ended or the agent ends."""
        self._over = True
        self._alarm.set(None)

    def _measure_soon(self) -> None:
        if self._limits.growth_bytes is not None and not self._over and self._alarm.at is None:
            self._alarm.set(max(self._next, loop_time()))

    def _begin(self, at: float) -> None:
        if self._measuring:
            self._alarm.set(at + MEASURE_S)
            return
        self._measuring = True
        self._spawn(self._measured(at), f"memory of worker {self._name}")

    async def _measured(self, began: float) -> None:
        try:
            found = await self._measure(self._pid(), self._devices, self._shared)
        finally:
            self._measuring = False
        took = loop_time() - began
        self._next = began + max(MEASURE_S, took * SHARE)
        if not self._over:
            self._record = recycle_policy.measured(self._record, found)
            self._decide()

    def _decide(self) -> None:
        if not self._over and (why := recycle_policy.decide(self._limits, self._record)) is not None:
            self._retire(why)
