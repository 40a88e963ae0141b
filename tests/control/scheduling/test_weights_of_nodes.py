"""Endpoints with weights, and nodes that hold some: where workers go, and what waiting jobs say."""

from __future__ import annotations

import asyncio

from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import (
    Beat,
    Device,
    FromAgent,
    HeldWorker,
    LockedWeights,
    WeightsFile,
    WorkerState,
)
from stoker.wire.messages.weights import HELD, MOST, ROOM
from tests.control.plane_world import World, endpoint, one, story, world

FLUX = LockedWeights(
    "flux", "huggingface:owner/flux", "c0ffee", (WeightsFile("model.safetensors", 24_000_000_000, "ab" * 32),)
)
GPU = (Device("GPU-0", "gpu", "NVIDIA H200"),)
EMPTY = {HELD: "", ROOM: "100000000000", MOST: "100000000000"}
HOLDS = {**EMPTY, HELD: FLUX.key}
FETCHES = "node a fetches the weights flux: 3.2 of 24.0 GB"


def with_flux(workers: int = 1) -> Endpoint:
    run = EndpointVersion("/h/echo.py:handler", weights=(FLUX,))
    return endpoint(run=run, workers_min=workers, workers_max=max(workers, 1))


async def reason(w: World) -> str:
    job = await w.plane.commands.submit(w.echo, one(), sync=False)
    await asyncio.sleep(1)
    return (await w.plane.queries.status(w.echo, job.id)).reason or ""


@story
async def test_the_worker_goes_to_the_node_that_holds_its_weights_and_carries_their_files() -> None:
    async with world(with_flux()) as (w, tasks):
        empty, holding = w.agent(node="a"), w.agent(node="b")
        await holding.connect(tasks, devices=GPU, facts=HOLDS)
        await empty.connect(tasks, devices=GPU, facts=EMPTY)
        await empty.listen(3)
        await holding.listen(3)
        assert not empty.specs
        (spec,) = holding.specs.values()
        assert spec.weights == (FLUX,)


@story
async def test_what_a_beat_reports_counts_from_then_on_and_is_shown() -> None:
    async with world(with_flux(0)) as (w, tasks):
        small = w.agent(node="a")
        await small.connect(tasks, devices=GPU, facts={**EMPTY, MOST: "1000"})
        assert (await reason(w)).startswith("no capacity: every connected node can keep 1.0 kB of weights")
        await small.stream.send(FromAgent(beat=Beat(1, facts={MOST: "24000000000"})))
        await small.listen(3)
        assert len(small.specs) == 1
        (known,) = await w.plane.management.nodes.list("default")
        assert known.record.facts[MOST] == "24000000000"
        assert known.record.facts[ROOM] == EMPTY[ROOM]


@story
async def test_more_facts_than_a_node_may_have_are_not_believed() -> None:
    async with world() as (w, tasks):
        agent = w.agent(node="a")
        await agent.connect(tasks, facts={"one": "1"})
        await agent.stream.send(FromAgent(beat=Beat(1, facts={f"f{n}": "" for n in range(256)})))
        await agent.listen(1)
        assert w.plane.cluster.nodes["a"].facts == {"one": "1"}


@story
async def test_jobs_and_health_say_what_the_worker_waits_for() -> None:
    async with world(with_flux()) as (w, tasks):
        agent = w.agent(node="a")
        await agent.connect(tasks, devices=GPU, facts=EMPTY)
        await agent.listen(3)
        (spec,) = agent.specs.values()
        await agent.report(WorkerState(spec.worker, "echo", 1, "starting", waits_for=FETCHES))
        assert await reason(w) == FETCHES
        health = await w.plane.queries.health(w.echo)
        assert (health.reason, health.initializing) == (FETCHES, 1)
        await agent.listen(5)
        await agent.report(WorkerState(spec.worker, "echo", 1, "ready"))
        await agent.listen(1)
        assert (await w.plane.queries.health(w.echo)).reason == ""
        assert w.plane.cluster.throughputs["echo"].start_s is None, "the next start fetches nothing"


@story
async def test_a_fetch_that_fails_is_the_reason_of_the_jobs() -> None:
    async with world(with_flux()) as (w, tasks):
        agent = w.agent(node="a")
        await agent.connect(tasks, devices=GPU, facts=EMPTY)
        await agent.listen(3)
        (spec,) = agent.specs.values()
        why = "node a cannot fetch the weights flux: the hub answered 404"
        await agent.report(WorkerState(spec.worker, "echo", 1, "unhealthy", why, waits_for=why))
        assert await reason(w) == why
        assert (await w.plane.queries.health(w.echo)).reason == why


@story
async def test_a_node_that_comes_back_still_says_what_its_worker_waits_for() -> None:
    async with world(with_flux()) as (w, tasks):
        agent = w.agent(node="a")
        held = HeldWorker("w1", "echo", 1, "starting", ("GPU-0",), waits_for=FETCHES)
        await w.gave("a", held)
        await agent.connect(tasks, devices=GPU, facts=EMPTY, workers=[held])
        await agent.listen(2)
        assert agent.specs["w1"].weights == (FLUX,)
        assert await reason(w) == FETCHES
