"""What the platform deletes in the object store by itself, and when: a week is a moment on a moved clock."""

from __future__ import annotations

import asyncio
import logging
from io import BytesIO

import pytest

from stoker.control import store
from stoker.control.errors import NotFound, Unavailable
from stoker.control.rules.access import NOBODY
from stoker.control.rules.submissions import Submission
from stoker.control.store import expired_artifacts
from stoker.wire.messages import Artifact, Assign, Outcome, Ref
from stoker.wire.object_keys import artifact_key, output_key
from tests.control.plane_world import World, endpoint, one, story, world

DAY = 86_400.0
TIDIED_S = 62.0  # artifacts are looked at once a minute


def kept(w: World) -> list[str]:
    return sorted(key for _, key in w.artifacts.blobs)


async def uploads(w: World, assign: Assign, name: str = "out.png") -> Artifact:
    """What an agent would have done with a file."""
    assert assign.grant is not None
    ref = await w.artifacts.put_bytes(artifact_key(assign.grant.prefix, 0, name), b"picture")
    return Artifact(ref.key, ref.size, ref.sha256, "image/png")


def completed(assign: Assign, *artifacts: Artifact, output_ref: Ref | None = None) -> Outcome:
    output = None if output_ref else b"{}"
    return Outcome(
        assign.job,
        assign.attempt,
        assign.worker,
        "completed",
        output,
        output_ref=output_ref,
        execution_ms=1,
        artifacts=artifacts,
    )


@story
async def test_a_file_lives_as_long_as_its_url_and_no_longer() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        artifact = await uploads(w, assign := await agent.assigned())
        await agent.report(completed(assign, artifact))
        await w.plane.queries.wait(w.echo, job.id, 10)
        w.moved += 7 * DAY - 300
        await asyncio.sleep(TIDIED_S)
        with pytest.raises(NotFound):  # the record has gone long before
            await w.plane.queries.status(w.echo, job.id)
        assert kept(w) == [artifact.key]
        w.moved += 360
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == []
        later = w.now() + DAY
        assert await w.commits.read(lambda conn: expired_artifacts(conn, later, 10)) == ()


@story
async def test_files_past_their_time_wait_for_an_object_store_that_is_down() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        artifact = await uploads(w, assign := await agent.assigned())
        await agent.report(completed(assign, artifact))
        await w.plane.queries.wait(w.echo, job.id, 10)
        w.artifacts.down = True
        w.moved += 7 * DAY + 60
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == [artifact.key]
        w.artifacts.down = False
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == []


@story
async def test_spilled_payloads_go_with_their_record() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        big = Submission(input=b'"' + b"x" * 2_000_000 + b'"')
        job = await w.plane.commands.submit(w.echo, big, sync=False)
        assign = await agent.assigned()
        assert assign.grant is not None
        output = await w.artifacts.put_bytes(output_key(assign.grant.prefix), b'{"large":true}')
        await agent.report(completed(assign, output_ref=output))
        view = await w.plane.queries.wait(w.echo, job.id, 10)
        assert view.output == b'{"large":true}'
        assert assign.input_ref is not None
        assert kept(w) == sorted([assign.input_ref.key, output.key])
        w.moved += 29 * 60
        await asyncio.sleep(5)
        assert (await w.plane.queries.status(w.echo, job.id)).output == b'{"large":true}'
        w.moved += 120
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await w.plane.queries.status(w.echo, job.id)
        assert kept(w) == []


@story
async def test_what_a_losing_attempt_uploaded_goes_and_the_winners_stays() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        await uploads(w, first := await agent.assigned(), "lost.png")
        await agent.report(Outcome(job.id, 1, first.worker, "lost", error="the worker died", retryable=True))
        won = await uploads(w, second := await agent.assigned(), "won.png")
        assert second.attempt == 2
        await agent.report(completed(second, won))
        await w.plane.queries.wait(w.echo, job.id, 10)
        await asyncio.sleep(5)
        assert kept(w) == [won.key]
        # And once more, by the report of an attempt that does not count any more.
        late = await uploads(w, first, "late.png")
        await agent.report(completed(first, late))
        await asyncio.sleep(5)
        assert kept(w) == [won.key]


@story
async def test_an_object_store_that_hangs_holds_no_clock_up() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        hanging = asyncio.Event()

        async def hang(_: str) -> None:
            hanging.set()
            await asyncio.Event().wait()

        w.artifacts.delete = hang  # type: ignore[method-assign]
        big = Submission(input=b'"' + b"x" * 2_000_000 + b'"', ttl_ms=10_000)
        await w.plane.commands.submit(w.echo, big, sync=False)
        await agent.completes(await agent.assigned())
        await asyncio.wait_for(hanging.wait(), 60)
        short = Submission(input=b"{}", ttl_ms=10_000)
        job = await w.plane.commands.submit(w.echo, short, sync=False)
        while not (message := await asyncio.wait_for(agent.receive(), 30)).cancels:
            pass
        assert (message.cancels[0].job, message.cancels[0].reason) == (job.id, "expired")


@story
async def test_a_file_that_a_caller_gave_is_kept_for_a_day() -> None:
    async with world(endpoint(workers_min=1)) as (w, _):
        uploaded = await w.plane.uploaded_files.keep(
            w.echo, NOBODY, "my voice.wav", BytesIO(b"RIFF"), "audio/wav"
        )
        (key,) = kept(w)
        assert key.startswith("echo/given/")
        assert key.endswith("/0-my-voice.wav")
        assert (uploaded.size, round(uploaded.expires_at - w.now())) == (4, 86_400)
        w.moved += DAY - 300
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == [key]
        w.moved += 360
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == []
        with pytest.raises(NotFound):
            await w.plane.uploaded_files.keep(
                w.plane.endpoints.find("default", "nobody"), NOBODY, "a", BytesIO(b"x"), "text/plain"
            )


@story
async def test_a_file_that_the_store_did_not_take_leaves_nothing() -> None:
    async with world(endpoint(workers_min=1)) as (w, _):
        w.artifacts.down = True
        with pytest.raises(Unavailable):
            await w.plane.uploaded_files.keep(w.echo, NOBODY, "a.wav", BytesIO(b"x"), "audio/wav")
        w.artifacts.down = False
        w.moved += DAY
        await asyncio.sleep(TIDIED_S)
        assert kept(w) == []


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@story
async def test_what_no_store_deletes_is_put_aside_once_and_holds_nothing_up() -> None:
    reported, log = Logged(), logging.getLogger("stoker.control.sweeper")
    log.addHandler(reported)
    try:
        async with world(endpoint(workers_min=1)) as (w, _):
            w.artifacts.blobs["stoker", "echo/job/1/0-a.png"] = b"x"
            await w.commits.commit(lambda conn: store.note_orphans(conn, ["/", "echo/job/1/"]))
            await asyncio.sleep(60)
            assert kept(w) == []
            assert await w.commits.read(lambda conn: store.due_orphans(conn, w.now(), 10)) == ()
            assert len(reported.lines) == 1
            w.moved += DAY
            await asyncio.sleep(60)
            assert len(reported.lines) == 2, "it is told of again a day later"
    finally:
        log.removeHandler(reported)
