"""Replays on a node: where they go, what they go on from, what they cost, and when their endpoint goes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from stoker.control import large_json, store
from stoker.control.errors import BadRequest, CasesClosed, Conflict, NotFound, TooMany
from stoker.control.jobs import replay_rules
from stoker.control.jobs.replay_rules import Wish
from stoker.control.rules.access import Access, Caller
from stoker.control.rules.limits import REPLAY_LIFE_S
from stoker.control.rules.nodes.validation import SAVE_INLINE_MAX
from stoker.control.rules.types import Endpoint, EndpointVersion, JobView
from stoker.wire.messages import Assign, Chunk, KeptAsk, Outcome, Price, Progress, Ref, Save, Usage
from stoker.wire.object_keys import attempt_prefix, chunk_key, save_key
from tests.control.nodes.test_kept_chunks import pages
from tests.control.plane_world import World, endpoint, one, story, work_beside_the_loop, world
from tests.control.scripted_agent import ScriptedAgent

KEEPS = endpoint(
    workers_min=1,
    keep_cases=True,
    max_attempts=1,
    run=EndpointVersion("/h/echo.py:handler", env={"A": "b"}, prices=(Price("pixel", 5),)),
)

X = 2**70
"""An input's number, which no way leads through a float."""

SMALL, LARGE = (b"s" * size for size in (SAVE_INLINE_MAX, SAVE_INLINE_MAX + 1))
"""Saves as long as a report holds one at most, and longer."""


async def a_failed_job(made: World, agent: ScriptedAgent, *, save: bytes = b"") -> str:
    job = await made.plane.commands.submit(made.echo, one(X), sync=False)
    assign = await agent.assigned()
    about = assign.job, assign.attempt
    reports: list[Any] = [Chunk(*about, 0, b'"a"'), Progress(*about, b'{"seed":9}')]
    if len(save) > SAVE_INLINE_MAX:
        ref = await made.artifacts.put_bytes(save_key(attempt_prefix("echo", *about), 0), save)
        reports.append(Save(*about, 0, 1, b"", ref))
    elif save:
        reports.append(Save(*about, 0, 1, save))
    await fail(made, agent, assign, *reports)
    return job.id


async def fail(made: World, agent: ScriptedAgent, assign: Assign, *reports: Any) -> None:
    """Reports these, and that the attempt failed."""
    end = Outcome(assign.job, assign.attempt, assign.worker, "failed", error="ValueError: no", case=b"{}")
    await agent.report(*reports, end)
    endpoint = agent.specs[assign.worker].endpoint
    await made.plane.queries.wait(made.plane.endpoints.by_id[endpoint], assign.job, 10.0)


async def started(made: World, job: str, **wish: Any) -> JobView:
    return await made.plane.replays.start(made.echo, job, Wish(**{"node": "node-2", **wish}))


@story
async def test_it_runs_on_the_named_node_though_another_is_free() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent, save=SMALL)
        other = made.agent("node-2")
        await other.connect(tasks)
        view = await started(made, job, stop_after=3, seed=7)
        await other.ready_workers()
        (spec,) = other.specs.values()
        assert (spec.endpoint, spec.env) == (view.endpoint, {"A": "b"})
        assign = await other.assigned()
        assert (assign.job, assign.stop_after, assign.keeps_case, assign.prices) == (view.id, 3, True, ())
        assert json.loads(assign.input or b"") == {"x": X, "seed": 7}
        assert assign.saved is not None
        assert (assign.saved.upto, assign.saved.state) == (1, SMALL)
        replay = made.plane.endpoints.by_id[view.endpoint]
        assert replay.replay is not None
        assert replay.replay.job == job

        times = int(made.now() * 1000) - 9_000, int(made.now() * 1000)
        await other.report(
            Usage(spec.worker, "boot-1", 0, "worker", "running", *times, view.endpoint, 1, spec.devices),
            Outcome(assign.job, assign.attempt, assign.worker, "failed", error="ValueError: no", case=b"{}"),
        )
        ended = await made.plane.queries.wait(replay, view.id, 10.0)
        assert (ended.state, ended.retries) == ("FAILED", 0)
        assert made.store.writer.raw.execute("SELECT SUM(nano_usd) FROM bills").fetchone()[0] in (None, 0)
        assert json.loads(await made.plane.details.case(replay, view.id))["saved"]["upto"] == 1


@story
async def test_from_the_start_there_is_no_save() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent, save=b"state")
        other = made.agent("node-2")
        await other.connect(tasks)
        await started(made, job, from_start=True)
        await other.ready_workers()
        assign = await other.assigned()
        assert (assign.saved, assign.attempt, assign.stop_after) == (None, 1, 0)
        assert assign.input == one(X).input


async def taken(
    made: World, tasks: asyncio.TaskGroup, of: Endpoint, job: str, node: str
) -> tuple[ScriptedAgent, Assign, Endpoint]:
    """Starts a replay on a node that comes for it; returns the node's agent, and what it was given."""
    agent = made.agent(node)
    await agent.connect(tasks)
    view = await made.plane.replays.start(of, job, Wish(node))
    await agent.ready_workers()
    return agent, await agent.assigned(), made.plane.endpoints.by_id[view.endpoint]


@story
async def test_a_replay_gets_the_chunks_that_its_save_covers_while_their_jobs_are_there() -> None:
    """Also a replay of a replay: those that the first one made are its own, whatever the job made after its
    save."""
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = (await made.plane.commands.submit(made.echo, one(), sync=False)).id
        ref = Ref(chunk_key(attempt_prefix("echo", job, 1), 0), 2_000_000, "ab")
        covered = Chunk(job, 1, 0, b"", ref), Chunk(job, 1, 1, b'"a"'), Save(job, 1, 0, 2, b"1")
        await fail(made, agent, await agent.assigned(), *covered, Chunk(job, 1, 2, b'"late"'))

        other, assign, replay = await taken(made, tasks, made.echo, job, "node-2")
        about = assign.job, assign.attempt
        found = await pages(other, *(KeptAsk(n, *about, n, 2) for n in (0, 1)))
        assert [one.ref or one.values for one in found] == [ref, (b'"a"',)]
        await fail(made, other, assign, Chunk(*about, 2, b'"b"'), Save(*about, 0, 3, b"2"))

        third, assign, _ = await taken(made, tasks, replay, assign.job, "node-3")
        asks = [KeptAsk(n, assign.job, assign.attempt, n, 3) for n in (0, 1, 2)]
        found = await pages(third, *asks)
        assert [one.ref or one.values for one in found] == [ref, (b'"a"',), (b'"b"',)]
        assert await made.commits.read(lambda conn: store.is_kept(conn, assign.job, ref.key))
        await made.plane.commands.retry(made.echo, job)
        found = await pages(third, *asks)
        assert found[1].refusal == f"chunk 1 of job {assign.job} is not stored any more"
        assert found[2].values == (b'"b"',)


@story
async def test_a_large_save_goes_through_the_object_store_and_leaves_nothing_there() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent, save=LARGE)
        other = made.agent("node-2")
        await other.connect(tasks)
        view = await started(made, job)
        await other.ready_workers()
        assign = await other.assigned()
        assert assign.saved is not None
        assert assign.saved.ref is not None
        assert await made.artifacts.get(assign.saved.ref) == LARGE
        await made.plane.commands.cancel(made.plane.endpoints.by_id[view.endpoint], view.id)
        await asyncio.sleep(700.0)
        assert not [key for _, key in made.artifacts.blobs if key.startswith(f"{view.endpoint}/")]


@story
async def test_what_is_large_is_read_and_written_beside_the_loop() -> None:
    with pytest.MonkeyPatch.context() as patch, work_beside_the_loop() as named:
        async with world(KEEPS) as (made, tasks):
            agent = await made.working_agent(tasks)
            job = await a_failed_job(made, agent)
            for most, expected in ((100, []), (5, ["an input", "a case", "a seed"])):
                patch.setattr(large_json, "LARGE_BYTES", most)
                reads = Caller("default", "k", Access("restricted", "none", {"echo": "read"}, cases=True))
                assert json.loads(await made.plane.details.input(made.echo, job, reads)) == {"x": X}
                assert json.loads(await made.plane.details.case(made.echo, job))["input"] == {"x": X}
                await started(made, job, node="node-1", seed=7)
                await started(made, job, node="node-1")
                assert named == expected


@story
async def test_it_is_refused_with_a_sentence_and_nothing_is_left() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent)
        with pytest.raises(NotFound, match="no node has the id or the name 'node-2'; the nodes are node-1"):
            await started(made, job)
        await made.plane.management.nodes.drain("default", "node-1", drained=True)
        with pytest.raises(Conflict, match="node node-1 is drained: `stoker node resume`"):
            await started(made, job, node="node-1")
        with pytest.raises(NotFound, match="no job"):
            await started(made, "no-such-job")
        ok = await made.plane.commands.submit(made.echo, one(), sync=False)
        with pytest.raises(NotFound, match="is IN_QUEUE: there are cases of jobs that"):
            await started(made, ok.id)
        assert list(made.plane.endpoints.by_id) == ["echo"]


@story
async def test_a_node_that_lacks_what_the_job_needs_is_named() -> None:
    run = EndpointVersion("", image="example/handler:1")
    async with world(endpoint(workers_min=1, keep_cases=True, max_attempts=1)) as (made, tasks):
        agent = made.agent()
        await agent.connect(tasks, facts={"containers": "none: there is no socket"})
        await agent.ready_workers()
        job = await a_failed_job(made, agent)
        await made.plane.management.endpoints.add(endpoint("other", run=run))
        other = "SELECT run FROM endpoint_versions WHERE endpoint = 'other'"
        await made.commits.commit(
            lambda conn: conn.run(f"UPDATE endpoint_versions SET run = ({other}) WHERE endpoint = 'echo'", {})
        )
        with pytest.raises(
            Conflict, match=r"node node-1 cannot run this job: no capacity: .* no container engine"
        ):
            await started(made, job, node="node-1")


@story
async def test_a_replay_of_a_replay_is_for_the_keys_of_the_first_jobs_endpoint() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent)
        other, assign, replay = await taken(made, tasks, made.echo, job, "node-2")
        await fail(made, other, assign)
        second = await made.plane.replays.start(replay, assign.job, Wish("node-2"))
        again = made.plane.endpoints.by_id[second.endpoint]
        assert (again.rights, again.replay and again.replay.job) == ("echo", assign.job)
        looks = Caller("default", "k", Access("restricted", "none", {"echo": "read"}, cases=True))
        assert json.loads(await made.plane.details.input(again, second.id, looks)) == {"x": X}
        stranger = Caller("default", "k", Access("restricted", "none", {again.id: "read"}, cases=True))
        with pytest.raises(CasesClosed):
            await made.plane.details.input(again, second.id, stranger)


@story
async def test_an_endpoints_jobs_have_so_many_replays_until_one_is_deleted() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_rules, "REPLAYS_MOST", 2)
        async with world(KEEPS) as (made, tasks):
            agent = await made.working_agent(tasks)
            job = await a_failed_job(made, agent)
            four = [started(made, job, node="node-1") for _ in range(4)]
            answers = await asyncio.gather(*four, return_exceptions=True)
            begun = [one for one in answers if isinstance(one, JobView)]
            why = [str(one) for one in answers if isinstance(one, TooMany)]
            assert (len(begun), len(why)) == (2, 2)
            assert "jobs of endpoint echo have 2 replays, and may have no more at once" in why[0]
            assert len(made.plane.endpoints.by_id) == 3
            await made.plane.management.endpoints.delete("default", begun[0].endpoint)
            assert (await started(made, job, node="node-1")).endpoint in made.plane.endpoints.by_id


@story
async def test_what_cannot_be_submitted_leaves_no_endpoint() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent)
        made.plane.commands.closed = True
        with pytest.raises(Exception, match="the service is stopping"):
            await started(made, job, node="node-1")
        assert list(made.plane.endpoints.by_id) == ["echo"]


@story
async def test_its_endpoint_goes_an_hour_after_its_last_use() -> None:
    async with world(KEEPS) as (made, tasks):
        agent = await made.working_agent(tasks)
        job = await a_failed_job(made, agent)
        view = await started(made, job, node="node-1")
        with pytest.raises(BadRequest, match="was made for a replay: it can only be deleted"):
            await made.plane.management.endpoints.update("default", view.endpoint, {"workersMax": 2})
        await made.plane.commands.cancel(made.plane.endpoints.by_id[view.endpoint], view.id)
        made.moved += REPLAY_LIFE_S - 700.0
        await asyncio.sleep(650.0)
        assert view.endpoint in made.plane.endpoints.by_id
        made.moved += 700.0
        await asyncio.sleep(700.0)
        assert view.endpoint not in made.plane.endpoints.by_id
