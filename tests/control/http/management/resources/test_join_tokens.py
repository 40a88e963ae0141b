"""Who joins with a token, and who comes back with it."""

from __future__ import annotations

import asyncio

from stoker.control.store.resources.keys import create_join_token, revoke_key
from stoker.wire.messages import FromControl
from tests.control.plane_world import World, story, world
from tests.control.scripted_agent import ScriptedAgent


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
        refusals = await asyncio.gather(*(agent.connect(tasks) for agent in agents))
        assert sum(one.welcome is not None for one in refusals) == 1
        refused = [reason(one) for one in refusals if one.welcome is None]
        assert all("used as often as it may be" in why for why in refused)


@story
async def test_joining_opens_no_session() -> None:
    """Nobody sees a node connected that is about to come back with its credential."""
    async with world() as (w, tasks):
        await token_for(w, 1)
        agent = w.agent(node="n1")
        credential = await joins(agent, tasks)
        assert await agent.cut_off() == "the node joined"
        assert w.plane.cluster.nodes == {}
        known = await w.plane.management.nodes.get("default", "n1")
        assert (known.state, [device.device.uuid for device in known.devices]) == ("silent", ["CPU-0"])
        agent.token = credential
        answer = await agent.connect(tasks)
        assert answer.welcome is not None
        assert answer.welcome.session == 1
        assert answer.credential is None
        assert (await w.plane.management.nodes.get("default", "n1")).state == "connected"


@story
async def test_a_node_whose_credential_was_lost_gets_another_until_its_token_is_revoked() -> None:
    async with world() as (w, tasks):
        key = await token_for(w, 1, w.now() + 60.0)
        lost = await joins(w.agent(node="n1"), tasks)
        await asyncio.sleep(100)
        assert "has expired" in reason(await w.agent(node="n2").connect(tasks))
        kept = await joins(w.agent(node="n1", boot="boot-2"), tasks)
        again = w.agent(node="n1", boot="boot-3")
        await w.commits.commit(lambda conn: revoke_key(conn, key, w.now()))
        again.token = w.token
        assert "revoked" in reason(await again.connect(tasks))
        again.token = kept
        assert (await again.connect(tasks)).welcome is not None
        again.token = lost
        assert "not known, or was revoked" in reason(await again.connect(tasks))


async def joins(agent: ScriptedAgent, tasks: asyncio.TaskGroup) -> str:
    """Says Hello once, and does not come back; the credential that it got."""
    answer = await agent.connect(tasks, comes_back=False)
    assert answer.credential is not None
    assert answer.credential not in repr(answer), "it is a secret"
    assert answer.welcome is None
    return answer.credential


@story
async def test_a_refused_node_spends_nothing_and_an_unknown_caller_learns_nothing() -> None:
    async with world() as (w, tasks):
        await token_for(w, 2)
        assert (await w.agent(node="n1").connect(tasks)).welcome is not None
        clone = await w.agent(node="n1", boot="boot-2").connect(tasks)
        assert "is connected already" in reason(clone)
        unauthenticated = w.agent(node="n1", boot="boot-3")
        unauthenticated.token = "jt_guessed_0"
        assert "this join token is not known" in reason(await unauthenticated.connect(tasks))
        assert (await w.agent(node="n2").connect(tasks)).welcome is not None, "one use was left"
        assert (await w.agent(node="n3").connect(tasks)).welcome is None


@story
async def test_another_token_takes_no_nodes_id_while_its_agent_restarts() -> None:
    """Whoever joins as a node that is away is refused, and the true agent is taken in when it is back."""
    async with world() as (w, tasks):
        await token_for(w, 1)
        agent = w.agent(node="n1")
        assert (await agent.connect(tasks)).welcome is not None
        credential = agent.token
        await agent.leaves()
        await token_for(w, 5)
        for brought in (w.token, credential.replace("nk_", "nk_0")):
            thief = w.agent(node="n1", boot="thief")
            thief.token = brought
            assert (await thief.connect(tasks)).welcome is None
        another = w.agent(node="n2")
        another.token = credential
        assert "is not node n2's: it is that of node n1" in reason(await another.connect(tasks))
        again = w.agent(node="n1", boot="boot-2")
        again.token = credential
        assert (await again.connect(tasks)).welcome is not None


@story
async def test_a_node_whose_credential_is_revoked_is_disconnected() -> None:
    async with world() as (w, tasks):
        await token_for(w, 1)
        agent = w.agent(node="n1")
        assert (await agent.connect(tasks)).welcome is not None
        credential = agent.token
        await w.commits.commit(lambda conn: revoke_key(conn, credential.split("_")[1], w.now()))
        assert "its credential was revoked" in await agent.cut_off()
        again = w.agent(node="n1", boot="boot-2")
        again.token = credential
        assert "remove the file node_credential" in reason(await again.connect(tasks))
        await asyncio.sleep(1)
        await token_for(w, 1)
        anew = w.agent(node="n1", boot="boot-3")
        anew.token = w.token
        assert (await anew.connect(tasks)).welcome is not None
