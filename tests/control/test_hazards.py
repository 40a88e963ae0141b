"""Hazards that were found by looking for them: each test fails without its mend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from stoker.control import store
from stoker.control.errors import ControlError, NotFound, Unauthorized, Unavailable
from stoker.control.nodes.session import MESSAGE_INPUTS, _first
from stoker.control.rules.job_states import JobState
from stoker.control.rules.submissions import Submission
from stoker.control.store import Conn
from stoker.control.store.resources.keys import create_key, revoke_key
from stoker.wire.messages import Assign, Chunk, Outcome, Save, WorkerState, accepts_protocol
from stoker.wire.object_keys import attempt_prefix
from tests.control.plane_world import endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

T = TypeVar("T")


async def busy(agent: ScriptedAgent, tasks: asyncio.TaskGroup) -> None:
    await agent.connect(tasks)
    await agent.ready_workers()


@story
async def test_a_stream_that_breaks_during_its_commit_still_ends_the_job_for_who_waits() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await busy(agent, tasks)
        waiting = tasks.create_task(w.plane.commands.run_sync(w.echo, one(), 90))
        assign = await agent.assigned()
        real = w.commits.commit

        async def slow(fn: Callable[[Conn], T]) -> T:
            result = await real(fn)
            await asyncio.sleep(0.05)  # on the disk; the answer is on its way
            return result

        w.commits.commit = slow  # type: ignore[method-assign]
        await agent.completes(assign)
        await asyncio.sleep(0.02)
        began = w.loop.time()
        agent.stream.end("cut")
        assert (await waiting).state is JobState.COMPLETED
        assert w.loop.time() - began < 1


@story
async def test_a_killed_agent_is_replaced_while_its_last_report_is_still_being_stored() -> None:
    """On a slow disk. The end of its session is seen only then, and until then its node seems to be there."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent(node="n1")
        await busy(agent, tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        real, disk, turn = w.commits.commit, asyncio.Event(), asyncio.Lock()

        async def slow(fn: Callable[[Conn], T]) -> T:
            async with turn:
                await disk.wait()
                return await real(fn)

        w.commits.commit = slow  # type: ignore[method-assign]
        await agent.completes(assign)
        await asyncio.sleep(0.01)
        agent.stream.end("killed")
        answer = tasks.create_task(w.agent(node="n1", boot="boot-2").connect(tasks))
        await asyncio.sleep(3)
        disk.set()
        answered = await answer
        assert answered.refusal is None, answered.refusal
        assert answered.welcome is not None


@story
async def test_a_job_that_was_queued_while_the_only_slot_was_reserved_in_vain_is_claimed() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await busy(agent, tasks)
        await asyncio.sleep(1)
        slots = w.plane.dispatch.reserve(["echo"])
        assert slots
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        w.plane.dispatch.settle(slots, ())
        async with asyncio.timeout(2):
            assert (await agent.assigned()).job == job.id


@story
async def test_a_mark_that_nobody_looks_at_is_looked_at_within_two_seconds() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await busy(agent, tasks)
        first = await w.plane.commands.submit(w.echo, one(), sync=False)
        second = await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        assert assign.job == first.id
        await agent.report(
            Chunk(assign.job, 1, 2**62 * 4, b"0"),  # the store cannot take it: the batch is tried one by one
            Outcome(assign.job, 1, assign.worker, "completed", b"1"),
        )
        async with asyncio.timeout(3):
            assert (await agent.assigned()).job == second.id


@story
async def test_a_worker_in_a_crash_loop_gives_its_device_back_when_nobody_needs_it() -> None:
    async with world(endpoint("a"), endpoint("b")) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        job = await w.plane.commands.submit(w.plane.endpoints.find("default", "a"), one(), sync=False)
        while not agent.specs:
            await agent.receive()
        spec = next(iter(agent.specs.values()))
        await agent.report(WorkerState(spec.worker, "a", 1, "unhealthy", "crash loop: boom", ("boom",)))
        await asyncio.sleep(1)
        assert (
            await w.plane.queries.status(w.plane.endpoints.find("default", "a"), job.id)
        ).reason == "crash loop: boom"
        await w.plane.commands.cancel(w.plane.endpoints.find("default", "a"), job.id)
        async with asyncio.timeout(5):
            while agent.specs:
                await agent.receive()


@story
async def test_a_job_that_was_accepted_is_never_answered_with_try_again() -> None:
    async with world() as (w, _):
        real = w.commits.read

        async def broken(fn: Callable[[Conn], T]) -> T:
            raise Unavailable("the disk hiccups")

        w.commits.read = broken  # type: ignore[method-assign]
        view = await w.plane.commands.run_sync(w.echo, one(), 1)
        w.commits.read = real  # type: ignore[method-assign]
        assert view.state is JobState.IN_QUEUE
        assert (await w.plane.queries.status(w.echo, view.id)).state is JobState.IN_QUEUE


@story
async def test_who_waits_for_a_job_is_notified_when_its_time_passes() -> None:
    async with world() as (w, _):
        began = w.loop.time()
        with pytest.raises(NotFound):
            await w.plane.commands.run_sync(w.echo, Submission(input=b"{}", ttl_ms=10_000), 300)
        assert w.loop.time() - began < 13


@story
async def test_chunks_of_a_lost_attempt_are_void_also_when_the_next_emits_none() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await busy(agent, tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        first = await agent.assigned()
        await agent.report(Chunk(job.id, 1, 0, b"0"))
        while not (await w.plane.queries.poll_stream(w.echo, job.id, 5)).chunks:
            pass

        async def listen() -> list[str]:
            return [event.kind async for event in w.plane.queries.follow(w.echo, job.id, (1, 0))]

        listening = tasks.create_task(listen())
        await agent.report(Outcome(job.id, 1, first.worker, "lost", error="died"))
        await agent.completes(await agent.assigned())
        assert await listening == ["reset", "end"]


@story
async def test_expiry_keeps_up_with_any_number() -> None:
    async with world() as (w, _):
        for _ in range(1_200):
            await w.plane.commands.submit(w.echo, Submission(input=b"{}", ttl_ms=10_000), sync=False)
        await asyncio.sleep(12)
        assert (await w.plane.queries.health(w.echo)).in_queue == 0


@story
async def test_an_object_that_cannot_be_deleted_holds_no_other_up() -> None:
    async with world() as (w, _):
        kept = await w.artifacts.put_bytes("good/1", b"x")
        real = w.artifacts.delete

        async def picky(key: str) -> None:
            if key == "bad":
                raise ControlError("no")
            await real(key)

        w.artifacts.delete = picky  # type: ignore[method-assign]
        await w.commits.commit(lambda c: store.note_orphans(c, ["bad", "good/1"]))
        await asyncio.sleep(3)
        with pytest.raises(NotFound):
            await w.artifacts.get(kept)


@story
async def test_a_job_whose_outcome_cannot_be_stored_is_given_out_again() -> None:
    real = store.apply_reports

    def picky(conn: Any, *, reports: Any, **fields: Any) -> Any:
        if any(getattr(report.body, "output", None) == b'"poison"' for report in reports):
            raise RuntimeError("it cannot be stored")
        return real(conn, reports=reports, **fields)

    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "apply_reports", picky)
            await agent.completes(await agent.assigned(), b'"poison"')
            again = await agent.assigned()
        assert (again.job, again.attempt) == (job.id, 2)
        await agent.completes(again)
        assert (await w.plane.queries.wait(w.echo, job.id, 10)).output == b'{"ok":true}'


@story
async def test_a_mistake_in_a_background_pass_ends_nothing() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        await asyncio.sleep(0.5)
        w.commits.mistake = True
        await asyncio.sleep(3)
        agent = w.agent()
        await busy(agent, tasks)


@story
async def test_a_revoked_key_lives_five_seconds_and_unauthenticated_callers_are_not_remembered() -> None:
    async with world() as (w, _):
        record, token = await w.commits.commit(lambda c: create_key(c, name="x", now=0.0))
        assert (await w.plane.callers.find(token)).account == "default"
        await w.commits.commit(lambda c: revoke_key(c, record.id, 1.0))
        w.moved = -3_600.0  # a wall clock that is set back
        await asyncio.sleep(5.1)
        for unauthenticated in (token, "sk_" + "x" * 1_000_000, *(f"sk_nobody_{n}" for n in range(100))):
            with pytest.raises(Unauthorized):
                await w.plane.callers.find(unauthenticated)
        assert len(w.plane.callers._known) <= 1


def test_assigns_leave_in_slices_that_a_message_can_hold() -> None:
    assigns = [Assign(f"j{n}", 1, "w", input=b"x" * 1_000_000) for n in range(10)]
    taken = _first(assigns)
    assert taken == assigns[: len(taken)] != assigns
    assert 0 < sum(len(a.input or b"") for a in taken) <= MESSAGE_INPUTS
    assert sum(len(a.input or b"") for a in assigns[: len(taken) + 1]) > MESSAGE_INPUTS
    huge = Assign("h", 1, "w", input=b"x" * (MESSAGE_INPUTS + 1))
    assert _first([huge, *assigns]) == [huge]
    assert _first([]) == []


def test_the_protocol_before_is_spoken_and_no_other() -> None:
    assert [theirs for theirs in range(6) if accepts_protocol(theirs, ours=3)] == [2, 3]
    assert [theirs for theirs in range(4) if accepts_protocol(theirs, ours=1)] == [1]


@story
async def test_the_object_of_a_save_that_cannot_be_stored_is_deleted() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await busy(agent, tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        assign = await agent.assigned()
        ref = await w.artifacts.put_bytes(f"{attempt_prefix('echo', assign.job, 1)}save-0", b"state")
        await agent.report(Save(assign.job, 1, 2**62 * 4, 0, b"", ref))
        await asyncio.sleep(62)  # the sweeper looks once a minute, of virtual time
        assert w.artifacts.blobs == {}
