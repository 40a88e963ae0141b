"""A job is sent to its worker while the disk still writes its submission, and taken back if that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from msgspec.structs import replace

from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.rules.submissions import Once
from stoker.control.rules.types import JobView
from stoker.control.store import Conn
from stoker.wire.messages import Assign, AttemptKey, Cancel, Outcome
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

T = TypeVar("T")


class SlowDisk:
    """In place of a world's committer: the first COMMIT of what may be early waits for `end`, and fails with
    its error."""

    def __init__(self, w: World) -> None:
        self._inner = w.commits
        self.uncertain_commit = w.commits.uncertain_commit
        self.end: asyncio.Future[None] = w.loop.create_future()
        self.early: list[bool] = []
        w.plane.commands._commits = self

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        self.early.append(early is not None)
        if early is None or self.end.done():
            return await self._inner.commit(fn, early)
        conn = self._inner._conn
        conn.begin()
        try:
            value = fn(conn)
        finally:
            conn.rollback()  # others may have the connection meanwhile; it is run once more
        early(value)
        await self.end
        return await self._inner.commit(fn)

    async def read(self, fn: Callable[[Conn], T]) -> T:
        return await self._inner.read(fn)

    async def close(self) -> None:
        await self._inner.close()


async def no_claim(_: object) -> None:
    """Only a submission claims."""


async def submitted(w: World) -> JobView | Unavailable:
    try:
        return await w.plane.commands.submit(w.echo, one(), sync=False)
    except Unavailable as error:
        return error


async def sent_early(
    w: World, agent: ScriptedAgent, tasks: asyncio.TaskGroup
) -> tuple[asyncio.Task[Any], SlowDisk, Assign]:
    await agent.listen(0.1)  # control knows that its worker is ready
    disk = SlowDisk(w)
    submitting = tasks.create_task(submitted(w))
    assign = await agent.assigned()
    assert not submitting.done(), "it was answered before it was stored"
    return submitting, disk, assign


@story
async def test_its_worker_has_it_while_the_disk_writes() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        submitting, disk, assign = await sent_early(w, agent, tasks)
        disk.end.set_result(None)
        view = await submitting
        assert (view.id, view.attempt) == (assign.job, assign.attempt)
        (worker,) = w.plane.cluster.workers.values()
        assert (list(worker.busy), worker.reserved) == ([AttemptKey(assign.job, 1)], 0)
        await agent.completes(assign, b"1")
        await agent.listen(1.0)
        assert (await w.plane.queries.status(w.echo, view.id)).output == b"1"
        assert worker.idle


@story
async def test_it_is_taken_back_where_it_could_not_be_stored() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        submitting, disk, assign = await sent_early(w, agent, tasks)
        disk.end.set_exception(Unavailable("nothing was stored: the disk is full; try again later"))
        assert isinstance(await submitting, Unavailable)
        (worker,) = w.plane.cluster.workers.values()
        assert worker.free == 0, "until its agent says that it has stopped"
        while not (cancels := (await agent.receive()).cancels):
            pass
        assert cancels == (Cancel(assign.job, 1, "its job could not be stored"),)
        await agent.report(Outcome(assign.job, 1, assign.worker, "completed", b"1"))  # it was on its way
        await agent.listen(1.0)
        counted = await w.plane.queries.health(w.echo)
        assert (counted.completed, counted.failed, counted.in_queue, counted.in_progress) == (0, 0, 0, 0)
        assert worker.free == 1
        view = await submitted(w)
        assert isinstance(view, JobView)
        assert (await agent.assigned()).job == view.id


@story
async def test_it_goes_on_where_nobody_knows_whether_it_is_stored() -> None:
    """Every node says Hello again then, and hears what to stop."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        submitting, disk, assign = await sent_early(w, agent, tasks)
        disk.end.set_exception(UncertainCommit("the database went away in the very moment of storing"))
        assert isinstance(await submitting, UncertainCommit)
        await agent.beat()
        while (received := await agent.receive()).ack is None:
            assert not received.cancels
        (worker,) = w.plane.cluster.workers.values()
        assert list(worker.busy) == [AttemptKey(assign.job, 1)]


@story
async def test_a_job_with_an_idempotency_key_waits_for_the_disk() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        disk = SlowDisk(w)
        await w.plane.commands.submit(w.echo, replace(one(), once=Once("k", b"digest")), sync=False)
        assert disk.early == [False]
        assert (await agent.assigned()).attempt == 1


@story
async def test_an_older_job_that_is_claimed_instead_waits_for_the_disk() -> None:
    """If that failed, the same attempt would be given out once more, and its node would not run it."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        w.plane.dispatch.claim = no_claim  # type: ignore[method-assign]
        older = await w.plane.commands.submit(w.echo, one(), sync=False)
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        disk = SlowDisk(w)
        submitting = tasks.create_task(submitted(w))
        await agent.listen(0.2)
        assert (agent.assigns, disk.early) == ([], [True])
        disk.end.set_result(None)
        await submitting
        assert (await agent.assigned()).job == older.id
