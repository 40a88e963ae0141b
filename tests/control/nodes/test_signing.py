"""What control signs for a node, over its session: for the attempts that it holds, and for no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from msgspec import structs

from stoker.control.nodes.signing import Signing
from stoker.control.rules.submissions import Submission
from stoker.control.store import Conn
from stoker.wire.messages import Assign, FromAgent, Outcome, SignAnswer, SignAsk, Wanted
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent


async def holding(w: World, tasks: asyncio.TaskGroup) -> tuple[ScriptedAgent, Assign]:
    agent = await w.working_agent(tasks)
    await w.plane.commands.submit(w.echo, one(), sync=False)
    return agent, await agent.assigned()


async def signed(agent: ScriptedAgent, job: str, attempt: int, *wanted: Wanted) -> SignAnswer:
    await agent.stream.send(FromAgent(asks=(SignAsk(7, job, attempt, wanted),)))
    while not (answers := (await agent.receive()).answers):
        pass
    (answer,) = answers
    assert answer.number == 7
    return answer


def put(key: str) -> Wanted:
    return Wanted("put", key, 1, sha256="0" * 64)


@story
async def test_an_assign_holds_no_credentials_of_the_platforms_store() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        _, assign = await holding(w, tasks)
        assert assign.grant is not None
        assert (assign.grant.access_id, assign.grant.access_secret) == ("", "")
        assert "secret" not in json.dumps(structs.asdict(assign.grant)).replace("access_secret", "")
        assert assign.grant.prefix == f"echo/{assign.job}/1/"
        assert (assign.grant.job, assign.grant.attempt) == (assign.job, 1)


@story
async def test_requests_below_the_prefix_of_an_attempt_are_signed_for_its_node() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await holding(w, tasks)
        answer = await signed(agent, assign.job, 1, put(f"echo/{assign.job}/1/0-a.png"))
        assert answer.refusal == ""
        assert len(answer.signed) == 1


@story
async def test_another_nodes_attempt_another_attempt_and_another_prefix_are_refused() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        _, assign = await holding(w, tasks)
        rogue = w.agent(node="rogue", boot="rogue-1")
        await rogue.connect(tasks)
        key = f"echo/{assign.job}/1/output.json"
        reported = (await signed(rogue, assign.job, 1, put(key))).refusal
        assert reported == f"this node does not hold attempt 1 of job {assign.job}"


@story
async def test_a_node_gets_nothing_signed_but_what_its_attempt_may_have() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await holding(w, tasks)
        key = f"echo/{assign.job}/1/output.json"
        for attempt in (0, 2):
            reported = await signed(agent, assign.job, attempt, put(key))
            assert reported == SignAnswer(7, f"this node does not hold attempt {attempt} of job {assign.job}")
        for other in ("echo/another/1/output.json", f"echo/{assign.job}/2/output.json", f"{key}/../../x"):
            reported = await signed(agent, assign.job, 1, put(key), put(other))
            assert reported == SignAnswer(7, f"key {other!r} is not a name below echo/{assign.job}/1/")
        reported = await signed(agent, assign.job, 1, Wanted("read", key))
        assert reported == SignAnswer(
            7, f"{key!r} is not the input of this job, nor its save, nor a chunk that this covers"
        )
        await agent.report(Outcome(assign.job, 1, assign.worker, "completed", b"1"))
        await w.plane.queries.wait(w.echo, assign.job, 30)
        reported = await signed(agent, assign.job, 1, put(key))
        assert reported == SignAnswer(7, f"this node does not hold attempt 1 of job {assign.job}")


@story
async def test_a_large_input_may_be_read_by_the_node_of_its_job() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        large = Submission(input=json.dumps("x" * 1_100_000).encode())
        await w.plane.commands.submit(w.echo, large, sync=False)
        assign = await agent.assigned()
        assert assign.input_ref is not None
        answer = await signed(agent, assign.job, 1, Wanted("read", assign.input_ref.key))
        assert (answer.refusal, len(answer.signed)) == ("", 1)


@story
async def test_answers_are_not_lost_where_others_are_being_sent() -> None:
    """Many requests in many messages, beside Assigns and Acks."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await holding(w, tasks)
        wanted = (put(f"echo/{assign.job}/1/output.json"),)
        for number in range(100, 150):
            await agent.stream.send(FromAgent(asks=(SignAsk(number, assign.job, 1, wanted),)))
            await agent.beat(number)
        answered: list[int] = []
        async with asyncio.timeout(60):
            while len(answered) < 50:
                answered += [answer.number for answer in (await agent.receive()).answers]
        assert answered == list(range(100, 150))


class StillWritten:
    """The committer of a store whose readers do not see yet what the writer is about to put on the disk."""

    def __init__(self, w: World) -> None:
        self._inner = w.commits

    async def read(self, fn: Callable[[Conn], Any]) -> None:
        return None

    async def commit(self, fn: Callable[[Conn], Any]) -> Any:
        return await self._inner.read(fn)


@story
async def test_an_attempt_whose_submission_is_still_written_is_found_behind_it() -> None:
    """It is sent before its COMMIT has ended."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await holding(w, tasks)
        signing = Signing(StillWritten(w), w.plane.artifacts)  # type: ignore[arg-type]
        request = SignAsk(7, assign.job, 1, (put(f"echo/{assign.job}/1/0-a.png"),))
        assert (await signing.answer(agent.node, request)).refusal == ""
        assert (await signing.answer("rogue", request)).refusal
