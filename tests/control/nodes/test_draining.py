"""What control does when a node is about to go, and when it goes itself."""

from __future__ import annotations

import asyncio

import pytest

from stoker.control.errors import Unavailable
from stoker.control.rules.job_states import JobState
from stoker.wire.messages import FromAgent, FromControl, HeldAttempt, Refused
from stoker.wire.streams import StreamEnded
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

ABOUT_TO_GO = "no capacity: every connected node is about to go"


async def drains(agent: ScriptedAgent) -> None:
    await agent.stream.send(FromAgent(draining=True))


@story
async def test_a_draining_nodes_worker_gets_no_job_and_is_replaced_elsewhere_at_once() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        first, second = w.agent(node="node-1"), w.agent(node="node-2")
        await first.connect(tasks)
        await first.ready_workers()
        await second.connect(tasks)
        began = w.loop.time()
        await drains(first)
        await second.ready_workers()
        assert w.loop.time() - began < 0.5
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assert (await second.assigned()).job == job.id
        assert first.assigns == []
        assert (await w.plane.queries.health(w.echo)).ready == 1


@story
async def test_what_it_hands_back_runs_elsewhere_and_is_no_retry() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        first, second = w.agent(node="node-1"), w.agent(node="node-2")
        await first.connect(tasks)
        await first.ready_workers()
        waiting = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 90))
        assign = await first.assigned()
        await second.connect(tasks)
        await drains(first)
        await second.ready_workers()
        began = w.loop.time()
        await first.report(Refused(assign.job, assign.attempt, "the agent is shutting down", at_once=True))
        again = await second.assigned()
        assert w.loop.time() - began < 0.5
        assert (again.job, again.attempt) == (assign.job, 2)
        await second.completes(again)
        view = await waiting
        assert (view.state, view.retries) == (JobState.COMPLETED, 0)


@story
async def test_what_a_node_could_hand_back_only_after_it_came_back_is_no_retry_either() -> None:
    """It was cut off when it ended, and its jobs were thought lost."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await agent.leaves()
        await asyncio.sleep(20)
        assert (await w.plane.queries.status(w.echo, job.id)).state is JobState.IN_QUEUE
        again = w.agent(boot="boot-2")
        await again.connect(tasks, attempts=(HeldAttempt(job.id, 1, "", "reporting"),))
        await again.report(Refused(job.id, assign.attempt, "the agent is shutting down", at_once=True))
        await again.ready_workers()
        second = await again.assigned()
        assert second.attempt == 2
        assert w.store.writer.raw.execute("SELECT failures, suspect FROM jobs").fetchall() == [(0, 0)]
        await again.completes(second)
        view = await w.plane.queries.wait(w.echo, job.id, 30)
        assert (view.state, view.retries) == (JobState.COMPLETED, 0)


@story
async def test_a_job_that_waits_says_that_every_node_is_about_to_go() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await drains(agent)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        await asyncio.sleep(2)
        assert (await w.plane.queries.status(w.echo, job.id)).reason == ABOUT_TO_GO
        assert agent.specs == {}


@story
async def test_a_node_that_comes_back_is_no_longer_draining() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await drains(agent)
        await agent.leaves()
        again = w.agent(boot="boot-2")
        await again.connect(tasks)
        await again.ready_workers()


# ---- control itself


async def with_a_running_job(w: World, tasks: asyncio.TaskGroup) -> ScriptedAgent:
    agent = await w.working_agent(tasks)
    await w.plane.commands.submit(w.echo, one(), sync=False)
    return agent


async def goodbye(agent: ScriptedAgent) -> FromControl:
    """Everything up to the end of the session; its last message."""
    last = FromControl()
    while True:
        try:
            last = await agent.receive()
        except StreamEnded:
            return last


@story
async def test_it_takes_no_more_jobs_and_says_when_to_come_back() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await with_a_running_job(w, tasks)
        assign = await agent.assigned()
        queued = await w.plane.commands.submit(w.echo, one(2), sync=False)
        await w.plane.stop()
        with pytest.raises(Unavailable) as refused:
            await w.plane.commands.submit(w.echo, one(), sync=False)
        assert refused.value.retry_after
        with pytest.raises(Unavailable):
            await w.plane.commands.run_sync(w.echo, one(), 5)
        assert (await w.plane.queries.status(w.echo, assign.job)).state is JobState.IN_PROGRESS
        assert (await w.plane.queries.status(w.echo, queued.id)).state is JobState.IN_QUEUE


@story
async def test_agents_are_notified_and_their_jobs_are_left_to_them() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await with_a_running_job(w, tasks)
        assign = await agent.assigned()
        stopped = tasks.create_task(w.plane.stop())
        assert (await goodbye(agent)).stopping
        await stopped
        await asyncio.sleep(30)
        assert (await w.plane.queries.status(w.echo, assign.job)).state is JobState.IN_PROGRESS


@story
async def test_what_is_being_committed_is_committed_and_claims_nothing() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await with_a_running_job(w, tasks)
        assign = await agent.assigned()
        queued = await w.plane.commands.submit(w.echo, one(2), sync=False)
        real = w.commits.commit

        async def slow(fn):  # type: ignore[no-untyped-def]
            await asyncio.sleep(0.3)
            return await real(fn)

        w.commits.commit = slow  # type: ignore[method-assign]
        await agent.completes(assign)
        await asyncio.sleep(0.1)
        stopped = tasks.create_task(w.plane.stop())
        await goodbye(agent)
        await stopped
        assert (await w.plane.queries.status(w.echo, assign.job)).state is JobState.COMPLETED
        assert (await w.plane.queries.status(w.echo, queued.id)).state is JobState.IN_QUEUE


@story
async def test_whoever_is_held_is_answered_with_the_job_as_it_stands() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        sync = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 300))
        assign = await agent.assigned()
        wait = tasks.create_task(w.plane.queries.wait(w.echo, assign.job, 300))
        poll = tasks.create_task(w.plane.queries.poll_stream(w.echo, assign.job, 300))
        events = tasks.create_task(_events(w, assign.job))
        await asyncio.sleep(0.1)
        began = w.loop.time()
        await w.plane.stop()
        assert (await sync).state is (await wait).state is JobState.IN_PROGRESS
        assert (await sync).id == assign.job
        assert (await poll).view.state is JobState.IN_PROGRESS
        assert await events == []
        for held in (w.plane.queries.wait, w.plane.queries.poll_stream):
            with pytest.raises(Unavailable):
                await held(w.echo, assign.job, 300)
        assert w.loop.time() - began < 3


async def _events(w: World, job: str) -> list[str]:
    return [event.kind async for event in w.plane.queries.follow(w.echo, job, None)]
