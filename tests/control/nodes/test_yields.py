"""Control asks attempts to yield: by key, or all of a node that is to leave, also when it comes back."""

from __future__ import annotations

import asyncio

from stoker.control.rules.job_states import JobState
from stoker.wire.messages import AttemptKey, FromControl, HeldAttempt, HeldWorker, Outcome, Save, Yield
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


async def asked(agent: ScriptedAgent) -> tuple[Yield, ...]:
    """What the node is asked, once it is asked something."""
    message = FromControl()
    while not message.yields:
        message = await agent.receive()
    return message.yields


@story
async def test_an_attempt_that_yields_goes_on_elsewhere_before_new_work() -> None:
    async with world(endpoint(workers_min=1, workers_max=2, max_attempts=1)) as (w, tasks):
        first, second = w.agent(node="node-1"), w.agent(node="node-2")
        await first.connect(tasks)
        await first.ready_workers()
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await first.assigned()
        key = AttemptKey(job.id, 1)
        await w.plane.management.nodes.drain("default", "node-1", drained=True, jobs_yield=True)
        assert await asked(first) == (Yield(job.id, 1, "node node-1 is drained"),)
        await first.report(
            Save(job.id, 1, 0, 0, b"half"),
            Outcome(job.id, 1, assign.worker, "yielded", error="node node-1 is drained", retryable=True),
        )
        await asyncio.sleep(1)
        view = await w.plane.queries.status(w.echo, job.id)
        assert (view.state, view.reason) == (JobState.IN_QUEUE, "yielded: node node-1 is drained")
        newer = await w.plane.commands.submit(w.echo, one(2), sync=False)
        await second.connect(tasks)
        await second.ready_workers()
        again = await second.assigned()
        assert (again.job, again.attempt, again.saved and again.saved.state) == (job.id, 2, b"half")
        await second.completes(again)
        assert (await w.plane.queries.wait(w.echo, job.id, 30)).retries == 0
        assert (await second.assigned()).job == newer.id
        assert not w.plane.yields.ask(key, "it has ended"), "nobody has it"


@story
async def test_a_node_that_is_to_leave_is_asked_again_when_it_comes_back() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await w.plane.management.nodes.drain("default", "node-1", drained=True, jobs_yield=True)
        await asked(agent)
        await agent.leaves()
        again = w.agent()
        held = HeldWorker(assign.worker, "echo", 1, "ready", (), 1)
        attempts = (HeldAttempt(job.id, 1, assign.worker, "running"),)
        answer = await again.connect(tasks, workers=(held,), attempts=attempts)
        assert answer.yields == (Yield(job.id, 1, "node node-1 is drained"),)
        await w.plane.management.nodes.drain("default", "node-1", drained=False)
        await again.leaves()
        last = w.agent()
        answer = await last.connect(tasks, workers=(held,), attempts=attempts)
        assert answer.yields == ()
        await last.completes(assign)


@story
async def test_an_agent_of_an_earlier_version_is_not_asked() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        agent.yields = False
        await agent.connect(tasks)
        await agent.ready_workers()
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        assert not w.plane.yields.ask(AttemptKey(job.id, 1), "an urgent job")
        await agent.completes(assign)
