"""The spans of a plane's jobs: a failure and its retry, a cancel, a caller who records nothing."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from stoker.control.traces.spans import TraceSpan
from stoker.control.traces.traceparent import Traceparent
from stoker.wire.messages import Outcome
from tests.control.plane_world import World, endpoint, one, story, world

PARENT = Traceparent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)


async def submit(w: World, traceparent: object = PARENT) -> str:
    submission = replace(one(), traceparent=None if traceparent is None else str(traceparent))
    return (await w.plane.commands.submit(w.echo, submission, sync=False)).id


def tree(spans: list[TraceSpan]) -> list[tuple[str, str]]:
    """Each span's name with its parent's, in the order of their ends."""
    names = {span.own.span: span.name for span in spans} | {PARENT.span: "the caller"}
    return [(span.name, names[span.parent]) for span in spans]


@story
async def test_a_job_that_fails_once() -> None:
    async with world(endpoint(handler_retries=1, workers_min=1), traced=True) as (w, tasks):
        agent = await w.working_agent(tasks)
        job = await submit(w)
        first = await agent.assigned()
        await asyncio.sleep(2)
        failed = Outcome(job, 1, first.worker, "failed", error="no", retryable=True, execution_ms=1_500)
        await agent.report(failed, failed)
        second = await agent.assigned()
        await asyncio.sleep(3)
        await agent.completes(second, ms=2_000)
        await w.plane.queries.wait_until(w.echo, job, asyncio.get_running_loop().time() + 60)
        await agent.listen(1)
        assert tree(w.spans) == [
            ("store", "the caller"),
            ("queue", "job"),
            ("attempt", "job"),
            ("assign", "attempt"),
            ("execute", "attempt"),
            ("report", "attempt"),
            ("attempt", "job"),
            ("assign", "attempt"),
            ("execute", "attempt"),
            ("report", "attempt"),
            ("job", "the caller"),
        ]
        assert {span.own.trace for span in w.spans} == {PARENT.trace}
        executes = [span for span in w.spans if span.name == "execute"]
        assert [str(span.own) for span in executes] == [first.traceparent, second.traceparent]
        assert [(round(span.ended - span.began, 3), span.failed) for span in executes] == [
            (1.5, True),
            (2.0, False),
        ]


@story
async def test_a_job_that_is_cancelled_or_purged_has_a_span() -> None:
    async with world(traced=True) as (w, _):
        job = await submit(w)
        await w.plane.commands.cancel(w.echo, job)
        purged = await submit(w)
        await w.plane.commands.purge(w.echo)
        jobs = [span for span in w.spans if span.name == "job"]
        assert [(span.attributes["stoker.job"], span.attributes["stoker.state"]) for span in jobs] == [
            (job, "CANCELLED"),
            (purged, "CANCELLED"),
        ]


@story
async def test_what_a_caller_does_not_record_is_handed_on_alone() -> None:
    async with world(endpoint(workers_min=1), traced=True) as (w, tasks):
        agent = await w.working_agent(tasks)
        await submit(w, replace(PARENT, sampled=False))
        assign = await agent.assigned()
        assert (assign.traceparent[3:35], assign.traceparent[-2:]) == (PARENT.trace, "00")
        await agent.completes(assign)
        await submit(w, None)
        assert (await agent.assigned()).traceparent == ""
        assert w.spans == []


@story
async def test_without_an_export_the_handler_gets_its_callers_parent() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await submit(w)
        assert (await agent.assigned()).traceparent == str(PARENT)
