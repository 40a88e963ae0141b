"""A store that takes nothing for a while: who is connected is told and comes back, what waited goes on."""

from __future__ import annotations

import asyncio

import pytest

from stoker.control.errors import Unavailable
from stoker.control.rules.job_states import JobState
from stoker.wire.messages import HeldAttempt, HeldWorker, Refused
from stoker.wire.streams import StreamEnded
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


async def all_acks(agent: ScriptedAgent) -> tuple[list[int], str]:
    """Listens until the session is over: the numbers of the reports that were acknowledged, and why."""
    acks = []
    try:
        while True:
            if (ack := (await agent.receive()).ack) is not None:
                acks.append(ack.report)
    except StreamEnded as ended:
        return acks, str(ended)


@story
async def test_nothing_is_accepted_and_the_queue_is_kept() -> None:
    async with world() as (w, _):
        kept = await w.plane.commands.submit(w.echo, one(), sync=False)
        w.commits.full = True
        with pytest.raises(Unavailable, match="is full"):
            await w.plane.commands.submit(w.echo, one(), sync=False)
        with pytest.raises(Unavailable, match="is full"):
            await w.plane.commands.run_sync(w.echo, one(), 10)
        with pytest.raises(Unavailable, match="is full"):
            await w.plane.commands.cancel(w.echo, kept.id)
        assert (await w.plane.queries.status(w.echo, kept.id)).state is JobState.IN_QUEUE
        assert (await w.plane.queries.health(w.echo)).in_queue == 1


@story
async def test_a_hello_is_not_refused_but_requested_again() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        w.commits.full = True
        for _ in range(3):
            with pytest.raises(StreamEnded, match="the disk of the data folder is full"):
                await agent.connect(tasks)
            await agent.serving
        w.commits.full = False
        assert (await agent.connect(tasks)).welcome is not None


@story
async def test_a_beat_that_cannot_be_stored_ends_the_session_whole() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        w.commits.full = True
        await agent.beat()
        assert "is full" in (await all_acks(agent))[1]
        await agent.serving
        assert not w.plane.cluster.workers, "nothing is claimed for a node that is not connected"


@story
async def test_an_outcome_is_kept_by_its_agent_until_it_is_stored() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        [worker] = await agent.ready_workers()
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await agent.beat()  # what came before may have been acknowledged with the Assign
        while not (await agent.receive()).ack:
            pass
        w.commits.full = True
        number = agent.number
        await agent.completes(assign)
        acks, reason = await all_acks(agent)
        assert "is full" in reason
        assert all(ack <= number for ack in acks)
        await asyncio.sleep(20)  # the broken stream's time passes: the job cannot be requeued either
        assert (await w.plane.queries.status(w.echo, job.id)).state is JobState.IN_PROGRESS
        w.commits.full = False
        spec = agent.specs[worker]
        held = HeldWorker(worker, spec.endpoint, spec.version, "ready")
        answer = await agent.connect(
            tasks, workers=[held], attempts=[HeldAttempt(job.id, 1, worker, "reporting")]
        )
        assert answer.welcome is not None
        assert answer.welcome.stop == ()
        await agent.completes(assign)
        view = await w.plane.queries.wait(w.echo, job.id, 60)
        assert (view.state, view.attempt, view.retries) == (JobState.COMPLETED, 1, 0)


@story
async def test_a_claim_that_failed_is_made_again() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        first = await agent.assigned()
        await agent.report(Refused(first.job, 1, "no room"))
        while not ((await agent.receive()).ack or agent.assigns):
            pass
        w.commits.full = True
        await asyncio.sleep(5)
        w.commits.full = False
        # No submission, no outcome, no new worker: nothing but the failed claim itself calls for another.
        again = await asyncio.wait_for(agent.assigned(), 30)
        assert (again.job, again.attempt) == (job.id, 2)
        await agent.completes(again)
        assert (await w.plane.queries.wait(w.echo, job.id, 10)).state is JobState.COMPLETED


@story
async def test_a_session_that_fails_leaves_no_ghost_that_jobs_are_given_to() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        w.commits.mistake = True
        await agent.beat()
        assert (await all_acks(agent))[1] == "control failed in this session"
        await asyncio.wait_for(agent.serving, 10)
        assert not w.plane.cluster.workers
        assert not w.plane.sessions.connected()
