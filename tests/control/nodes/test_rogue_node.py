"""A rogue node says every message about things of another: nothing changes, and nobody waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from stoker.control import store
from stoker.control.nodes.grpc_stream import serve
from stoker.control.rules.job_states import JobState
from stoker.control.rules.pods import Pod, PodBody
from stoker.control.rules.types import EndpointVersion
from stoker.control.rules.volumes import Volume
from stoker.control.store.resources.keys import create_join_token
from stoker.testing.memory_stream import memory_logs
from stoker.wire.messages import (
    Artifact,
    Assign,
    AttemptKey,
    Device,
    FromAgent,
    LogLines,
    Outcome,
    Ref,
    Report,
    Span,
    StreamHello,
    WorkerState,
)
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent
from tests.rogue_node import LIES, OWN, Others, RogueNode, fields_that_name

GPU = Device("GPU-0", "gpu", "NVIDIA H200")
TWO = EndpointVersion("/h/echo.py:handler", concurrency=2)
PATIENCE_S = 60.0
TABLES = (
    "jobs",
    "results",
    "progress",
    "chunks",
    "saves",
    "artifacts",
    "leftovers",
    "usage",
    "bills",
    "volumes",
    "pods",
)
"""What no lie may change. Their rows are compared whole."""


def test_every_field_that_names_a_thing_is_lied_about() -> None:
    assert set(LIES) == set(fields_that_name(FromAgent, LogLines)) - OWN


class Logged(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def of_lies(self) -> list[str]:
        return [line for line in self.lines if "refused" in line]

    async def of_a_lie(self) -> None:
        """Returns once one is told of: what is printed goes another way than what control answers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not self.of_lies():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@dataclass
class Scene:
    """An honest node that runs a job and has room for another, and a port for strangers."""

    w: World
    honest: ScriptedAgent
    victim: Assign
    others: Others
    target: str
    token: str

    async def state(self) -> Any:
        cluster = self.w.plane.cluster
        own = [w for w in cluster.workers.values() if w.node == "honest"]
        workers = [(w.worker, w.endpoint, w.state, w.concurrency, w.reason, set(w.busy)) for w in own]

        def read(conn: store.Conn) -> list[list[str]]:
            return [sorted(map(repr, conn.run(f"SELECT * FROM {one}", {}).fetchall())) for one in TABLES]

        return workers, cluster.unhealthy(), dict(self.w.artifacts.blobs), await self.w.commits.read(read)

    async def serves(self) -> None:
        """Somebody else's job passes; a neighbour that was lied about would wait for ever."""
        async with asyncio.timeout(PATIENCE_S):
            job = await self.w.plane.commands.submit(self.w.echo, one(), sync=False)
            assign = await self.honest.assigned()
            assert (assign.job, assign.worker) == (job.id, self.victim.worker)
            await self.honest.completes(assign)
            assert (await self.w.plane.queries.wait(self.w.echo, job.id, 30)).state is JobState.COMPLETED


async def _opened(w: World, tasks: asyncio.TaskGroup, target: str) -> Scene:
    pod = Pod("pod-1", "default", "p", PodBody("image"), node="honest", created_at=w.now())
    volume = Volume("volume-1", "default", "v", "HERE-1", 10, w.now())
    await w.commits.commit(lambda conn: (store.add_pod(conn, pod), store.add_volume(conn, volume)))
    await w.plane.management.volumes.load()
    honest = w.agent(node="honest")
    welcome = (await honest.connect(tasks, devices=(GPU,), facts={"volumes": "yes: /v"})).welcome
    assert welcome is not None
    (worker,) = await honest.ready_workers()
    logs, theirs = memory_logs()
    tasks.create_task(w.plane.live_logs.serve(theirs, "honest", honest.token))
    await logs.send(LogLines(StreamHello("honest", welcome.session)))
    while not w.plane.live_logs.has_stream("honest"):  # noqa: ASYNC110  # who reads before gets no lines
        await asyncio.sleep(0.01)
    await w.plane.commands.submit(w.echo, one(), sync=False)
    victim = await honest.assigned()
    assert victim.grant is not None
    key = AttemptKey(victim.job, victim.attempt)
    w.artifacts.blobs["stoker", f"{victim.grant.prefix}0-a.png"] = b"theirs"
    w.artifacts.blobs["stoker", f"{victim.grant.prefix}output.json"] = b"theirs"
    now_ms = int(w.now() * 1000)
    others = Others(
        "honest",
        welcome.session,
        worker,
        "echo",
        1,
        GPU.uuid,
        key,
        victim.grant.prefix,
        pod.id,
        volume.id,
        now_ms,
    )
    _, token = await w.commits.commit(lambda conn: create_join_token(conn, name="rogue", now=0.0))
    return Scene(w, honest, victim, others, target, token)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with world(endpoint(run=TWO, workers_min=1)) as (w, tasks):
        server = await serve(
            "127.0.0.1", 0, w.plane.nodes.admit, w.plane.nodes.serve, None, w.plane.live_logs.serve
        )
        try:
            yield await _opened(w, tasks, f"127.0.0.1:{server.port}")
        finally:
            await server.stop(0)


async def _reads_along(s: Scene, seen: list[str]) -> None:
    job = s.others.attempt.job
    async for event in s.w.plane.queries.follow_logs(s.w.echo, job, None):
        seen.append(event.line)  # noqa: PERF401  # while it goes on


async def test_no_lie_is_believed_each_is_reported_once_and_the_neighbour_is_served() -> None:
    reported, printed = Logged(), list[str]()
    logging.getLogger("stoker.control").addHandler(reported)
    try:
        async with scene() as s:
            reading = asyncio.create_task(_reads_along(s, printed))
            async with asyncio.timeout(PATIENCE_S):
                while s.others.attempt not in s.w.plane.live_logs._rings:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            wrong = [name for name in LIES if not await _is_refused(s, name, reported)]
            reading.cancel()
            await asyncio.wait((reading,))
    finally:
        logging.getLogger("stoker.control").removeHandler(reported)
    assert wrong == []
    assert printed == []


async def _is_refused(s: Scene, name: tuple[type[Any], str], reported: Logged) -> bool:
    """Said three times: the others' things are as they were, and there is one line about it."""
    await s.honest.beat()  # however slow this machine is: the honest one is never silent
    rogue = RogueNode(s.target, s.token)
    await rogue.join()
    s.token = rogue.token
    before = await s.state()
    reported.lines.clear()
    await rogue.say(LIES[name](s.others))
    await reported.of_a_lie()
    same = await s.state() == before
    await rogue.leave()
    await s.serves()
    lines = reported.of_lies()
    if not same or len(lines) != 1 or rogue.assigned:
        print(name, "the same:", same, "told:", lines, "jobs:", rogue.assigned)
        return False
    return True


# ---- about an attempt of its own


async def _attempt(w: World, tasks: asyncio.TaskGroup) -> tuple[ScriptedAgent, Assign]:
    agent = await w.working_agent(tasks)
    await w.plane.commands.submit(w.echo, one(), sync=False)
    return agent, await agent.assigned()


def outcome(assign: Assign, **fields: Any) -> Outcome:
    return Outcome(assign.job, assign.attempt, assign.worker, fields.pop("end", "completed"), **fields)


@story
async def test_keys_of_others_are_neither_signed_nor_deleted() -> None:
    theirs = Artifact("other/job/1/0-secret.png", 1, "ab", "image/png")
    for lie in ({"artifacts": (theirs,)}, {"output_ref": Ref(theirs.key, 1, "ab")}):
        for end in ("completed", "failed", "cancelled"):
            async with world(endpoint(workers_min=1)) as (w, tasks):
                w.artifacts.blobs["stoker", theirs.key] = b"secret"
                agent, assign = await _attempt(w, tasks)
                await agent.report(outcome(assign, end=end, **lie))
                again = await agent.assigned()
                assert (again.job, again.attempt) == (assign.job, 2), "the job is given out again"
                await agent.report(outcome(assign, end=end, **lie))  # and once more, when it is over
                await agent.completes(again)
                await w.plane.queries.wait(w.echo, assign.job, 30)
                await asyncio.sleep(30)
                assert w.artifacts.blobs["stoker", theirs.key] == b"secret"
                names = await w.commits.read(lambda conn: store.due_orphans(conn, 1e12, 99))
                assert all(name.startswith("echo/") for name in names)


@story
async def test_an_output_that_is_no_json_fails_its_job_and_no_caller_gets_it() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent, assign = await _attempt(w, tasks)
        await agent.report(outcome(assign, output=b'{"cut":'))
        view = await w.plane.queries.wait(w.echo, assign.job, 30)
        assert (view.state, view.output) == (JobState.FAILED, None)
        assert str(view.error).startswith("the output is not JSON")


@story
async def test_a_number_that_no_column_holds_gives_the_job_out_again_and_holds_up_no_other_report() -> None:
    async with world(endpoint(workers_min=1, run=TWO)) as (w, tasks):
        agent, assign = await _attempt(w, tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        other = await agent.assigned()
        spans = (Span("execution", "device_ms", 2**64 - 1, 0),)
        await agent.report(outcome(assign, spans=spans), outcome(other, output=b"1"))
        assert (await w.plane.queries.wait(w.echo, other.job, 30)).state is JobState.COMPLETED
        again = await agent.assigned()
        assert (again.job, again.attempt) == (assign.job, 2)


@story
async def test_a_worker_of_a_thousand_slots_gets_what_its_endpoint_allows() -> None:
    async with world(endpoint(workers_min=1, run=TWO)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (worker,) = await agent.ready_workers()
        await agent.report(WorkerState(worker, "echo", 1, "ready", slots=1000))
        for n in range(5):
            await w.plane.commands.submit(w.echo, one(n), sync=False)
        await agent.listen(5)
        assert len(agent.assigns) == 2


@story
async def test_a_session_of_one_node_is_not_that_of_another() -> None:
    """Both have session 1: what one says of the other's worker counts for nothing."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        honest, rogue = w.agent(node="honest"), w.agent(node="rogue")
        await honest.connect(tasks)
        (worker,) = await honest.ready_workers()
        await rogue.connect(tasks)
        for state in ("unhealthy", "stopping", "gone"):
            await rogue.report(WorkerState(worker, "echo", 1, state, "crash loop: forged"))
        await asyncio.sleep(1)
        assert w.plane.cluster.workers[worker].state == "ready"
        job = await w.plane.commands.submit(w.echo, one(), sync=False)
        assert (await honest.assigned()).job == job.id
        assert rogue.assigns == []


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (2**64 - 1, 1)])
async def test_report_numbers_are_the_nodes_own_business(numbers: tuple[int, int]) -> None:
    async with scene() as s:
        rogue = RogueNode(s.target, s.token)
        await rogue.join()
        for number in numbers:
            state = WorkerState(s.others.worker, "echo", 1, "gone")
            await rogue.stream.send(FromAgent(reports=(Report(number, state),)))
        await rogue.settle()
        await rogue.leave()
        await s.serves()
