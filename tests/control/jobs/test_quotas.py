"""Quotas through the plane: jobs that wait, GPU seconds of a day, bytes of files; by key and by endpoint."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control import store
from stoker.control.errors import TooLarge, TooMany
from stoker.control.rules.access import ALL, NOBODY, Caller
from stoker.control.rules.job_states import JobState
from stoker.control.rules.limits import DAY_S
from stoker.control.rules.quotas import Quota
from stoker.control.rules.submissions import Once, Submission
from stoker.control.rules.types import JobView
from stoker.control.store.jobs.quota_uses import KEPT_DAYS, forget_gpu_days
from stoker.wire.messages import Outcome, Span
from tests.control.plane_world import World, endpoint, one, story, world

TWO = Quota(jobs_waiting=2)
SECOND = Quota(gpu_seconds_per_day=1)


def holder(quota: Quota, key: str = "k1") -> Caller:
    return Caller("default", key, ALL, quota)


async def submit(w: World, caller: Caller = NOBODY, submission: Submission | None = None) -> JobView:
    return await w.plane.commands.submit(w.echo, submission or one(), sync=False, caller=caller)


async def refused(w: World, caller: Caller = NOBODY) -> TooMany:
    with pytest.raises(TooMany) as error:
        await submit(w, caller)
    return error.value


@story
async def test_so_many_jobs_of_a_key_wait_and_another_key_is_not_held_up() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        jobs = [await submit(w, holder(TWO)) for _ in range(2)]
        refusal = await refused(w, holder(TWO))
        assert str(refusal).startswith("key k1 may have 2 jobs waiting")
        assert (refusal.limit, refusal.window_s, refusal.unit) == (2, None, "jobs")
        await submit(w, holder(TWO, "k2"))
        await submit(w)
        await w.plane.commands.cancel(w.echo, jobs[0].id)
        await submit(w, holder(TWO))
        await refused(w, holder(TWO))


@story
async def test_jobs_of_an_endpoint_wait_whoever_submitted_them() -> None:
    async with world(endpoint(workers_max=0, quota=TWO)) as (w, _):
        await submit(w)
        await submit(w, holder(Quota()))
        assert str(await refused(w, holder(Quota(), "k2"))).startswith(
            "endpoint echo may have 2 jobs waiting"
        )


@story
async def test_jobs_at_once_are_no_more_than_the_quota() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_taken(w)) for _ in range(9)]
        assert sum(task.result() for task in tasks) == 2


async def _taken(w: World) -> bool:
    try:
        await submit(w, holder(TWO))
    except TooMany:
        return False
    return True


@story
async def test_a_job_that_is_submitted_again_is_found_beyond_the_quota() -> None:
    async with world(endpoint(workers_max=0)) as (w, _):
        again = Submission(b"{}", once=Once("a key", b"the same"))
        first = await submit(w, holder(TWO), again)
        await submit(w, holder(TWO))
        assert (await submit(w, holder(TWO), again)).id == first.id
        await refused(w, holder(TWO))


@story
async def test_a_refused_job_leaves_no_object() -> None:
    async with world(endpoint(workers_max=0, quota=TWO)) as (w, _):
        large = Submission(b'"%s"' % (b"x" * 1_100_000))
        for _ in range(2):
            await submit(w, submission=large)
        with pytest.raises(TooMany):
            await submit(w, submission=large)
        assert len(w.artifacts.blobs) == 2


async def _run(w: World, agent: Any, caller: Caller, *, gpu_ms: int, end: str = "completed") -> JobView:
    """A job that used a GPU for so long."""
    job = await submit(w, caller)
    assign = await agent.assigned()
    spans = (Span("execution", "device_ms", gpu_ms, 0),)
    error = None if end == "completed" else "boom"
    await agent.report(
        Outcome(job.id, assign.attempt, assign.worker, end, execution_ms=gpu_ms, error=error, spans=spans)
    )
    return await w.plane.queries.wait(w.echo, job.id, 60)


@story
async def test_gpu_seconds_of_a_day_are_used_up_and_free_again_the_next_day() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await _run(w, agent, holder(SECOND), gpu_ms=600)
        failed = await _run(w, agent, holder(SECOND), gpu_ms=600, end="failed")
        assert failed.state is JobState.FAILED, "it used the GPU all the same"
        refusal = await refused(w, holder(SECOND))
        assert str(refusal).startswith("key k1 may use 1 GPU seconds a day")
        assert refusal.unit == "gpu-seconds"
        await _run(w, agent, NOBODY, gpu_ms=100)
        w.moved += refusal.retry_after
        assert (await _run(w, agent, holder(SECOND), gpu_ms=1)).state is JobState.COMPLETED


@story
async def test_gpu_seconds_of_an_endpoint_count_every_key() -> None:
    async with world(endpoint(workers_min=1, quota=SECOND)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await _run(w, agent, holder(Quota()), gpu_ms=500)
        await _run(w, agent, holder(Quota(), "k2"), gpu_ms=500)
        assert str(await refused(w)).startswith("endpoint echo may use 1 GPU seconds a day")
        days = "SELECT kind, owner, gpu_ms FROM gpu_days ORDER BY kind, owner"
        rows = await w.commits.read(lambda conn: [tuple(row) for row in conn.run(days, {})])
        assert rows == [("endpoint", "echo", 1000), ("key", "k1", 500), ("key", "k2", 500)]


@story
async def test_days_long_past_are_deleted() -> None:
    async with world(endpoint(workers_min=1, quota=SECOND)) as (w, tasks):
        await _run(w, await w.working_agent(tasks), NOBODY, gpu_ms=5)

        def forget(conn: store.Conn) -> list[int]:
            return [forget_gpu_days(conn, w.now() + days * DAY_S) for days in (KEPT_DAYS, KEPT_DAYS + 1)]

        assert await w.commits.commit(forget) == [0, 1], "a job without a key counts for its endpoint alone"


@story
async def test_bytes_of_files_are_bounded_by_key_and_by_endpoint() -> None:
    async with world(endpoint(quota=Quota(file_bytes=10))) as (w, _):

        async def keep(caller: Caller, size: int) -> None:
            await w.plane.uploaded_files.keep(w.echo, caller, "a", BytesIO(b"x" * size), "text/plain")

        small = holder(Quota(file_bytes=4))
        await keep(small, 4)
        with pytest.raises(TooMany, match="files of key k1 may have 4 bytes"):
            await keep(small, 1)
        with pytest.raises(TooLarge, match="the file has 5 bytes, and key k1 may keep 4 bytes"):
            await keep(small, 5)
        await keep(holder(Quota(), "k2"), 6)
        with pytest.raises(TooMany, match="files of endpoint echo may have 10 bytes"):
            await keep(holder(Quota(), "k2"), 1)
        assert w.plane.uploaded_files.bytes_kept("key k2") == 6, "what the endpoint refused was taken back"


@story
async def test_a_quota_that_is_lifted_takes_jobs_again() -> None:
    async with world(endpoint(workers_max=0, quota=TWO)) as (w, _):
        for _ in range(2):
            await submit(w)
        await refused(w)
        stored = await w.commits.commit(
            lambda conn: store.put_endpoint(conn, replace(w.echo, quota=Quota()), w.now())
        )
        assert stored.version == w.echo.version, "a quota makes no new version"
        w.plane.endpoints.load([stored])
        await submit(w)
