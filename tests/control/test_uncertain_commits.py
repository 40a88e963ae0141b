"""A commit that happened while its answer was lost: nothing that it did stays unheard."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control import store
from stoker.control.errors import UncertainCommit
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import Once, Submission
from stoker.control.rules.types import Listing
from stoker.wire.messages import HeldAttempt, HeldWorker
from stoker.wire.streams import StreamEnded
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


async def back(agent: ScriptedAgent, tasks: asyncio.TaskGroup, *attempts: HeldAttempt) -> object:
    """The agent notices that it was cut off and says Hello with its worker and these attempts."""
    with contextlib.suppress(StreamEnded):
        while True:
            await agent.receive()
    await agent.serving
    held = [HeldWorker(s.worker, s.endpoint, s.version, "ready", s.devices) for s in agent.specs.values()]
    return (await agent.connect(tasks, workers=held, attempts=attempts)).welcome


@story
async def test_a_claim_that_nobody_received_is_given_out_again_at_once() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await asyncio.sleep(1.3)  # between two passes of the sweeper
        keyed = replace(one(), once=Once("k", b"digest"))  # nothing is sent of it before its COMMIT
        w.commits.uncertain = 1
        began = w.loop.time()
        with pytest.raises(UncertainCommit):
            await w.plane.commands.submit(w.echo, keyed, sync=False)
        (view,) = (await w.plane.queries.requests(w.echo, Listing())).views
        assert view.state is JobState.IN_PROGRESS
        await back(agent, tasks)
        assign = await agent.assigned()
        assert (assign.job, assign.attempt) == (view.id, 2)
        assert w.loop.time() - began < 2


@story
async def test_a_claim_that_was_sent_before_its_commit_goes_on() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await asyncio.sleep(1.3)  # between two passes of the sweeper
        w.commits.uncertain = 1
        with pytest.raises(UncertainCommit):
            await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        welcome = await back(agent, tasks, HeldAttempt(assign.job, 1, assign.worker, "running"))
        assert welcome.stop == ()  # type: ignore[attr-defined]
        await agent.completes(assign)
        await agent.listen(1.0)
        view = await w.plane.queries.status(w.echo, assign.job)
        assert (view.state, view.attempt) == (JobState.COMPLETED, 1)


@story
async def test_an_end_that_nobody_received_is_reported_to_who_waits() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        waiting = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 90))
        assign = await agent.assigned()
        w.commits.uncertain = 1
        await agent.completes(assign)
        began = w.loop.time()
        assert (await waiting).output == b'{"ok":true}'
        assert w.loop.time() - began < 1


@story
async def test_whoever_waits_goes_on_waiting_when_a_commit_is_uncertain() -> None:
    """Each uncertain commit wakes all who wait; this job has not ended, so its caller waits on."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        waiting = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 90))
        assign = await agent.assigned()
        polling = tasks.create_task(w.plane.queries.wait(w.echo, assign.job, 90))
        await asyncio.sleep(1.3)  # between two passes of the sweeper
        for _ in range(2):
            w.commits.uncertain = 1
            with pytest.raises(UncertainCommit):
                await w.plane.commands.submit(w.echo, one(), sync=False)
        await asyncio.sleep(10)
        assert not waiting.done()
        assert not polling.done()
        await back(agent, tasks, HeldAttempt(assign.job, 1, assign.worker, "running"))
        await agent.completes(assign)
        assert (await waiting).output == (await polling).output == b'{"ok":true}'


@story
async def test_an_end_that_was_stored_after_the_uncertain_commit_is_reported_to_who_reads_the_stream() -> (
    None
):
    """The server may still be committing when the connection has broken: who looked then was too early."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        events = w.plane.queries.follow(w.echo, assign.job, None)
        end = tasks.create_task(anext(events))
        await asyncio.sleep(1.3)  # between two passes of the sweeper
        commit, late = w.commits.commit, []

        async def broken(fn: Callable[[store.Conn], Any]) -> Any:
            w.commits.commit = commit  # type: ignore[method-assign]
            late.append(fn)
            raise UncertainCommit("the database went away in the very moment of storing")

        w.commits.commit = broken  # type: ignore[method-assign]
        await agent.completes(assign)
        while not late:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await commit(late.pop())
        await back(agent, tasks, HeldAttempt(assign.job, assign.attempt, assign.worker, "reporting"))
        await agent.completes(assign)  # it was not acknowledged
        assert (await asyncio.wait_for(end, 30)).kind == "end"
        await events.aclose()


@story
async def test_a_cancel_that_nobody_received_stops_the_work() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        w.commits.uncertain = 1
        with pytest.raises(UncertainCommit):
            await w.plane.commands.cancel(w.echo, assign.job)
        welcome = await back(agent, tasks, HeldAttempt(assign.job, 1, assign.worker, "running"))
        assert [key.job for key in welcome.stop] == [assign.job]


@story
async def test_a_large_input_is_kept_while_its_job_may_be_stored() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        input_json = json.dumps({"x": "y" * 2_000_000}).encode()
        w.commits.uncertain = 2  # the first notes the input
        with pytest.raises(UncertainCommit):
            await w.plane.commands.submit(w.echo, Submission(input_json), sync=False)
        assert len(w.artifacts.blobs) == 1
