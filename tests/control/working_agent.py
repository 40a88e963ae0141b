"""A scripted agent that works: it starts what is desired, runs what it is given, ends what nobody wants."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable

from stoker.control.plane import Plane
from stoker.wire.messages import Assign, Device, WorkerSpec, WorkerState
from tests.control.scripted_agent import CPU, ScriptedAgent


def gpus(count: int) -> tuple[Device, ...]:
    return tuple(Device(uuid=f"GPU-{n}", kind="gpu", name="a GPU", index=n) for n in range(count))


class WorkingAgent(ScriptedAgent):
    """A worker is ready after `cold_s`, a job takes `job_s`. Workers of `broken` versions never get ready.

    `most`: workers held at once; `fewest`: those that were still ready whenever one had gone, since it was
    last set; `ran` counts jobs by the version that ran them.
    """

    def __init__(self, plane: Plane, token: str, *, cold_s: float, job_s: float) -> None:
        super().__init__(plane, token)
        self.cold_s, self.job_s = cold_s, job_s
        self.broken: set[int] = set()
        self.held: dict[str, WorkerSpec] = {}
        self.ready: set[str] = set()
        self.jobs: Counter[str] = Counter()
        self.ran: Counter[int] = Counter()
        self.most, self.fewest = 0, 99

    async def works(self, tasks: asyncio.TaskGroup, devices: Iterable[Device] = (CPU,)) -> None:
        """Connects, and goes on working until all is over."""
        await self.connect(tasks, devices=devices)
        tasks.create_task(self._beats())
        tasks.create_task(self._follow_orders(tasks))

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(5.0)
            await self.beat()

    async def _follow_orders(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            for name in self.held.keys() - self.specs.keys():
                await self._ends(name)
            for name, spec in self.specs.items():
                if name not in self.held:
                    self.held[name] = spec
                    self.most = max(self.most, len(self.held))
                    tasks.create_task(self._starts(spec))
            for assign in self.assigns:
                self.jobs[assign.worker] += 1
                tasks.create_task(self._runs(assign))
            self.assigns.clear()
            await self.receive()

    async def _report_state(self, spec: WorkerSpec, state: str, reason: str = "") -> None:
        await self.report(WorkerState(spec.worker, spec.endpoint, spec.version, state, reason))

    async def _starts(self, spec: WorkerSpec) -> None:
        await self._report_state(spec, "starting")
        await asyncio.sleep(self.cold_s)
        if spec.worker in self.held and spec.version not in self.broken:
            self.ready.add(spec.worker)
            await self._report_state(spec, "ready")
        elif spec.worker in self.held:
            await self._report_state(spec, "unhealthy", "crash loop: it is broken")

    async def _ends(self, name: str) -> None:
        if name in self.held and not self.jobs[name]:
            spec = self.held.pop(name)
            self.ready.discard(name)
            self.fewest = min(self.fewest, len(self.ready))
            await self._report_state(spec, "gone")

    async def _runs(self, assign: Assign) -> None:
        await asyncio.sleep(self.job_s)
        self.jobs[assign.worker] -= 1
        self.ran[self.held[assign.worker].version] += 1
        await self.completes(assign, ms=round(self.job_s * 1000))
        if assign.worker not in self.specs:
            await self._ends(assign.worker)
