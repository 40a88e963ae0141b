"""A node asks over its session for the chunks that its attempt goes on from; another node gets none."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

from msgspec.structs import replace

from stoker.control.errors import Unavailable
from stoker.control.nodes.answers import Answers
from stoker.control.nodes.session import KEPT_ASKS_MAX
from stoker.wire.messages import (
    Assign,
    Chunk,
    FromAgent,
    KeptAsk,
    KeptPage,
    Outcome,
    Ref,
    Save,
    SignAsk,
    Wanted,
)
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

LARGE = 1_000_000


async def goes_on(w: World, tasks: asyncio.TaskGroup, *values: bytes | Ref) -> tuple[ScriptedAgent, Assign]:
    """An agent with the second attempt at a job, whose first saved these chunks."""
    agent = await w.working_agent(tasks)
    await w.plane.commands.submit(w.echo, one(), sync=False)
    first = await agent.assigned()
    for n, value in enumerate(values):
        body, ref = (b"", value) if isinstance(value, Ref) else (value, None)
        if ref is not None and first.grant is not None:
            ref = replace(ref, key=f"{first.grant.prefix}{ref.key}")
        await agent.report(Chunk(first.job, 1, n, body, ref))
    await agent.report(Save(first.job, 1, 0, len(values), b"state"))
    await agent.report(Outcome(first.job, 1, first.worker, "lost", error="it died", retryable=True))
    again = await agent.assigned()
    assert (again.job, again.attempt, again.saved is not None) == (first.job, 2, True)
    return agent, again


async def pages(agent: ScriptedAgent, *asks: KeptAsk) -> list[KeptPage]:
    await agent.stream.send(FromAgent(kept_asks=asks))
    found: list[KeptPage] = []
    while len(found) < len(asks):
        if (kept := (await agent.receive()).kept) is not None:
            found.append(kept)
    return found


@story
async def test_welcome_says_that_kept_chunks_can_be_asked_for() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        welcome = (await w.agent().connect(tasks)).welcome
        assert welcome is not None
        assert (welcome.saves, welcome.kept) == (True, True)


@story
async def test_an_attempt_gets_its_chunks_a_page_a_message() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        values = [b'"%d%s"' % (n, b"x" * (LARGE - 3)) for n in range(6)]
        agent, again = await goes_on(w, tasks, *values)
        first, rest, last = await pages(
            agent,
            *(
                KeptAsk(n, again.job, 2, first, upto)
                for n, (first, upto) in enumerate(((0, 6), (4, 6), (5, 6)))
            ),
        )
        assert (first.number, first.values) == (0, tuple(values[:4]))
        assert (rest.number, rest.values) == (1, tuple(values[4:]))
        assert (last.number, last.values) == (2, tuple(values[5:]))


@story
async def test_a_large_chunk_may_be_read_by_the_node_that_goes_on_and_no_other_object() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, again = await goes_on(w, tasks, Ref("chunk-0", 2 * LARGE, "ab"), b'"small"')
        (page,) = await pages(agent, KeptAsk(1, again.job, 2, 0, 2))
        assert page.ref is not None
        signing = w.plane.nodes._answers._signing
        kept = await signing.answer(agent.node, SignAsk(1, again.job, 2, (Wanted("read", page.ref.key),)))
        assert (kept.refusal, len(kept.signed)) == ("", 1)
        for node, attempt, key in ((agent.node, 2, f"{page.ref.key}x"), ("rogue", 2, page.ref.key)):
            answer = await signing.answer(node, SignAsk(1, again.job, attempt, (Wanted("read", key),)))
            assert answer.refusal
            assert not answer.signed


@story
async def test_another_node_gets_none() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, again = await goes_on(w, tasks, b'"secret"')
        rogue = w.agent(node="rogue", boot="rogue-1")
        await rogue.connect(tasks)
        for attempt in (1, 2, 3):
            (page,) = await pages(rogue, KeptAsk(1, again.job, attempt, 0, 1))
            assert (page.values, page.ref, page.retryable) == ((), None, False)
            assert page.refusal.endswith("that goes on from a save")
        (page,) = await pages(agent, KeptAsk(1, again.job, 2, 0, 1))
        assert page.values == (b'"secret"',)


@story
async def test_a_flood_of_asks_takes_no_memory_and_the_session_goes_on() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, again = await goes_on(w, tasks, b'"one"')
        asks = tuple(KeptAsk(n, again.job, 2, 0, 1) for n in range(3 * KEPT_ASKS_MAX))
        await agent.stream.send(FromAgent(kept_asks=asks))
        answered = 0
        while answered < KEPT_ASKS_MAX:
            answered += (await agent.receive()).kept is not None
        await agent.completes(again)
        assert (await w.plane.queries.wait(w.echo, again.job, 30)).state == "COMPLETED"


@story
async def test_a_store_that_cannot_be_read_is_to_be_asked_again() -> None:
    class Broken:
        async def read(self, _: Any) -> Any:
            raise Unavailable("the database does not answer")

    commits: Any = Broken()
    page = await Answers(commits, Mock(), Mock(), None).kept("n", KeptAsk(3, "j", 2, 0, 1))
    assert page == KeptPage(3, "the database does not answer", retryable=True)
