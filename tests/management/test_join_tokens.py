"""Who joins with a token, and who comes back with it."""

from __future__ import annotations

import asyncio

from plane_world import World, story, world

from stoker.control.keys import create_join_token, revoke_key
from stoker.wire.messages import FromControl


async def token_for(w: World, uses: int | None, expires_at: float | None = None) -> str:
    """A new token, which agents of this world take from now on; its id."""
    make = create_join_token
    record, w.token = await w.commits.commit(
        lambda conn: make(conn, name="t", now=w.now(), uses=uses, expires_at=expires_at)
    )
    return record.id


def reason(answer: FromControl) -> str:
    return "" if answer.refusal is None else answer.refusal.reason


@story
async def test_one_token_lets_one_node_in_however_many_come_at_once() -> None:
    async with world() as (w, tasks):
        await token_for(w, 1)
        agents = [w.agent(node=f"n{n}") for n in range(4)]
        told = await asyncio.gather(*(agent.connect(tasks) for agent in agents))
        assert sum(one.welcome is not None for one in told) == 1
        refused = [reason(one) for one in told if one.welcome is None]
        assert all("used as often as it may be" in why for why in refused)


@story
async def test_the_node_that_spent_a_token_comes_back_with_it_until_it_is_revoked() -> None:
    async with world() as (w, tasks):
        key = await token_for(w, 1, w.now() + 60.0)
        agent = w.agent(node="n1")
        assert (await agent.connect(tasks)).welcome is not None
        await agent.leaves()
        await asyncio.sleep(100)
        assert "has expired" in reason(await w.agent(node="n2").connect(tasks))
        again = w.agent(node="n1", boot="boot-2")
        assert (await again.connect(tasks)).welcome is not None

        await w.commits.commit(lambda conn: revoke_key(conn, key, w.now()))
        await again.beat()
        assert not again.serving.done(), "its session goes on"
        await again.leaves()
        assert "revoked" in reason(await w.agent(node="n1", boot="boot-3").connect(tasks))


@story
async def test_a_refused_node_spends_nothing_and_a_stranger_learns_nothing() -> None:
    async with world() as (w, tasks):
        await token_for(w, 2)
        assert (await w.agent(node="n1").connect(tasks)).welcome is not None
        clone = await w.agent(node="n1", boot="boot-2").connect(tasks)
        assert "is connected already" in reason(clone)
        stranger = w.agent(node="n1", boot="boot-3")
        stranger.token = "jt_guessed_0"
        assert "this join token is not known" in reason(await stranger.connect(tasks))
        assert (await w.agent(node="n2").connect(tasks)).welcome is not None, "one use was left"
        assert (await w.agent(node="n3").connect(tasks)).welcome is None
