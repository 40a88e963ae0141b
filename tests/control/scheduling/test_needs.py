"""Endpoints with needs, on a plane with nodes that differ: where workers go, and what jobs that wait say."""

from __future__ import annotations

import asyncio

from stoker.cli.control.endpoints import declared_endpoints
from stoker.control.config.sections import Config
from stoker.control.rules.needs import Needs
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.scheduling.placed import PlacedPod
from stoker.wire.messages import Device, HeldWorker, WorkerState
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import ScriptedAgent

H200S = tuple(Device(f"GPU-{n}", "gpu", "NVIDIA H200", n, memory_total=141 << 30) for n in range(2))
L4 = (Device("GPU-9", "gpu", "NVIDIA L4", 0, memory_total=24 << 30),)
SHARES = {"gpu_sharing": "yes"}


def needing(name: str = "echo", *, workers: int = 1, **needs: object) -> Endpoint:
    run = EndpointVersion("/h/echo.py:handler", needs=Needs(**needs))  # type: ignore[arg-type]
    return endpoint(name, run=run, workers_min=workers, workers_max=max(workers, 1))


async def devices_of(agent: ScriptedAgent, seconds: float = 3.0) -> list[tuple[str, ...]]:
    """Of the workers that are wanted there, after a while; they become ready."""
    await agent.listen(seconds)
    for spec in agent.specs.values():
        await agent.report(WorkerState(spec.worker, spec.endpoint, spec.version, "ready"))
    return sorted(spec.devices for spec in agent.specs.values())


async def why(w: World, name: str = "echo") -> str:
    job = await w.plane.commands.submit(w.plane.endpoints.find("default", name), one(), sync=False)
    await asyncio.sleep(3)
    return (await w.plane.queries.status(w.plane.endpoints.find("default", name), job.id)).reason or ""


@story
async def test_the_second_type_is_taken_while_the_first_is_full() -> None:
    wanted = needing(workers=3, gpu_types=("NVIDIA H200", "NVIDIA L4"))
    async with world(wanted) as (w, tasks):
        large, small = w.agent(node="large"), w.agent(node="small")
        await small.connect(tasks, devices=L4)
        await large.connect(tasks, devices=H200S)
        await large.listen(3)
        assert await devices_of(small) == [("GPU-9",)]
        assert await devices_of(large) == [("GPU-0",), ("GPU-1",)]


@story
async def test_a_hosted_pipeline_that_does_not_fit_a_node_goes_to_the_larger_one() -> None:
    """FLUX.1-dev in bfloat16; with the profile low-memory the small node has room for it, too."""
    small_gpu = (Device("GPU-8", "gpu", "NVIDIA GeForce RTX 3060", 0, memory_total=12 << 30),)
    for profile, nodes in (("", {"large"}), ("low-memory", {"small", "large"})):
        flux = {"STOKER_PIPELINE": "flux-1-dev", "STOKER_PROFILE": profile}
        hosted = declared_endpoints(Config(), ("text-to-image",), flux)[0]
        run = EndpointVersion("/h/echo.py:handler", needs=hosted.run.needs)
        async with world(endpoint(run=run, workers_min=3, workers_max=3)) as (w, tasks):
            agents = {name: w.agent(node=name) for name in ("small", "large")}
            await agents["small"].connect(tasks, devices=small_gpu)
            await asyncio.sleep(1)
            if not profile:
                assert "33.53 GiB of memory: node small has NVIDIA GeForce RTX 3060 (12 GiB)" in await why(w)
            await agents["large"].connect(tasks, devices=H200S)
            assert {name for name, agent in agents.items() if await devices_of(agent)} == nodes


@story
async def test_one_worker_gets_two_gpus_of_one_node_and_holds_both() -> None:
    async with world(needing(workers=2, gpu_count=2), needing("one", workers=0)) as (w, tasks):
        agent, other = w.agent(node="a"), w.agent(node="b")
        await agent.connect(tasks, devices=H200S)
        await other.connect(tasks, devices=L4)
        assert await devices_of(agent) == [("GPU-0", "GPU-1")]
        (spec,) = agent.specs.values()
        assert spec.endpoint == "echo"
        await devices_of(other)
        waits = await why(w)
        assert waits == "" or "no node has 2 free GPUs" in waits
        assert (await w.plane.queries.health(w.echo)).reason == (
            "throttled: no node has 2 free GPUs: node a has none free; node b has 1 in all"
        )


@story
async def test_small_workers_share_a_gpu_as_far_as_their_shares_go() -> None:
    async with world(needing(workers=3, share=0.4), needing("whole", workers=0)) as (w, tasks):
        agent = w.agent(node="a")
        await agent.connect(tasks, devices=H200S, facts=SHARES)
        assert await devices_of(agent) == [("GPU-0",), ("GPU-0",), ("GPU-1",)]
        assert {spec.share for spec in agent.specs.values()} == {0.4}
        assert await why(w, "whole") == "throttled: no node has a free device: node a has none free"


@story
async def test_what_a_node_held_before_control_came_counts_by_its_share() -> None:
    async with world(needing(workers=3, share=0.4)) as (w, tasks):
        agent = w.agent(node="a")
        held = [HeldWorker(f"w{n}", "echo", 1, "ready", ("GPU-0",)) for n in range(2)]
        await w.gave("a", *held)
        await agent.connect(tasks, devices=H200S, facts=SHARES, workers=held)
        assert await devices_of(agent, 8) == [("GPU-0",), ("GPU-0",), ("GPU-1",)]
        assert {"w0", "w1"} < agent.specs.keys()


@story
async def test_a_pods_gpu_is_not_given_to_a_worker() -> None:
    async with world(needing(workers=2)) as (w, tasks):
        agent = w.agent(node="a")
        w.plane.cluster.pods["p"] = PlacedPod("p", "a", ("GPU-0",))
        await agent.connect(tasks, devices=H200S)
        assert await devices_of(agent) == [("GPU-1",)]
        del w.plane.cluster.pods["p"]
        w.plane.scaling.wake.set()
        assert await devices_of(agent) == [("GPU-0",), ("GPU-1",)]


@story
async def test_a_job_says_what_no_node_has() -> None:
    cases = {
        "b200": needing("b200", workers=0, gpu_types=("NVIDIA B200",)),
        "cuda": needing("cuda", workers=0, min_cuda="12.9"),
        "there": needing("there", workers=0, data_centers=("EU-RO-1",)),
        "gold": needing("gold", workers=0, labels={"tier": "gold"}),
        "cpu": needing("cpu", workers=0, compute="CPU"),
        "shared": needing("shared", workers=0, share=0.5),
        "large": needing("large", workers=0, gpu_memory_bytes=80 << 30),
    }
    async with world(*cases.values()) as (w, tasks):
        await w.agent(node="a").connect(tasks, devices=L4, facts={"cuda": "12.8", "data_center": "US-1"})
        reasons = {name: (await why(w, name)).partition(": node a ")[::2] for name in cases}
        assert reasons == {
            "b200": ("no capacity: no node has a free GPU of NVIDIA B200", "has NVIDIA L4 (24 GiB)"),
            "cuda": ("no capacity: no node has a free GPU with CUDA 12.9 or later", "has CUDA 12.8"),
            "there": ("no capacity: no node has a free device in EU-RO-1", "is in data center US-1"),
            "gold": ("no capacity: no node has a free device labelled tier=gold", "has no label tier"),
            "cpu": ("no capacity: no node has a free CPU", "has NVIDIA L4 (24 GiB)"),
            "shared": (
                "no capacity: no node has 50% of a GPU free",
                "shares no GPU: it does not tell what each process holds",
            ),
            "large": (
                "no capacity: no node has a free GPU with 80 GiB of memory",
                "has NVIDIA L4 (24 GiB)",
            ),
        }
