"""Details of one job through the plane: its input, for whom it is, and its attempts."""

from __future__ import annotations

import json

import pytest

from stoker.control.errors import CasesClosed, NotFound
from stoker.control.rules.access import ALL, Access, Caller
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import JobView
from tests.control.plane_world import World, endpoint, story, world

INPUT = {"image": "https://user:pass@pictures.example/a.png?signature=secret#x", "n": 2**70}
BARE = {"image": "https://pictures.example/a.png", "n": 2**70}
OWN, OTHER = Caller("default", "k1", Access("read")), Caller("default", "k2", Access("read"))


async def submitted(w: World, caller: Caller) -> JobView:
    submission = Submission(json.dumps(INPUT).encode())
    return await w.plane.commands.submit(w.echo, submission, sync=False, caller=caller)


async def seen(w: World, job: str, caller: Caller) -> object:
    return json.loads(await w.plane.details.input(w.echo, job, caller))


@story
async def test_an_input_is_for_the_key_that_submitted_it() -> None:
    async with world(endpoint()) as (w, _):
        job = (await submitted(w, OWN)).id
        assert await seen(w, job, OWN) == INPUT
        with pytest.raises(CasesClosed, match="may not read the input of a job that another key submitted"):
            await seen(w, job, OTHER)
        with pytest.raises(NotFound):
            await seen(w, "none", OWN)


@story
async def test_a_key_that_reads_cases_sees_inputs_without_what_may_be_a_signature() -> None:
    reads = Caller("default", "k3", Access("restricted", "none", {"echo": "read"}, cases=True))
    async with world(endpoint()) as (w, _):
        job = (await submitted(w, OWN)).id
        assert await seen(w, job, reads) == BARE
        assert await seen(w, job, Caller("default", "k4", ALL)) == BARE


@story
async def test_a_job_of_no_known_key_is_nobodys_own() -> None:
    """As those that a release stored which did not note the key."""
    nobody = Caller("default", "", Access("read"))
    async with world(endpoint()) as (w, _):
        job = (await submitted(w, nobody)).id
        with pytest.raises(CasesClosed):
            await seen(w, job, nobody)


@story
async def test_an_attempt_that_only_lies_ahead_of_a_worker_is_none_yet() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = await w.working_agent(tasks)
        await agent.listen(0.1)
        job = (await submitted(w, OWN)).id
        assign = await agent.assigned()
        (attempt,) = (await w.plane.details.attempts(w.echo, job)).attempts
        assert (attempt.attempt, attempt.worker, attempt.node) == (1, assign.worker, agent.node)
        assert (attempt.ended_at, attempt.cause) == (None, "")
        w.plane.cluster.lies_ahead = lambda key: key.job == job  # type: ignore[method-assign]
        assert (await w.plane.details.attempts(w.echo, job)).attempts == ()
        with pytest.raises(NotFound):
            await w.plane.details.attempts(w.echo, "none")
