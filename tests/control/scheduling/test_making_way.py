"""An urgent job takes the slot of a long one that saves, which is asked once and goes on after it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from stoker.control.rules.access import Caller
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.types import JobView
from stoker.control.scheduling.making_way import ASK_AGAIN_S
from stoker.wire.messages import Assign, FromControl, Outcome, Save, Yield
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

WHY = "a job of class urgent waits"
OWNER = Caller("default", priority=Priority.URGENT)


async def submit(w: World, priority: Priority = Priority.NORMAL, **fields: Any) -> JobView:
    asked = replace(one(), priority=priority, **fields)
    return await w.plane.commands.submit(w.echo, asked, sync=False, caller=OWNER)


async def runs_on(agent: ScriptedAgent) -> None:
    """100 s pass for a connected agent."""
    for number in range(4):
        await asyncio.sleep(25)
        await agent.beat(number)


async def running_long(
    w: World, tasks: asyncio.TaskGroup, *, saves: int = 10
) -> tuple[ScriptedAgent, Assign]:
    """A job that runs for 100 s, and has saved."""
    agent = await w.working_agent(tasks)
    await submit(w)
    assign = await agent.assigned()
    await runs_on(agent)
    await agent.report(*(Save(assign.job, 1, n, 0, b"%d" % n) for n in range(saves)))
    return agent, assign


async def asked(agent: ScriptedAgent, seconds: float) -> tuple[Yield, ...]:
    """What the node is asked within this time."""
    message = FromControl()
    await agent.beat(9)
    try:
        async with asyncio.timeout(seconds):
            while not message.yields:
                message = await agent.receive()
    except TimeoutError:
        return ()
    return message.yields


@story
async def test_a_long_job_yields_to_an_urgent_one_and_goes_on_after_it() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent, long = await running_long(w, tasks)
        urgent = await submit(w, Priority.URGENT)
        assert await asked(agent, 5) == (Yield(long.job, 1, WHY),)
        await agent.report(
            Save(long.job, 1, 10, 0, b"half"),
            Outcome(long.job, 1, long.worker, "yielded", error=WHY, retryable=True),
        )
        first = await agent.assigned()
        assert first.job == urgent.id
        view = await w.plane.queries.status(w.echo, long.job)
        assert (view.state, view.reason) == (JobState.IN_QUEUE, f"yielded: {WHY}")
        await agent.completes(first)
        again = await agent.assigned()
        assert (again.job, again.attempt, again.saved and again.saved.state) == (long.job, 2, b"half")
        await submit(w, Priority.URGENT)
        assert await asked(agent, 30) == (), "not the same job again so soon"
        await agent.completes(again)


@story
async def test_one_request_is_enough_until_it_may_have_been_lost() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent, long = await running_long(w, tasks)
        await submit(w, Priority.URGENT)
        assert await asked(agent, 5) == (Yield(long.job, 1, WHY),)
        assert await asked(agent, ASK_AGAIN_S / 2) == ()
        assert await asked(agent, ASK_AGAIN_S / 2 - 5) == ()
        assert await asked(agent, 10) == (Yield(long.job, 1, WHY),)


@story
async def test_nobody_yields_to_a_normal_job_or_without_a_save_or_beside_a_free_slot() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent, long = await running_long(w, tasks, saves=0)
        await submit(w, Priority.URGENT)
        assert await asked(agent, 10) == (), "it has not saved"
        await agent.completes(long)
        await agent.completes(await agent.assigned())
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent, _ = await running_long(w, tasks)
        await submit(w)
        assert await asked(agent, 10) == (), "they are of one class"


@story
async def test_an_agent_that_knows_no_yields_is_not_asked() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent = w.agent()
        agent.yields = False
        await agent.connect(tasks)
        await agent.ready_workers()
        await submit(w)
        long = await agent.assigned()
        await runs_on(agent)
        await agent.report(Save(long.job, 1, 0, 0, b"1"))
        await submit(w, Priority.URGENT)
        assert await asked(agent, 10) == ()
