"""The same document, asked of a real plane: its store in memory, a node that works, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import EndpointVersion, JobView
from stoker.wire.messages import Assign, Chunk, Outcome, Progress
from tests.control.http.calls.document.described import Described
from tests.control.http.calls.document.invocations import OPERATIONS, WITH_PARAMETERS
from tests.control.plane_world import endpoint, one, world
from tests.control.scripted_agent import ScriptedAgent
from tests.simulation.virtual_loop import VirtualLoop

SIZED = {"type": "object", "properties": {"width": {"type": "integer", "minimum": 64}}}
ENDS = ("completed", "failed", "timed_out")


class Workshop:
    """A plane, a node whose jobs take half a second and end in each way in turn, and jobs to ask for."""

    def __init__(self) -> None:
        self.loop = VirtualLoop(1, limit=10**9)
        asyncio.set_event_loop(self.loop)
        self.ends = itertools.cycle(ENDS)
        self._ready, self._over = asyncio.Event(), asyncio.Event()
        self._story = self.loop.create_task(self._play())
        self.run(self._ready.wait())

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def _play(self) -> None:
        own = endpoint("echo", workers_min=1, workers_max=1, keep_cases=True)
        sized = endpoint("sized", workers_max=1, run=EndpointVersion("/h/echo.py:handler", schema=SIZED))
        async with world(own, sized) as (self.world, tasks):
            agent = self.world.agent()
            await agent.connect(tasks)
            await agent.ready_workers()
            tasks.create_task(self._beats(agent))
            tasks.create_task(self._works(agent, tasks))
            self._ready.set()
            await self._over.wait()

    async def _beats(self, agent: ScriptedAgent) -> None:
        for number in itertools.count(1):
            await agent.beat(number)
            await asyncio.sleep(5)

    async def _works(self, agent: ScriptedAgent, tasks: asyncio.TaskGroup) -> None:
        while True:
            assign = await agent.assigned()
            tasks.create_task(self._does(agent, assign))

    async def _does(self, agent: ScriptedAgent, assign: Assign) -> None:
        job, attempt = assign.job, assign.attempt
        await agent.report(Progress(job, attempt, b'"half"'), Chunk(job, attempt, 0, b'{"n":0}'))
        await asyncio.sleep(0.5)
        end = next(self.ends)
        reported = {"output": b'{"x":1}'} if end == "completed" else {"error": "boom"}
        outcome = Outcome(job, attempt, assign.worker, end, execution_ms=7, log=("a", "b"), **reported)
        await agent.report(outcome)

    def fresh(self, n: int) -> dict[str, str]:
        """A job just submitted, one that has run or failed; now and then one that never was."""
        if n % 5 == 4:
            return {"endpoint_id": ("sized", "nobody")[n % 2]}
        jobs = (self._submitted, self._failed, self._submitted, self._run)
        return {"endpoint_id": "echo", "job_id": self.run(jobs[n % 5]()).id, "node": "node-1"}

    async def _submitted(self) -> JobView:
        plane = self.world.plane
        return await plane.commands.submit(plane.endpoints.find("default", "echo"), one(), sync=False)

    async def _run(self) -> JobView:
        plane, view = self.world.plane, await self._submitted()
        return await plane.queries.wait(plane.endpoints.find("default", "echo"), view.id, 10)

    async def _failed(self) -> JobView:
        while (view := await self._run()).state is not JobState.FAILED:
            pass
        return view

    def close(self) -> None:
        self._over.set()
        self.run(self._story)
        self.loop.bury()
        asyncio.set_event_loop(None)
        self.loop.close()


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    made = Workshop()
    yield made
    made.close()


@pytest.fixture(scope="module")
def described(workshop: Workshop) -> Described:
    app = make_app(workshop.world.plane, ApiSettings(rate_limits=False))
    return Described(app.app.openapi(), app, workshop.world.key, workshop.run)


@pytest.mark.parametrize("examples", [5, pytest.param(15, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_requested_as_described_is_answered_as_described(
    described: Described, workshop: Workshop, operation: str, examples: int
) -> None:
    statuses = described.examine(operation, where=workshop.fresh, examples=examples, valid=True)
    assert 200 in statuses


@pytest.mark.parametrize("examples", [4, pytest.param(10, marks=pytest.mark.slow)])
@pytest.mark.parametrize("operation", WITH_PARAMETERS)
def test_what_is_requested_otherwise_is_refused_as_described(
    described: Described, workshop: Workshop, operation: str, examples: int
) -> None:
    described.examine(operation, where=workshop.fresh, examples=examples, valid=False)
