"""The rules of a queue, through the plane: time limits, retention, retries, purges, keys used twice."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control import store
from stoker.control.errors import BadRequest, KeyReused, NotFound
from stoker.control.jobs import records
from stoker.control.jobs.queries import COUNT_MOST, RECOUNT_S
from stoker.control.rules.access import Caller
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.expected import SAMPLES
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.submissions import Once, Submission
from stoker.control.rules.types import Counted, Listing, NewJob
from stoker.wire.messages import Assign, Chunk, Outcome, Ref, WorkerState
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


async def agent_with_workers(w: World, tasks: asyncio.TaskGroup) -> ScriptedAgent:
    agent = await w.working_agent(tasks)
    return agent


async def running(w: World, tasks: asyncio.TaskGroup, job_input: Submission) -> tuple[ScriptedAgent, Assign]:
    agent = await agent_with_workers(w, tasks)
    await w.plane.commands.submit(w.echo, job_input, sync=False)
    return agent, await agent.assigned()


async def gone(w: World, job: str) -> None:
    with pytest.raises(NotFound):
        await w.plane.queries.status(w.echo, job)


async def stopped(agent: ScriptedAgent) -> Any:
    while True:
        message = await agent.receive()
        if message.cancels:
            return message.cancels[0]


# ---- ttl --------------------------------------------------------------------------------------------


@story
async def test_a_ttl_that_passes_in_the_queue_ends_the_record_and_who_waits_is_notified() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        job = await w.plane.commands.submit(w.echo, Submission(b"{}", ttl_ms=10_000), sync=False)
        began = w.loop.time()
        with pytest.raises(NotFound):
            await w.plane.queries.wait(w.echo, job.id, 300)
        assert 10.0 <= w.loop.time() - began < 12.0
        await gone(w, job.id)


@story
async def test_a_ttl_that_passes_while_it_runs_stops_the_work_and_a_late_result_is_nobodys() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, Submission(b"{}", ttl_ms=10_000))
        cancel = await stopped(agent)
        assert (cancel.job, cancel.attempt) == (assign.job, 1)
        await gone(w, assign.job)
        await agent.completes(assign)
        await asyncio.sleep(1)
        await gone(w, assign.job)
        assert (await w.plane.queries.health(w.echo)).completed == 0


@story
async def test_an_endpoints_ttl_holds_where_the_job_has_none() -> None:
    async with world(endpoint(workers_max=0, ttl_ms=20_000)) as (w, _):
        short = await w.plane.commands.submit(w.echo, Submission(b"{}", ttl_ms=10_000), sync=False)
        long = await w.plane.commands.submit(w.echo, one(), sync=False)
        w.moved += 15
        await gone(w, short.id)
        await w.plane.queries.status(w.echo, long.id)
        w.moved += 6
        await gone(w, long.id)


@story
async def test_asking_for_the_status_with_a_ttl_shortens_it_and_stops_the_work_then() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        assert (await w.plane.queries.status(w.echo, assign.job, 6_000)).state is JobState.IN_PROGRESS
        await w.plane.queries.status(w.echo, assign.job, 60_000)  # lengthens nothing
        assert (await stopped(agent)).job == assign.job
        await gone(w, assign.job)


@story
async def test_a_deleted_job_is_gone_at_once_and_its_work_is_stopped() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        cursor = await w.plane.queries.cursor_of(w.echo, assign.job)
        await w.plane.commands.delete(w.echo, assign.job)
        await gone(w, assign.job)
        assert (await stopped(agent)).job == assign.job
        assert (await w.plane.queries.requests(w.echo, Listing(before=cursor + 1))).views == ()
        for of_none in (w.plane.queries.cursor_of, w.plane.commands.delete):
            with pytest.raises(NotFound):
                await of_none(w.echo, assign.job)


# ---- retention --------------------------------------------------------------------------------------


@story
async def test_an_asynchronous_result_is_kept_thirty_minutes_and_a_synchronous_one_a_minute() -> None:
    for sync, kept in ((False, 1_800), (True, 60)):
        async with world(endpoint(workers_min=1)) as (w, tasks):
            agent = await agent_with_workers(w, tasks)
            job = await w.plane.commands.submit(w.echo, one(), sync=sync)
            await agent.completes(await agent.assigned())
            await w.plane.queries.wait(w.echo, job.id, 10)
            w.moved += kept - 5
            assert (await w.plane.queries.status(w.echo, job.id)).ended
            w.moved += 10
            await gone(w, job.id)


# ---- retry ------------------------------------------------------------------------------------------


@story
async def test_a_failed_job_is_run_again_with_the_same_id_and_input() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, first = await running(w, tasks, one(7))
        await agent.report(Chunk(first.job, 1, 0, b'"old"'))
        await agent.report(Outcome(first.job, 1, first.worker, "failed", error="no"))
        assert (await w.plane.queries.wait(w.echo, first.job, 10)).state is JobState.FAILED
        view = await w.plane.commands.retry(w.echo, first.job)
        assert (view.id, view.state) == (first.job, JobState.IN_QUEUE)
        second = await agent.assigned()
        assert (second.job, second.attempt, second.input) == (first.job, 2, b'{"x":7}')
        await agent.report(Chunk(second.job, 2, 0, b'"new"'))
        await agent.completes(second)
        done = await w.plane.queries.wait(w.echo, first.job, 10)
        assert (done.state, done.output, done.error, done.retries) == (
            JobState.COMPLETED,
            b'{"ok":true}',
            None,
            1,
        )
        poll = await w.plane.queries.poll_stream(w.echo, first.job, 1)
        assert [chunk.value for chunk in poll.chunks] == [b'"new"']


@story
async def test_only_failed_and_timed_out_jobs_can_be_retried() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        with pytest.raises(BadRequest, match="IN_PROGRESS"):
            await w.plane.commands.retry(w.echo, assign.job)
        await agent.completes(assign)
        await w.plane.queries.wait(w.echo, assign.job, 10)
        with pytest.raises(BadRequest, match="COMPLETED"):
            await w.plane.commands.retry(w.echo, assign.job)
        with pytest.raises(NotFound):
            await w.plane.commands.retry(w.echo, "no-such-job")


@story
async def test_a_retry_keeps_the_old_ttl() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, Submission(b"{}", ttl_ms=100_000))
        await agent.report(Outcome(assign.job, 1, assign.worker, "timed_out", error="late"))
        await w.plane.queries.wait(w.echo, assign.job, 10)
        w.moved += 60
        await w.plane.commands.retry(w.echo, assign.job)
        again = await agent.assigned()
        assert 30 < again.ttl_s <= 40
        w.moved += 45
        assert (await stopped(agent)).job == assign.job
        await gone(w, assign.job)


@story
async def test_a_handlers_error_is_tried_again_as_often_as_its_endpoint_says() -> None:
    async with world(endpoint(workers_min=1, handler_retries=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        await agent.report(Outcome(assign.job, 1, assign.worker, "failed", error="first"))
        again = await agent.assigned()
        assert (again.job, again.attempt) == (assign.job, 2)
        await agent.report(Outcome(again.job, 2, again.worker, "failed", error="second"))
        view = await w.plane.queries.wait(w.echo, assign.job, 10)
        assert (view.state, view.error, view.retries) == (JobState.FAILED, "second", 1)


@story
async def test_infrastructure_failures_are_tried_again_as_often_as_the_endpoint_says() -> None:
    async with world(endpoint(workers_min=1, max_attempts=2)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        await agent.report(Outcome(assign.job, 1, assign.worker, "lost", error="worker died: SIGKILL"))
        again = await agent.assigned()
        await agent.report(Outcome(again.job, 2, again.worker, "lost", error="worker died: SIGKILL"))
        view = await w.plane.queries.wait(w.echo, assign.job, 10)
        assert (view.state, view.attempt) == (JobState.FAILED, 2)
        assert "worker died" in (view.error or "")


@story
async def test_a_job_that_backs_off_says_so_and_why() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        for attempt in (1, 2):
            await agent.report(Outcome(assign.job, attempt, assign.worker, "lost", error="worker died: oops"))
            if attempt == 1:
                await agent.assigned()
        await asyncio.sleep(0.1)
        view = await w.plane.queries.status(w.echo, assign.job)
        assert view.state is JobState.IN_QUEUE
        assert view.reason is not None
        assert "backing off" in view.reason
        assert "worker died: oops" in view.reason


# ---- purge ------------------------------------------------------------------------------------------


@story
async def test_a_purge_cancels_what_waits_and_releases_who_waits_for_it() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, first = await running(w, tasks, one())
        waits = [tasks.create_task(w.plane.commands.run_sync(w.echo, one(n), 300)) for n in range(3)]
        while (await w.plane.queries.health(w.echo)).in_queue < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await w.plane.commands.purge(w.echo) == 3
        for view in await asyncio.gather(*waits):
            assert (view.state, view.reason) == (JobState.CANCELLED, "purged")
        assert (await w.plane.queries.health(w.echo)).in_queue == 0
        await agent.completes(first)
        assert (await w.plane.queries.wait(w.echo, first.job, 10)).state is JobState.COMPLETED
        assert await w.plane.commands.purge(w.echo) == 0


# ---- idempotency --------------------------------------------------------------------------------------


def once(x: int, key: str = "k-1") -> Submission:
    input_json = json.dumps({"x": x}).encode()
    return Submission(input_json, once=Once(key, input_json))


@story
async def test_one_key_is_one_job_and_the_second_caller_gets_the_same_result() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await agent_with_workers(w, tasks)
        calls = [tasks.create_task(w.plane.commands.run_sync(w.echo, once(1), 60)) for _ in range(3)]
        await agent.completes(await agent.assigned())
        views = await asyncio.gather(*calls)
        assert len({view.id for view in views}) == 1
        assert {view.output for view in views} == {b'{"ok":true}'}
        late = await w.plane.commands.run_sync(w.echo, once(1), 60)
        assert late.id == views[0].id
        with pytest.raises(KeyReused):
            await w.plane.commands.submit(w.echo, once(2), sync=False)
        assert (await w.plane.queries.health(w.echo)).completed == 1


@story
async def test_a_key_whose_job_has_gone_says_so_and_runs_nothing() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await agent_with_workers(w, tasks)
        call = tasks.create_task(w.plane.commands.run_sync(w.echo, once(1), 60))
        await agent.completes(await agent.assigned())
        await call
        w.moved += 100
        with pytest.raises(NotFound, match="Idempotency-Key"):
            await w.plane.commands.run_sync(w.echo, once(1), 60)
        w.moved += 86_400
        again = tasks.create_task(w.plane.commands.run_sync(w.echo, once(1), 60))
        await agent.ready_workers()
        await agent.completes(await agent.assigned())
        assert (await again).state is JobState.COMPLETED


@story
async def test_a_large_input_that_came_twice_is_kept_once() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        input_json = json.dumps({"x": "y" * 2_000_000}).encode()
        large = Submission(input_json, once=Once("k", b"f"))
        first = await w.plane.commands.submit(w.echo, large, sync=False)
        second = await w.plane.commands.submit(w.echo, large, sync=False)
        assert first.id == second.id
        while len(w.artifacts.blobs) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        ((_, key),) = w.artifacts.blobs
        assert first.id in key


def submitted() -> list[object]:
    gc.collect()
    return [held for held in gc.get_objects() if type(held) in (Submission, NewJob)]


@story
async def test_who_waits_holds_nothing_of_what_was_submitted() -> None:
    async with world(endpoint(workers_max=0)) as (w, tasks):
        before = submitted()
        waits = [tasks.create_task(w.plane.commands.run_sync(w.echo, one(n), 60)) for n in range(3)]
        await asyncio.sleep(1)
        assert len(submitted()) == len(before)
        await w.plane.commands.purge(w.echo)
        await asyncio.gather(*waits)


@story
async def test_a_large_input_whose_job_was_never_stored_is_deleted_within_an_hour() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        input_json = json.dumps({"x": "y" * 2_000_000}).encode()
        kept = await w.plane.commands.submit(w.echo, Submission(input_json), sync=False)
        put = w.artifacts.put_bytes

        async def dies(key: str, data: bytes) -> Ref:
            await put(key, data)
            raise RuntimeError("control dies here")

        w.artifacts.put_bytes = dies  # type: ignore[method-assign,assignment]
        with pytest.raises(RuntimeError):
            await w.plane.commands.submit(w.echo, Submission(input_json), sync=False)
        await asyncio.sleep(10)
        assert len(w.artifacts.blobs) == 2
        w.moved += 3_600
        await asyncio.sleep(10)
        ((_, key),) = w.artifacts.blobs
        assert kept.id in key


# ---- lists and streams --------------------------------------------------------------------------------


@story
async def test_requests_are_listed_newest_first_page_by_page() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        jobs = [(await w.plane.commands.submit(w.echo, one(n), sync=False)).id for n in range(5)]
        await w.plane.commands.cancel(w.echo, jobs[1])
        first = await w.plane.queries.requests(w.echo, Listing(limit=3))
        assert [view.id for view in first.views] == jobs[:1:-1]
        assert first.cursor is not None
        rest = await w.plane.queries.requests(w.echo, Listing(limit=3, before=first.cursor))
        assert ([view.id for view in rest.views], rest.cursor) == ([jobs[1], jobs[0]], None)
        cancelled = await w.plane.queries.requests(w.echo, Listing(JobState.CANCELLED))
        assert [view.id for view in cancelled.views] == [jobs[1]]
        assert first.views[0].reason


@story
async def test_an_output_over_the_bound_is_given_as_its_address() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        data = json.dumps("y" * (21 << 20)).encode()
        ref = await w.artifacts.put_bytes(f"echo/{assign.job}/1/output.json", data)
        await agent.report(Outcome(assign.job, 1, assign.worker, "completed", output_ref=ref))
        view = await w.plane.queries.wait(w.echo, assign.job, 10)
        place = json.loads(view.output or b"null")
        assert (place["size"], place["sha256"]) == (ref.size, ref.sha256)
        assert ref.key in place["output_url"]


@story
async def test_chunks_over_a_megabyte_come_in_order_and_a_page_has_a_bound() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        for n in range(4):
            data = json.dumps(f"{n}" * (8 << 20)).encode()
            ref = await w.artifacts.put_bytes(f"echo/{assign.job}/1/chunk-{n}.json", data)
            await agent.report(Chunk(assign.job, 1, n, b"", ref))
        await agent.completes(assign)
        await w.plane.queries.wait(w.echo, assign.job, 10)
        seen, states = [], []
        while not states or states[-1] is not JobState.COMPLETED:
            poll = await w.plane.queries.poll_stream(w.echo, assign.job, 1)
            assert sum(len(chunk.value) for chunk in poll.chunks) <= 20 << 20
            seen += [json.loads(chunk.value)[0] for chunk in poll.chunks]
            states.append(poll.view.state)
            await w.plane.queries.advance(assign.job, poll.cursor)
        assert seen == ["0", "1", "2", "3"]
        assert states == [JobState.IN_PROGRESS, JobState.COMPLETED]
        events = [e async for e in w.plane.queries.follow(w.echo, assign.job, (1, 1))]
        assert [(e.kind, e.n, e.value[1:2]) for e in events[:-1]] == [("chunk", 2, b"2"), ("chunk", 3, b"3")]


@story
async def test_pollers_receive_a_cancel_once() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        await w.plane.commands.cancel(w.echo, job.id)
        first = await w.plane.queries.poll_stream(w.echo, job.id, 1)
        assert (first.view.state, first.end_reported) == (JobState.CANCELLED, False)
        await w.plane.queries.advance(job.id, first.cursor)
        assert (await w.plane.queries.poll_stream(w.echo, job.id, 1)).end_reported


@story
async def test_cancelling_a_finished_job_returns_its_record_unchanged() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await running(w, tasks, one())
        await agent.completes(assign)
        done = await w.plane.queries.wait(w.echo, assign.job, 10)
        again = await w.plane.commands.cancel(w.echo, assign.job)
        assert replace(again, stream=done.stream) == done


# ---- why it waits -------------------------------------------------------------------------------------


async def reason(w: World, job: str) -> str:
    return (await w.plane.queries.status(w.echo, job)).reason or ""


@story
async def test_a_queued_job_says_why_it_waits() -> None:
    async with world(endpoint(workers_max=2)) as (w, tasks):
        job = (await w.plane.commands.submit(w.echo, one(), sync=False)).id
        await asyncio.sleep(2)
        assert await reason(w, job) == "no capacity: no node is connected"
        agent = w.agent()
        await agent.connect(tasks)
        while not agent.specs:
            await agent.receive()
        assert await reason(w, job) == "starting"
        ((name, spec),) = agent.specs.items()
        failed = ("starting", "NoWeights: none of them is here\nTraceback")
        await agent.report(WorkerState(name, spec.endpoint, spec.version, *failed))
        await asyncio.sleep(0.1)
        assert await reason(w, job) == "starting again: NoWeights: none of them is here"
        crash = "crash loop: ModuleNotFoundError: no module named torch"
        await agent.report(WorkerState(name, spec.endpoint, spec.version, "unhealthy", crash))
        await asyncio.sleep(0.1)
        assert await reason(w, job) == crash


@story
async def test_a_low_priority_job_says_that_it_starts_no_worker() -> None:
    async with world() as (w, tasks):
        await w.agent().connect(tasks)
        low = await w.plane.commands.submit(w.echo, Submission(b"{}", priority=Priority.LOW), sync=False)
        await asyncio.sleep(3)
        assert (await reason(w, low.id)).startswith("low priority: it starts no worker")
        assert not w.plane.cluster.workers


@story
async def test_a_job_says_that_every_device_is_taken() -> None:
    async with world(endpoint(workers_max=40)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        jobs = [(await w.plane.commands.submit(w.echo, one(n), sync=False)).id for n in range(20)]
        await agent.ready_workers(16)
        await asyncio.sleep(1)
        full = "throttled: no node has a free device: node node-1 has none free"
        assert await reason(w, jobs[-1]) == f"every worker is busy; {full}"
        assert (await w.plane.queries.health(w.echo)).throttled > 0


# ---- counts and polls -------------------------------------------------------------------------------


@story
async def test_a_long_queue_is_counted_once_for_all_who_ask_at_once() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        limits: list[int] = []
        count = store.count_jobs

        def counted(conn: store.Conn, name: str, limit: int) -> Counted:
            limits.append(limit)
            return replace(count(conn, name, limit), exact=limit > COUNT_MOST)

        await w.plane.commands.submit(w.echo, one(), sync=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "count_jobs", counted)
            found = await asyncio.gather(*(w.plane.queries.health(w.echo) for _ in range(50)))
            assert {health.in_queue for health in found} == {1}
            assert sum(limit > COUNT_MOST for limit in limits) == 1
            await asyncio.sleep(RECOUNT_S)
            await w.plane.queries.health(w.echo)
        assert sum(limit > COUNT_MOST for limit in limits) == 2


@story
async def test_a_poll_that_was_held_in_vain_reports_the_state_of_now() -> None:
    async with world(endpoint(workers_max=1)) as (w, tasks):
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        poll = tasks.create_task(w.plane.queries.poll_stream(w.echo, job.id, 8))
        await asyncio.sleep(1)
        agent = await agent_with_workers(w, tasks)
        await agent.assigned()
        assert not poll.done()
        reported = await poll
        assert (reported.view.state, reported.chunks) == (JobState.IN_PROGRESS, ())


# ---- when it starts -----------------------------------------------------------------------------------


async def with_known_pace(w: World, tasks: asyncio.TaskGroup) -> ScriptedAgent:
    """An agent with one worker, whose jobs take 20 s."""
    agent = await w.working_agent(tasks)
    for _ in range(SAMPLES):
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        await asyncio.sleep(20)
        await agent.completes(assign, ms=20_000)
    return agent


@story
async def test_a_waiting_job_says_its_place_and_when_it_is_expected_to_start() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent = await with_known_pace(w, tasks)
        jobs = [(await w.plane.commands.submit(w.echo, one(), sync=False)).id for _ in range(3)]
        await agent.assigned()
        await asyncio.sleep(5)
        views = [await w.plane.queries.status(w.echo, job) for job in jobs]
        assert [view.ahead for view in views] == [None, 0, 1]
        starts = [view.expected_start and view.expected_start - w.now() for view in views]
        assert starts == [None, pytest.approx(15, abs=1), pytest.approx(35, abs=1)]
        assert records.record(views[2])["position"] == 2
        assert records.record(views[0]).keys().isdisjoint({"position", "expectedStartAt"})


@story
async def test_nothing_is_expected_before_jobs_have_ended() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        await w.working_agent(tasks)
        jobs = [(await w.plane.commands.submit(w.echo, one(), sync=False)).id for _ in range(2)]
        view = await w.plane.queries.status(w.echo, jobs[1])
        assert (view.ahead, view.expected_start) == (0, None)


# ---- deadlines ----------------------------------------------------------------------------------------


def timed(**fields: Any) -> Submission:
    return replace(one(), **fields)


@story
async def test_a_job_that_would_miss_its_deadline_is_refused_with_the_numbers() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        await with_known_pace(w, tasks)
        submit = w.plane.commands.submit
        await submit(w.echo, timed(deadline_ms=25_000, start_by_ms=1_000), sync=False)
        await asyncio.sleep(1)
        with pytest.raises(BadRequest, match=r"policy.startBy: the job would start in about 19 s.*got 10000"):
            await submit(w.echo, timed(start_by_ms=10_000), sync=False)
        with pytest.raises(BadRequest, match=r"policy.deadline: the job would end in about 39 s.*got 30000"):
            await submit(w.echo, timed(deadline_ms=30_000), sync=False)
        assert (await submit(w.echo, timed(deadline_ms=45_000), sync=False)).state is JobState.IN_QUEUE
        with pytest.raises(BadRequest, match=r"policy.startBy: the job would start in about 39 s"):
            await submit(w.echo, timed(start_by_ms=30_000), sync=False)
        urgent = timed(start_by_ms=30_000, priority=Priority.URGENT)
        caller = Caller("default", priority=Priority.URGENT)
        assert (await submit(w.echo, urgent, sync=False, caller=caller)).state is JobState.IN_QUEUE


@story
async def test_a_job_sent_again_with_its_key_is_not_refused() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        await with_known_pace(w, tasks)
        again = timed(start_by_ms=1_000, once=Once("k", b"1"))
        first = await w.plane.commands.submit(w.echo, again, sync=False)
        await asyncio.sleep(1)
        assert (await w.plane.commands.submit(w.echo, again, sync=False)).id == first.id


@story
async def test_deadlines_end_jobs_that_wait_and_jobs_that_run() -> None:
    async with world(endpoint(workers_min=1, workers_max=1)) as (w, tasks):
        agent, assign = await running(w, tasks, timed(deadline_ms=30_000))
        waits = await w.plane.commands.submit(w.echo, timed(start_by_ms=10_000), sync=False)
        began = w.now()
        view = await w.plane.queries.wait(w.echo, waits.id, 60)
        assert w.now() - began == pytest.approx(10, abs=1.5)
        assert (view.state, view.error) == (
            JobState.TIMED_OUT,
            "the job did not start within the 10 s of policy.startBy, and was ended",
        )
        cancelled = await stopped(agent)
        assert (cancelled.job, cancelled.attempt) == (assign.job, assign.attempt)
        view = await w.plane.queries.wait(w.echo, assign.job, 60)
        assert w.now() - began == pytest.approx(30, abs=1.5)
        assert view.state is JobState.TIMED_OUT
        assert view.error == "the job did not end within the 30 s of policy.deadline, and was stopped"


@story
async def test_deadlines_that_contradict_the_ttl_are_refused() -> None:
    async with world(endpoint(ttl_ms=60_000)) as (w, _):
        with pytest.raises(BadRequest, match=r"at most the ttl, when .*: 60000; got 60001"):
            await w.plane.commands.submit(w.echo, timed(deadline_ms=60_001), sync=False)
