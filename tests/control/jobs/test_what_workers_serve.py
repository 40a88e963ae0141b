"""What workers say that they run, as `/health` tells it."""

from __future__ import annotations

import asyncio

from stoker.control.jobs.records import health
from stoker.wire.messages import HeldWorker, WorkerState
from tests.control.plane_world import World, endpoint, story, world


async def served(w: World) -> object:
    await asyncio.sleep(0.1)  # of the story's own time: what was reported has arrived
    return health(await w.plane.queries.health(w.echo)).get("serves")


@story
async def test_those_that_are_ready_are_reported_and_each_message_once() -> None:
    async with world(endpoint(workers_min=3, workers_max=3)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        first, second, _ = await agent.ready_workers(3)
        await agent.leaves()
        held = [HeldWorker(name, "echo", 1, "ready", ("CPU-0",), 1, "flux-tiny") for name in (first, second)]
        await agent.connect(tasks, workers=held)
        assert await served(w) == ["flux-tiny"], "Hello tells it: control may have forgotten"
        await agent.report(WorkerState(first, "echo", 1, "ready", serves="flux-1-dev"))
        assert await served(w) == ["flux-1-dev", "flux-tiny"]
        await agent.report(WorkerState(second, "echo", 1, "starting", "it died"))
        assert await served(w) == ["flux-1-dev"]
        await agent.report(WorkerState(first, "echo", 1, "ready"))
        assert await served(w) is None
