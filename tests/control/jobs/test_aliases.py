"""An alias is the endpoint: each operation on /v2 takes it, and what one name began the other knows."""

from __future__ import annotations

from io import BytesIO

from stoker.control.config.endpoints import Endpoints
from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.access import NOBODY
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import Listing
from stoker.wire.messages import Outcome
from tests.control.plane_world import endpoint, one, story, world

SLUG, ID = "black-forest-labs-flux-1-dev", "echo"


@story
async def test_each_operation_takes_it() -> None:
    async with world(endpoint(), settings=PlaneSettings(aliases={SLUG: ID})) as (w, tasks):
        agent, plane = w.agent(), w.plane
        await agent.connect(tasks)
        alias, itself = (plane.endpoints.find("default", name) for name in (SLUG, ID))
        assert alias is itself
        job = await plane.commands.submit(alias, one(), sync=False)
        assert (await plane.queries.status(alias, job.id)).endpoint == ID
        await agent.ready_workers()
        assign = await agent.assigned()
        await agent.report(Outcome(assign.job, 1, assign.worker, "failed", error="no"))
        assert (await plane.queries.wait(alias, job.id, 10)).state is JobState.FAILED
        assert (await plane.queries.poll_stream(alias, job.id, 1)).view.state is JobState.FAILED
        assert [event.kind async for event in plane.queries.follow(alias, job.id, None)] == ["end"]
        assert [log.attempt for log in await plane.queries.logs(alias, job.id)] == []
        assert (await plane.commands.retry(alias, job.id)).id == job.id
        assert (await plane.commands.cancel(alias, job.id)).state is JobState.CANCELLED
        listed = await plane.queries.requests(alias, Listing())
        assert listed == await plane.queries.requests(itself, Listing())
        assert [view.id for view in listed.views] == [job.id]
        assert await plane.queries.health(alias) == await plane.queries.health(itself)
        waiting = [await plane.commands.submit(found, one(), sync=False) for found in (alias, itself)]
        assert await plane.commands.purge(alias) in (1, len(waiting)), "one may be given out already"
        assert (
            await plane.uploaded_files.keep(alias, NOBODY, "a.txt", BytesIO(b"a"), "text/plain")
        ).size == 1


@story
async def test_it_makes_no_further_endpoint() -> None:
    async with world(endpoint(), settings=PlaneSettings(aliases={SLUG: ID})) as (w, _):
        book: Endpoints = w.plane.endpoints
        assert book.find("default", SLUG) is book.find("default", ID)
        assert list(w.plane.endpoints.by_id) == [ID]
