"""The plane with its real store and a scripted agent: sessions, claims, reports, waiting, streams."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from stoker.control.errors import InvalidInput, NotFound, Unauthorized, Unavailable
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import EndpointVersion
from stoker.wire.messages import (
    Cancel,
    Chunk,
    HeldAttempt,
    HeldWorker,
    Outcome,
    Price,
    Progress,
    Refused,
    Released,
)
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

SCHEMA = {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer"}}}


@story
async def test_a_job_goes_down_and_its_result_comes_back() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        assert (await agent.connect(tasks)).welcome is not None
        await agent.ready_workers()
        waiting = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 90))
        assign = await agent.assigned()
        assert assign.input == b'{"x":1}'
        assert assign.grant is not None
        assert assign.grant.prefix == f"echo/{assign.job}/1/"
        await agent.completes(assign)
        view = await waiting
        assert (view.state, view.output, view.execution_ms) == (JobState.COMPLETED, b'{"ok":true}', 7)
        assert view.worker == assign.worker


@story
async def test_demand_starts_a_worker_and_idleness_stops_it() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assert (await w.plane.queries.status(w.echo, job.id)).reason in {
            "starting",
            "no capacity: no node is connected",
        }
        await agent.ready_workers()
        await agent.completes(await agent.assigned())
        assert (await w.plane.queries.wait(w.echo, job.id, 10)).ended
        while agent.specs:
            await agent.receive()


@story
async def test_one_slot_takes_queued_jobs_one_after_the_other_in_order() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        jobs = [(await w.plane.commands.submit(w.echo, one(n), sync=False)).id for n in range(5)]
        seen = []
        for _ in jobs:
            assign = await agent.assigned()
            assert not agent.assigns
            seen.append(assign.job)
            await agent.completes(assign, ms=1000)
        assert seen == jobs


@story
async def test_a_slot_is_released_before_the_outcome_while_the_upload_runs() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        first, second = [await w.plane.commands.submit(w.echo, one(n), sync=False) for n in (1, 2)]
        assign = await agent.assigned()
        await agent.report(Released(assign.job, 1))
        assert (await agent.assigned()).job == second.id
        await agent.completes(assign)
        assert (await w.plane.queries.wait(w.echo, first.id, 10)).state is JobState.COMPLETED


@story
async def test_a_wait_that_must_end_stops_a_frozen_job() -> None:
    """It may be tried again, and what the worker says at last changes nothing."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        began = w.loop.time()
        view = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 30, must_end=True))
        frozen = await agent.assigned()
        stops: list[Cancel] = []
        while not stops:
            stops += (await agent.receive()).cancels
        assert (await view).state is JobState.TIMED_OUT
        assert "within the 30 s" in ((await view).error or "")
        assert 30 <= w.loop.time() - began < 31
        assert [one.job for one in stops] == [frozen.job]
        assert (await w.plane.commands.retry(w.echo, frozen.job)).state is JobState.IN_QUEUE
        await agent.completes(frozen, b'"late"')
        again = await agent.assigned()
        assert (again.job, again.attempt) == (frozen.job, 2)
        await agent.completes(again, b'"fresh"')
        assert (await w.plane.queries.wait(w.echo, frozen.job, 10)).output == b'"fresh"'


@story
async def test_before_its_end_control_answers_waits_early_and_takes_new_jobs() -> None:
    """Callers come back at the next process; a job whose caller must have its end is not stopped for that."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        commands, queries = w.plane.commands, w.plane.queries
        must = tasks.create_task(commands.run_sync(w.echo, one(), 300, must_end=True))
        first = await agent.assigned()
        waits = tasks.create_task(queries.wait(w.echo, first.job, 300))
        polls = tasks.create_task(queries.poll_stream(w.echo, first.job, 300))
        await asyncio.sleep(1.0)
        began = w.loop.time()
        w.plane.end_waits()
        assert (await must).state is (await waits).state is JobState.IN_PROGRESS
        assert (await polls).view.state is JobState.IN_PROGRESS
        queued = await commands.run_sync(w.echo, one(), 300)
        assert (await queries.wait(w.echo, queued.id, 300)).state is JobState.IN_QUEUE
        assert w.loop.time() == began
        await agent.completes(first, b'"done"')
        assert (await agent.assigned()).job == queued.id
        w.plane.close()
        for refused in (commands.submit(w.echo, one(), sync=False), queries.wait(w.echo, queued.id, 300)):
            with pytest.raises(Unavailable, match="the service is stopping"):
                await refused
        assert (await queries.status(w.echo, first.job)).output == b'"done"'


@story
async def test_a_queued_job_whose_wait_must_end_is_given_to_nobody() -> None:
    async with world() as (w, tasks):
        view = await w.plane.commands.run_sync(w.echo, one(), 300, must_end=True)
        assert (view.state, view.worker) == (JobState.TIMED_OUT, None)
        agent = w.agent()
        await agent.connect(tasks)
        await agent.listen(30)
        assert not agent.assigns


@story
async def test_a_broken_stream_requeues_after_five_seconds_and_a_stale_outcome_changes_nothing() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        first = await agent.assigned()
        left = w.loop.time()
        await agent.leaves()
        other = w.agent(node="node-2", boot="boot-9")
        await other.connect(tasks)
        await other.ready_workers()
        second = await other.assigned()
        assert 5.0 <= w.loop.time() - left < 8.0
        assert (second.job, second.attempt) == (job.id, 2)
        await agent.connect(tasks, attempts=[HeldAttempt(first.job, 1, first.worker, "reporting")])
        await agent.completes(first, b'"stale"')
        await other.completes(second, b'"fresh"')
        assert (await w.plane.queries.wait(w.echo, job.id, 10)).output == b'"fresh"'


@story
async def test_an_agent_that_comes_back_in_time_keeps_its_work() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await agent.leaves()
        spec = agent.specs[assign.worker]
        held = HeldWorker(spec.worker, spec.endpoint, spec.version, "ready", spec.devices)
        running = HeldAttempt(assign.job, 1, assign.worker, "running")
        answer = await agent.connect(tasks, workers=[held], attempts=[running])
        assert answer.welcome is not None
        assert [key.job for key in answer.welcome.keep] == [job.id]
        await agent.completes(assign)
        assert (await w.plane.queries.wait(w.echo, job.id, 10)).attempt == 1


@story
async def test_cancel_ends_the_job_at_once_and_notifies_the_agent() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        assert (await w.plane.commands.cancel(w.echo, job.id)).state is JobState.CANCELLED
        while not (message := await agent.receive()).cancels:
            pass
        assert message.cancels[0].job == job.id
        await agent.completes(assign)
        assert (await w.plane.queries.status(w.echo, job.id)).state is JobState.CANCELLED
        again = await w.plane.commands.submit(w.echo, one(), sync=False)
        assert (await agent.assigned()).job == again.id


@story
async def test_a_lost_worker_is_tried_again_three_times_at_most() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        for attempt in (1, 2, 3):
            assign = await agent.assigned()
            assert assign.attempt == attempt
            await agent.report(Outcome(assign.job, attempt, assign.worker, "lost", error="killed by SIGKILL"))
        view = await w.plane.queries.wait(w.echo, job.id, 60)
        assert view.state is JobState.FAILED
        assert view.error is not None
        assert "SIGKILL" in view.error
        assert view.retries == 2


@story
async def test_a_job_costs_what_the_version_that_runs_it_costs() -> None:
    """What an older worker measures may be nothing that the newest version has a price for."""
    first, second = (
        EndpointVersion("/h/echo.py:handler", prices=(Price(m, 1),)) for m in ("pixels", "words")
    )
    old = endpoint(workers_min=1, run=first)
    async with world(old) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        [worker] = await agent.ready_workers()
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assert (await agent.assigned()).prices == first.prices
        w.plane.scaling.note_versions("echo", {1: first})
        w.plane.endpoints.put(replace(old, version=2, run=second))
        again = await w.plane.commands.submit(w.echo, one(), sync=False)
        await agent.report(Outcome(job.id, 1, worker, "completed", b"1"))
        assign = await agent.assigned()
        assert (assign.job, assign.worker, assign.prices) == (again.id, worker, first.prices)
        await agent.completes(assign)


@story
async def test_a_refused_assign_goes_back_to_the_queue_uncounted() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await agent.report(Refused(assign.job, assign.attempt, "the worker is stopping"))
        again = await agent.assigned()
        await agent.completes(again)
        view = await w.plane.queries.wait(w.echo, job.id, 60)
        assert (view.state, view.retries) == (JobState.COMPLETED, 0)


@story
async def test_pollers_get_each_chunk_once_and_the_end_with_the_last() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        polling = tasks.create_task(w.plane.queries.poll_stream(w.echo, job.id, 30))
        await agent.report(Progress(job.id, 1, b'"half"'), Chunk(job.id, 1, 0, b"0"))
        poll = await polling
        assert [chunk.value for chunk in poll.chunks] == [b"0"]
        await w.plane.queries.advance(job.id, poll.cursor)
        await agent.report(
            Chunk(job.id, 1, 1, b"1"), Outcome(job.id, 1, assign.worker, "completed", b"null", execution_ms=1)
        )
        await w.plane.queries.wait(w.echo, job.id, 10)
        poll = await w.plane.queries.poll_stream(w.echo, job.id, 30)
        assert [chunk.value for chunk in poll.chunks] == [b"1"]
        assert poll.view.ended
        await w.plane.queries.advance(job.id, poll.cursor)
        assert (await w.plane.queries.poll_stream(w.echo, job.id, 30)).chunks == ()


@story
async def test_a_follower_receives_a_reset_when_a_new_attempt_begins() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        events: list[tuple[str, int, int]] = []

        chunk_received = asyncio.Event()

        async def listen() -> None:
            async for event in w.plane.queries.follow(w.echo, job.id, None):
                events.append((event.kind, event.attempt, event.n))  # heard one by one
                chunk_received.set()

        listening = tasks.create_task(listen())
        first = await agent.assigned()
        await agent.report(Chunk(job.id, 1, 0, b"0"))
        await chunk_received.wait()
        await agent.report(Outcome(job.id, 1, first.worker, "lost", error="died"))
        second = await agent.assigned()
        await agent.report(Chunk(job.id, 2, 0, b"0"))
        await agent.completes(second)
        await listening
        assert events == [("chunk", 1, 0), ("reset", 2, -1), ("chunk", 2, 0), ("end", 2, 0)]


@story
async def test_hello_is_refused_with_a_message() -> None:
    async with world() as (w, tasks):
        answer = await w.agent().connect(tasks, protocol=9)
        assert answer.refusal is not None
        assert "protocol version 9" in answer.refusal.reason
        unauthenticated = ScriptedAgent(w.plane, "jt_no_such")
        answer = await unauthenticated.connect(tasks)
        assert answer.refusal is not None
        assert "join token" in answer.refusal.reason
        await w.agent().connect(tasks)
        answer = await w.agent(boot="boot-2").connect(tasks)
        assert answer.refusal is not None
        assert "cloned" in answer.refusal.reason


@story
async def test_a_killed_agent_may_come_back_with_another_boot() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.leaves()
        assert (await w.agent(boot="boot-2").connect(tasks)).welcome is not None


@story
async def test_a_silent_node_loses_its_jobs_after_a_minute() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        await agent.assigned()
        silent = w.loop.time()
        other = w.agent(node="node-2")
        await other.connect(tasks)

        async def beats() -> None:
            for number in range(40):
                await other.beat(number)
                await asyncio.sleep(5)

        beating = tasks.create_task(beats())
        await other.ready_workers()
        assert (await other.assigned()).job == job.id
        assert 55 <= w.loop.time() - silent <= 75
        beating.cancel()


@story
async def test_a_clock_that_is_set_forward_leaves_no_place_that_is_none() -> None:
    """The store has lost the nodes by its clock: their streams end, and who is there says Hello again."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        for number in range(13):  # control must have watched for a minute
            await asyncio.sleep(5)
            await agent.beat(number)
        await asyncio.sleep(1)
        assert w.plane.cluster.workers
        w.moved += 100.0
        await asyncio.sleep(3)
        assert not w.plane.cluster.workers


@story
async def test_a_hosted_models_bad_input_is_refused_before_it_is_stored() -> None:
    run = EndpointVersion("m:h", schema=SCHEMA)
    async with world(endpoint("model", hosted=True, run=run)) as (w, _):
        with pytest.raises(InvalidInput) as refused:
            await w.plane.commands.submit(w.plane.endpoints.find("default", "model"), one('"a"'), sync=True)
        assert "x" in str(refused.value)
        with pytest.raises(NotFound):
            await w.plane.queries.status(w.plane.endpoints.find("default", "model"), refused.value.job)


@story
async def test_a_large_input_lies_in_the_object_store_and_its_time_ends_it() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        big = Submission(input=b'"' + b"x" * 2_000_000 + b'"', ttl_ms=10_000)
        job = await w.plane.commands.submit(w.echo, big, sync=False)
        assign = await agent.assigned()
        assert assign.input is None
        assert assign.input_ref is not None
        assert await w.artifacts.get(assign.input_ref) == big.input
        while not (message := await agent.receive()).cancels:
            pass
        assert message.cancels[0].reason == "expired"
        with pytest.raises(NotFound):
            await w.plane.queries.status(w.echo, job.id)
        await asyncio.sleep(2)
        with pytest.raises(NotFound):
            await w.artifacts.get(assign.input_ref)


@story
async def test_keys_are_known_unknown_and_remembered() -> None:
    async with world() as (w, _):
        assert (await w.plane.callers.find(w.key)).account == "default"
        with pytest.raises(Unauthorized, match="invalid api key"):
            await w.plane.callers.find("sk_no_such")
