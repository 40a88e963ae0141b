"""A job that was claimed for a node, and not sent there, goes back to the queue uncounted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from stoker.control.rules.types import JobView
from stoker.control.store import Conn
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

T = TypeVar("T")


class BeforeTheAnswer:
    """In place of the committer of submissions: `happens` between the first COMMIT and its answer."""

    def __init__(self, w: World, happens: Callable[[], Awaitable[None]]) -> None:
        self._inner = w.commits
        self._happens: Callable[[], Awaitable[None]] | None = happens
        w.plane.commands._commits = self  # type: ignore[assignment]

    async def commit(self, fn: Callable[[Conn], T], early: Callable[[T], None] | None = None) -> T:
        done = await self._inner.commit(fn)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return done

    async def read(self, fn: Callable[[Conn], T]) -> T:
        return await self._inner.read(fn)


async def again_elsewhere(w: World, tasks: asyncio.TaskGroup, view: JobView) -> None:
    """It is in the queue at once, not once its node counts as lost; and nothing was counted."""
    await asyncio.sleep(0.2)
    waits = await w.plane.queries.status(w.echo, view.id)
    assert (waits.state, waits.attempt) == ("IN_QUEUE", 1)
    other = w.agent("node-2")
    await other.connect(tasks)
    await other.ready_workers()
    assign = await other.assigned()
    assert (assign.job, assign.attempt) == (view.id, 2)
    row = w.store.writer.raw.execute(
        "SELECT failures, suspect, refused, backoffs, reason FROM jobs"
    ).fetchone()
    why = "the connection of node node-1 ended before it was sent there"
    assert tuple(row) == (0, 0, 1, 0, why)
    await other.completes(assign)
    await other.listen(0.1)
    assert (await w.plane.queries.status(w.echo, view.id)).retries == 0


async def leaves(w: World, agent: ScriptedAgent) -> None:
    """Control knows it, too."""
    agent.stream.end("the agent left")
    while w.plane.sessions.by_node:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


@story
async def test_one_whose_session_ended_before_its_claim_was_answered() -> None:
    async with world(endpoint(workers_min=1, max_attempts=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        BeforeTheAnswer(w, lambda: leaves(w, agent))
        view = await w.plane.commands.submit(w.echo, one(), sync=False)
        await again_elsewhere(w, tasks, view)


@story
async def test_one_that_its_session_had_not_sent_when_it_ended() -> None:
    async with world(endpoint(workers_min=1, max_attempts=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        session = w.plane.sessions.by_node["node-1"]

        async def ends() -> None:
            session.end("the stream broke")

        BeforeTheAnswer(w, ends)
        view = await w.plane.commands.submit(w.echo, one(), sync=False)
        await again_elsewhere(w, tasks, view)


@story
async def test_it_is_handed_back_once_the_store_takes_it() -> None:
    async with world(endpoint(workers_min=1, max_attempts=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)

        async def leaves_a_full_store() -> None:
            await leaves(w, agent)
            w.commits.full = True
            w.loop.call_later(2.0, setattr, w.commits, "full", False)

        BeforeTheAnswer(w, leaves_a_full_store)
        view = await w.plane.commands.submit(w.echo, one(), sync=False)
        await asyncio.sleep(3.2)
        await again_elsewhere(w, tasks, view)


@story
async def test_what_was_sent_may_come_back_with_its_node() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        view = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign: Any = await agent.assigned()
        await leaves(w, agent)
        await asyncio.sleep(0.2)
        assert (await w.plane.queries.status(w.echo, view.id)).state == "IN_PROGRESS"
        assert assign.attempt == 1
