"""A plane with nodes that say what a test says, for stories of pods over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.wire.messages import Device, PodSpec
from tests.control.http.management.managed import Managed, managed
from tests.control.plane_world import endpoint
from tests.control.scripted_agent import ScriptedAgent
from tests.simulation.virtual_loop import VirtualLoop
from tests.simulation.virtual_loop import run as run_story

IMAGE = "ghcr.io/example/notebook:1.2"
GPUS = tuple(Device(f"GPU-{n}", "gpu", "NVIDIA GeForce RTX 4090", n, memory_total=24 << 30) for n in range(2))
CPU = Device("CPU-0", "cpu", "a processor")
FACTS = {"containers": "docker 28.0.1", "containers_cdi": "yes", "vcpus": "16", "data_center": "EU-RO-1"}


@asynccontextmanager
async def joined(
    *nodes: str,
    facts: dict[str, str] = FACTS,
    devices: tuple[Device, ...] = (*GPUS, CPU),
    settings: PlaneSettings | None = None,
) -> AsyncIterator[tuple[Managed, list[ScriptedAgent], asyncio.TaskGroup]]:
    """A plane at work, and these nodes connected."""
    async with managed(endpoint(workers_max=0), settings=settings) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agents = [api.world.agent(node=node) for node in nodes]
        for agent in agents:
            await agent.connect(tasks, devices=devices, facts=facts)
            await agent.listen(0.1)
        yield api, agents, tasks
        for agent in agents:
            agent.stream.end("the test is over")


async def sent_spec(agent: ScriptedAgent, pod: str) -> PodSpec:
    """What the node was told of it last."""
    await agent.listen(0.1)
    return agent.pods[pod]


def as_requested(spec: PodSpec) -> PodSpec:
    """Without what its environment says of its place, and without its own key."""
    env = {name: value for name, value in spec.env.items() if not name.startswith("RUNPOD_")}
    key = spec.env.get("RUNPOD_API_KEY")
    return replace(spec, env=env, hidden=tuple(one for one in spec.hidden if one != key))


async def get_pod(api: Managed, pod: str, **query: Any) -> dict[str, Any]:
    answer = await api.http.get(f"/pods/{pod}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def does(api: Managed, pod: str, action: str) -> dict[str, Any]:
    answer = await api.http.post(f"/pods/{pod}/{action}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refused(api: Managed, path: str, status: int = 400, method: str = "POST", **body: Any) -> str:
    answer = await api.http.request(method, path, json=body or None)
    assert answer.status_code == status, answer.text
    error: str = answer.json()["error"]
    return error


def state(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["desiredStatus"], pod["status"]


def once(test):  # type: ignore[no-untyped-def]
    """On virtual time, in one order of events: for what does not hang on it."""

    def wrapped() -> None:
        run_story(VirtualLoop(1), test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped
