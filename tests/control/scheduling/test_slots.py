"""Several jobs at once on a worker: where they go, and how many, as the workers tell it."""

from __future__ import annotations

import asyncio

import pytest

from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import Assign, HeldAttempt, HeldWorker, WorkerState
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

FOUR = EndpointVersion("/h/echo.py:handler", concurrency=4)


def several(workers: int) -> Endpoint:
    return endpoint(run=FOUR, workers_min=workers, workers_max=workers)


async def report_slots(agent: ScriptedAgent, worker: str, slots: int | None) -> None:
    await agent.report(WorkerState(worker, "echo", 1, "ready", slots=slots))


async def submit(w: World, jobs: int) -> None:
    for n in range(jobs):
        await w.plane.commands.submit(w.echo, one(n), sync=False)


async def assigned(agent: ScriptedAgent, jobs: int) -> list[Assign]:
    return [await agent.assigned() for _ in range(jobs)]


async def gets_no_more(agent: ScriptedAgent) -> None:
    """Virtual time: whatever would be given without a further word has been given."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await agent.assigned()


@story
async def test_three_jobs_go_to_three_workers_and_the_fourth_to_the_warmest() -> None:
    async with world(several(3)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        workers = await agent.ready_workers(3)
        seen = []
        for _ in range(4):
            await submit(w, 1)
            seen.append((await agent.assigned()).worker)
            w.moved += 1.0
        assert sorted(seen[:3]) == workers
        assert seen[3] == seen[2], "the one that was used last"


@story
async def test_jobs_that_wait_already_spread_over_the_workers_that_come() -> None:
    """Three jobs, three workers with four slots: one claim, and still one each."""
    async with world(several(3)) as (w, tasks):
        await submit(w, 3)
        agent = w.agent()
        held = [HeldWorker(f"w{n}", "echo", 1, "ready", ("CPU-0",), 4) for n in range(3)]
        await w.gave(agent.node, *held, slots=4)
        await agent.connect(tasks, workers=held)
        assert sorted(assign.worker for assign in await assigned(agent, 3)) == ["w0", "w1", "w2"]


@story
async def test_a_worker_gets_as_many_jobs_as_it_reported_and_more_when_it_takes_more() -> None:
    async with world(several(1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        while not agent.specs:
            await agent.receive()
        (worker,) = agent.specs
        await report_slots(agent, worker, 2)
        await submit(w, 6)
        first = await assigned(agent, 2)
        await gets_no_more(agent)
        await report_slots(agent, worker, 3)
        await agent.assigned()
        await report_slots(agent, worker, 1)
        await agent.completes(first[0])
        await agent.completes(first[1])
        await gets_no_more(agent)  # one still runs, and one at once is what it takes


@story
async def test_a_worker_that_reports_no_number_has_that_of_its_endpoint() -> None:
    async with world(several(1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await submit(w, 6)
        await assigned(agent, 4)
        await gets_no_more(agent)


@story
async def test_hello_reports_how_many_slots_a_worker_has() -> None:
    async with world(several(1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (worker,) = await agent.ready_workers()
        await submit(w, 6)
        running = await assigned(agent, 4)
        await agent.leaves()
        held = HeldWorker(worker, "echo", 1, "ready", ("CPU-0",), 3)
        attempts = [HeldAttempt(a.job, a.attempt, worker, "running") for a in running]
        await agent.connect(tasks, workers=[held], attempts=attempts)
        await gets_no_more(agent)
        await agent.completes(running[0])
        await agent.completes(running[1])
        await agent.assigned()
        await gets_no_more(agent)


@story
async def test_a_change_of_slots_does_not_make_a_worker_seem_busy() -> None:
    """It goes when it was idle for long enough, whatever it told meanwhile."""
    kept = endpoint(run=FOUR, workers_min=0, workers_max=1, idle_timeout_s=5)
    async with world(kept) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await submit(w, 1)
        (worker,) = await agent.ready_workers()
        await agent.completes(await agent.assigned())
        idle = w.loop.time()
        await asyncio.sleep(4.0)
        await report_slots(agent, worker, 2)
        while agent.specs:
            await agent.receive()
        assert w.loop.time() - idle < 8.0


@story
async def test_more_workers_start_where_they_take_less_than_their_endpoint_allows() -> None:
    grows = endpoint(run=FOUR, workers_min=1, workers_max=4)
    async with world(grows) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        while not agent.specs:
            await agent.receive()
        (worker,) = agent.specs
        await report_slots(agent, worker, 1)
        await submit(w, 4)
        while len(agent.specs) < 4:
            await agent.receive()
