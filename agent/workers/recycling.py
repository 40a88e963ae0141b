"""Watches what one worker process has done and how it grows: the shell of `agent.recycle`.

    ready, job ended ──> a look, off the hot path, at most one in LOOK_S ──> decide ──> retire(reason)

Memory is looked at only where the endpoint limits its growth. A look that takes long makes the next later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeAlias

from stoker.agent import recycle
from stoker.agent.alarm import Alarm
from stoker.agent.recycle import Footprint, Limits
from stoker.wire.messages import Device, WorkerSpec

LOOK_S = 1.0
SHARE = 20
"""Looks may take a twentieth of the time."""

Measure: TypeAlias = Callable[[int, Sequence[Device], bool], Awaitable[Footprint]]
"""What the process of this id, with all below it, and these devices hold; whether others work on them, too.
Never raises."""

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None], str], object]


async def nothing_measured(pid: int, devices: Sequence[Device], shared: bool) -> Footprint:
    """For an agent that cannot look."""
    return Footprint()


class WearWatch:
    """`pid` is asked for at each look; 0 means that there is none to look at. `retire` hears the reason."""

    def __init__(
        self,
        spec: WorkerSpec,
        devices: Sequence[Device],
        pid: Callable[[], int],
        measure: Measure,
        spawn: Spawn,
        retire: Callable[[str], None],
    ) -> None:
        self._limits = Limits(spec.max_jobs, spec.max_growth_bytes)
        self._name = spec.worker
        self._devices = devices
        self._shared = spec.share < 1.0
        self._pid = pid
        self._measure = measure
        self._spawn = spawn
        self._retire = retire
        self._wear = recycle.Wear()
        self._alarm = Alarm(self._look)
        self._next = 0.0
        self._looking = False
        self._over = False

    @property
    def jobs(self) -> int:
        """How many it has brought to their end."""
        return self._wear.jobs

    def ready(self) -> None:
        self._look_soon()

    def job_ended(self) -> None:
        """To be told before its slot is free: nothing is given to a worker that goes."""
        self._wear = recycle.job_ended(self._wear)
        self._decide()
        self._look_soon()

    def close(self) -> None:
        """The process is gone, or nobody wants to know any more."""
        self._over = True
        self._alarm.set(None)

    def _look_soon(self) -> None:
        if self._limits.growth_bytes is not None and not self._over and not self._alarm.is_set:
            self._alarm.set(max(self._next, asyncio.get_running_loop().time()))

    def _look(self, at: float) -> None:
        if self._looking:
            self._alarm.set(at + LOOK_S)
            return
        self._looking = True
        self._spawn(self._measured(at), f"memory of worker {self._name}")

    async def _measured(self, began: float) -> None:
        try:
            found = await self._measure(self._pid(), self._devices, self._shared)
        finally:
            self._looking = False
        took = asyncio.get_running_loop().time() - began
        self._next = began + max(LOOK_S, took * SHARE)
        if not self._over:
            self._wear = recycle.measured(self._wear, found)
            self._decide()

    def _decide(self) -> None:
        if not self._over and (why := recycle.decide(self._limits, self._wear)) is not None:
            self._retire(why)
