"""What an agent says of an attempt whose submission is still being written: it was sent before its COMMIT.

Nothing of it is refused, dropped or acknowledged then. Where COMMIT fails, all of it belongs to no job.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control.rules.access import NOBODY
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import JobView
from stoker.wire.messages import (
    Artifact,
    Assign,
    AttemptKey,
    Cancel,
    Chunk,
    FromAgent,
    FromControl,
    HeldAttempt,
    HeldWorker,
    Outcome,
    Progress,
    Ref,
    Refused,
    Released,
    ReportBody,
    SignAsk,
    Span,
    Uploading,
    Usage,
    Wanted,
)
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.virtual_loop import run as run_story

HOOK = "https://hooks.example.org/x"


@dataclass
class Early:
    """A job that its agent has, and that is not on the disk: the test holds the lane of the writer."""

    w: World
    tasks: asyncio.TaskGroup
    agent: ScriptedAgent
    assign: Assign
    submitting: asyncio.Task[JobView | Exception]

    async def hears(self, seconds: float = 0.5) -> list[FromControl]:
        heard: list[FromControl] = []
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while (left := until - loop.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    heard.append(await self.agent.receive())
            except TimeoutError:
                break
        return heard

    async def stored(self) -> JobView:
        """The COMMIT returns."""
        assert not self.submitting.done(), "it was answered before it was stored"
        self.w.commits.lane.release()
        view = await self.submitting
        assert isinstance(view, JobView)
        return view

    async def now(self) -> JobView:
        return await self.w.plane.queries.status(self.w.echo, self.assign.job)


async def tried(submission: Awaitable[JobView]) -> JobView | Exception:
    try:
        return await submission
    except Exception as error:
        return error


@asynccontextmanager
async def early(submission: Submission | None = None, *, waits: bool = False) -> AsyncIterator[Early]:
    """`waits`: its caller waits for the end of the job."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        await w.commits.lane.acquire()
        commands, submitted = w.plane.commands, submission or one()
        submit = (
            commands.run_sync(w.echo, submitted, 60.0)
            if waits
            else commands.submit(w.echo, submitted, sync=False)
        )
        submitting = tasks.create_task(tried(submit))
        yield Early(w, tasks, agent, await agent.assigned(), submitting)


def end(of: Assign, state: str = "completed", **more: Any) -> Outcome:
    return Outcome(of.job, of.attempt, of.worker, state, execution_ms=7, **more)


async def blob(e: Early, name: str) -> Ref:
    return await e.w.artifacts.put_bytes(f"echo/{e.assign.job}/1/{name}", b'"large"')


Say = Callable[[Early], Awaitable[list[ReportBody]]]
Check = Callable[[Early], Awaitable[None]]
CASES: dict[str, tuple[Say, Check]] = {}


def case(says: Say) -> Callable[[Check], Check]:
    def with_check(check: Check) -> Check:
        CASES[check.__name__.replace("_", " ")] = says, check
        return check

    return with_check


async def _progress(e: Early) -> list[ReportBody]:
    return [Progress(e.assign.job, 1, b'{"step":1}')]


@case(_progress)
async def progress(e: Early) -> None:
    assert (await e.now()).progress == b'{"step":1}'


async def _chunks(e: Early) -> list[ReportBody]:
    return [Chunk(e.assign.job, 1, 0, b"0"), Chunk(e.assign.job, 1, 1, b"", await blob(e, "chunk-1.json"))]


@case(_chunks)
async def chunks_of_its_stream(e: Early) -> None:
    poll = await e.w.plane.queries.poll_stream(e.w.echo, e.assign.job, 0.0)
    assert [(chunk.n, chunk.value) for chunk in poll.chunks] == [(0, b"0"), (1, b'"large"')]


async def _completed(e: Early) -> list[ReportBody]:
    spans = (Span("execution", "device_ms", 7, 0),)
    artifacts = (Artifact(f"echo/{e.assign.job}/1/0-a.png", 3, "0" * 64, "image/png"),)
    return [end(e.assign, output=b"1", spans=spans, artifacts=artifacts, log=("a line",))]


@case(_completed)
async def its_outcome_with_files_lines_and_spans(e: Early) -> None:
    view = await e.now()
    assert (view.state, view.output, view.attempt) == ("COMPLETED", b"1", 1)
    (log,) = await e.w.plane.queries.logs(e.w.echo, e.assign.job)
    assert log.lines == ("a line",)
    rows = e.w.store.writer.raw.execute
    assert rows("SELECT job, quantity FROM spans").fetchall() == [(e.assign.job, 7)]
    assert rows("SELECT job FROM artifacts").fetchall() == [(e.assign.job,)]


async def _uploaded(e: Early) -> list[ReportBody]:
    job = e.assign.job
    late = Uploading(job, 1, "the store is down")
    return [Released(job, 1), Uploading(job, 1), late, end(e.assign, output_ref=await blob(e, "output.json"))]


@case(_uploaded)
async def an_output_that_was_uploaded(e: Early) -> None:
    view = await e.now()
    assert (view.state, view.output) == ("COMPLETED", b'"large"')


async def _uploading(e: Early) -> list[ReportBody]:
    return [Released(e.assign.job, 1), Uploading(e.assign.job, 1, "the store is down")]


@case(_uploading)
async def why_it_is_still_being_uploaded(e: Early) -> None:
    view = await e.now()
    assert (view.state, view.reason) == ("IN_PROGRESS", "the store is down")
    (worker,) = e.w.plane.cluster.workers.values()
    assert worker.free == 1


async def _lost(e: Early) -> list[ReportBody]:
    return [end(e.assign, "lost", error="worker died", retryable=True)]


@case(_lost)
async def the_death_of_its_worker(e: Early) -> None:
    again = await e.agent.assigned()
    assert (again.job, again.attempt) == (e.assign.job, 2)


async def _refused(e: Early) -> list[ReportBody]:
    return [Refused(e.assign.job, 1, "it waits for another", at_once=True)]


@case(_refused)
async def that_it_is_handed_back(e: Early) -> None:
    again = await e.agent.assigned()
    assert (again.job, again.attempt) == (e.assign.job, 2)


async def _used(e: Early) -> list[ReportBody]:
    now = int(e.w.now() * 1000)
    return [Usage(e.assign.worker, "boot-1", 1, "worker", "running", now, now + 2_000, "echo", 1, ("CPU-0",))]


@case(_used)
async def what_its_worker_used(e: Early) -> None:
    found = e.w.store.writer.raw.execute("SELECT owner FROM usage").fetchall()
    assert found == [(e.assign.worker,)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_report_is_kept_until_its_job_is_stored(name: str, seed: int) -> None:
    says, check = CASES[name]

    async def told() -> None:
        async with early() as e:
            await e.agent.report(*await says(e))
            for message in await e.hears():
                assert (message.cancels, message.ack) == ((), None)
            await e.stored()
            heard = await e.hears(1.0)
            assert [message.cancels for message in heard if message.cancels] == []
            assert e.agent.number in {message.ack.report for message in heard if message.ack}
            await check(e)

    run_story(VirtualLoop(seed), told())


@story
async def test_who_waits_for_its_end_gets_it() -> None:
    async with early(waits=True) as e:
        await e.agent.report(*await _completed(e))
        await e.hears()
        view = await e.stored()
        assert (view.state, view.output) == ("COMPLETED", b"1")


@story
async def test_its_webhook_is_sent_once() -> None:
    async with early(replace(one(), webhook=HOOK)) as e:
        await e.agent.report(*await _completed(e))
        await e.hears()
        assert e.w.posted == []
        await e.stored()
        await e.hears(30.0)
        assert [body["output"] for _, _, body, _ in e.w.posted] == [1]


@story
async def test_its_uploads_are_signed() -> None:
    async with early() as e:
        wanted = (Wanted("put", f"echo/{e.assign.job}/1/0-a.png", 1, sha256="0" * 64),)
        await e.agent.stream.send(FromAgent(asks=(SignAsk(7, e.assign.job, 1, wanted),)))
        assert [message.answers for message in await e.hears() if message.answers] == []
        await e.stored()
        (answer,) = [answer for message in await e.hears() for answer in message.answers]
        assert (answer.number, answer.refusal, len(answer.signed)) == (7, "", 1)


@story
async def test_its_large_input_may_be_read() -> None:
    large = Submission(input=b'"%s"' % (b"x" * 1_100_000))
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        new = await w.plane.commands._new_job(w.echo, large, NOBODY, sync=False)
        assert new.input_ref is not None, "it is in the object store by now"
        await w.commits.lane.acquire()
        submitting = tasks.create_task(w.plane.commands._accept(w.echo, new, NOBODY))
        assign = await agent.assigned()
        assert assign.input_ref is not None
        wanted = (Wanted("read", assign.input_ref.key),)
        await agent.stream.send(FromAgent(asks=(SignAsk(7, assign.job, 1, wanted),)))
        await agent.listen(0.5)
        assert not submitting.done()
        w.commits.lane.release()
        while not (answers := (await agent.receive()).answers):
            pass
        assert (answers[0].refusal, len(answers[0].signed)) == ("", 1)


async def comes_back(e: Early) -> asyncio.Task[FromControl]:
    """With the attempt, while its job is not on the disk yet."""
    await asyncio.sleep(0)
    e.agent.stream.end("the stream broke")
    spec = e.agent.specs[e.assign.worker]
    worker = HeldWorker(spec.worker, "echo", spec.version, "ready", spec.devices, 1)
    held = HeldAttempt(e.assign.job, 1, e.assign.worker, "running")
    connecting = e.tasks.create_task(e.agent.connect(e.tasks, workers=(worker,), attempts=(held,)))
    await asyncio.sleep(0.5)
    assert not connecting.done()
    return connecting


@story
async def test_its_node_may_come_back_with_it() -> None:
    async with early() as e:
        connecting = await comes_back(e)
        await e.stored()
        welcome = (await connecting).welcome
        assert welcome is not None
        assert (welcome.keep, welcome.stop) == ((AttemptKey(e.assign.job, 1),), ())
        await e.agent.completes(e.assign)
        await e.hears(10.0)
        view = await e.now()
        assert (view.state, view.attempt, view.retries) == ("COMPLETED", 1, 0)


@story
async def test_what_is_said_of_one_that_could_not_be_stored_belongs_to_no_job() -> None:
    async with early() as e:
        job = e.assign.job
        wanted = (Wanted("put", f"echo/{job}/1/0-a.png", 1, sha256="0" * 64),)
        await e.agent.report(*await _chunks(e), *await _completed(e))
        await e.agent.stream.send(FromAgent(asks=(SignAsk(7, job, 1, wanted),)))
        await e.hears()
        e.w.commits.mistake = True
        e.w.commits.lane.release()
        heard = await e.hears(2.0)
        assert isinstance(await e.submitting, RuntimeError)
        cancels = [cancel for message in heard for cancel in message.cancels]
        assert Cancel(job, 1, "its job could not be stored") in cancels
        assert e.agent.number in {message.ack.report for message in heard if message.ack}
        (answer,) = [answer for message in heard for answer in message.answers]
        assert answer.refusal == f"this node does not hold attempt 1 of job {job}"
        assert e.w.store.writer.raw.execute("SELECT count(*) FROM jobs").fetchone() == (0,)
        (worker,) = e.w.plane.cluster.workers.values()
        assert worker.free == 1


@story
async def test_its_node_stops_one_that_could_not_be_stored_when_it_comes_back() -> None:
    async with early() as e:
        connecting = await comes_back(e)
        e.w.commits.mistake = True
        e.w.commits.lane.release()
        welcome = (await connecting).welcome
        assert welcome is not None
        assert (welcome.keep, welcome.stop) == ((), (AttemptKey(e.assign.job, 1),))
        assert isinstance(await e.submitting, RuntimeError)
