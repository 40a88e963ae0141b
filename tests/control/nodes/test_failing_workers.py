"""A plane and real agents, whose workers are fakes: what becomes of jobs while these do not come up."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

from stoker.agent.host.storage.source_folders import SourceFolders
from stoker.agent.node import Agent, AgentParts, AgentSettings
from stoker.control.rules.job_states import JobState
from stoker.testing.fake_host import FakeSampler, MemoryScratch
from stoker.testing.fake_objects import FakeObjects
from stoker.testing.fake_spawner import FakeSpawner, Start
from stoker.testing.memory_disk import MemoryDisk
from stoker.testing.memory_stream import memory_pair
from stoker.wire.streams import AgentStream
from tests.control.plane_world import World, endpoint, one, story, world


def agent_of(w: World, tasks: asyncio.TaskGroup, spawner: FakeSpawner, node: str = "node-1") -> Agent:
    async def connect() -> AgentStream:
        ours, theirs = memory_pair()
        tasks.create_task(w.plane.nodes.serve(theirs, "test", w.brought_by(node)))
        return ours

    return Agent(
        AgentSettings(node, "host"),
        AgentParts(
            sources=SourceFolders(Path("/nowhere")),
            connect=connect,
            spawner=spawner,
            objects=FakeObjects(),
            sampler=FakeSampler(),
            scratch=MemoryScratch(),
            outbox_disk=MemoryDisk(),
            rng=Random(3),
            keep_credential=partial(w.keep, node=node),
        ),
    )


async def until_reason(w: World, job: str, text: str) -> None:
    """Virtual time costs nothing: it is polled."""
    while (await w.plane.queries.status(w.echo, job)).reason != text:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@story
async def test_a_job_whose_worker_is_never_ready_says_so_and_runs_once_that_is_repaired() -> None:
    stuck = endpoint(run=replace(endpoint().run, start_timeout_s=10.0))
    async with world(stuck) as (w, tasks):
        spawner = FakeSpawner({"echo": Start(ready_s=None)})
        agent = agent_of(w, tasks, spawner)
        running = tasks.create_task(agent.run())
        job = (await w.plane.commands.submit(w.echo, one(), sync=False)).id
        async with asyncio.timeout(100):
            await until_reason(w, job, "starting")
            await until_reason(w, job, "crash loop: the worker was not ready within 10 s")
        spawner.starts["echo"] = Start()
        async with asyncio.timeout(100):
            while (view := await w.plane.queries.status(w.echo, job)).state != JobState.COMPLETED:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert view.retries == 0, "no attempt was made while there was no worker"
        agent.stop()
        await running


@story
async def test_a_job_whose_worker_is_unfit_says_which_check_failed() -> None:
    async with world() as (w, tasks):
        why = "fitness check licence: OSError: no licence\nTraceback"
        spawner = FakeSpawner({"echo": Start(setup_error=why)})
        agent = agent_of(w, tasks, spawner)
        running = tasks.create_task(agent.run())
        job = (await w.plane.commands.submit(w.echo, one(), sync=False)).id
        async with asyncio.timeout(100):
            await until_reason(w, job, "crash loop: fitness check licence: OSError: no licence")
        agent.stop()
        await running


async def until_ended(w: World, job: str) -> None:
    while (await w.plane.queries.status(w.echo, job)).state != JobState.COMPLETED:  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@story
async def test_a_worker_that_does_not_start_goes_to_another_node() -> None:
    """Equal nodes are taken by name: the bad one comes first, and again whenever it is not avoided."""
    async with world(endpoint(workers_max=1, idle_timeout_s=1.0)) as (w, tasks):
        bad, good = FakeSpawner({"echo": Start(exit=1)}), FakeSpawner()
        agents = [agent_of(w, tasks, bad, "node-1"), agent_of(w, tasks, good, "node-2")]
        running = [tasks.create_task(agent.run()) for agent in agents]
        async with asyncio.timeout(20):
            while len(w.plane.cluster.nodes) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await until_ended(w, (await w.plane.commands.submit(w.echo, one(), sync=False)).id)
        assert len(bad.spawned) == 2
        [avoided] = w.plane.scaling.places.avoidance.now_avoided(w.now())
        assert avoided.node == "node-1"
        for _ in range(4):  # the next ones go straight to the good one, though the idle worker has gone
            await asyncio.sleep(5.0)
            async with asyncio.timeout(5):
                await until_ended(w, (await w.plane.commands.submit(w.echo, one(), sync=False)).id)
        assert len(bad.spawned) == 2
        for agent, task in zip(agents, running, strict=True):
            agent.stop()
            await task


@story
async def test_where_no_other_node_could_ever_take_it_the_bad_one_is_tried_again() -> None:
    async with world(endpoint(workers_max=1)) as (w, tasks):
        spawner = FakeSpawner({"echo": Start(exit=1)})
        agent = agent_of(w, tasks, spawner)
        running = tasks.create_task(agent.run())
        job = (await w.plane.commands.submit(w.echo, one(), sync=False)).id
        async with asyncio.timeout(60):
            while len(spawner.spawned) < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        spawner.starts["echo"] = Start()
        async with asyncio.timeout(100):
            await until_ended(w, job)
        assert w.plane.scaling.places.avoidance.now_avoided(w.now()) == []
        agent.stop()
        await running
