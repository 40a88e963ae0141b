"""Jobs flow while an agent is killed, control is killed, and the network is cut: a few hundred seeds.

What holds in each: every accepted job ends, in one terminal state that never changes; a completed job has the
output of one attempt; and once all is calm, no agent holds an attempt or an undelivered report.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from virtual_loop import VirtualLoop, run
from world import World

from stoker.control.types import JobState, JobView

SEEDS = 200
JOBS = 12


def script(rng: Random, number: int) -> dict[str, Any]:
    """What job `number` does: mostly it takes a moment and returns, sometimes it dies or fails."""
    run_s = rng.choice([0.01, 0.2, 1.0, 4.0])
    kind = rng.random()
    if kind < 0.08:
        return {"run_s": run_s, "error": f"job {number} cannot"}
    if kind < 0.16:
        return {"run_s": run_s, "exit": -11}
    return {"run_s": run_s, "chunks": [number], "progress": [0.5], "output": {"n": number}}


async def faults(world: World, rng: Random) -> None:
    """Four things that break and are mended, at moments drawn from the seed; a host may be lost for good."""
    for _ in range(4):
        await asyncio.sleep(rng.uniform(0.05, 4.0))
        host = rng.choice(world.hosts)
        match rng.randrange(5):
            case 0:
                world.kill_agent(host)
                await asyncio.sleep(rng.uniform(0.2, 8.0))
                world.start_agent(host)
            case 1:
                world.kill_control()
                await asyncio.sleep(rng.uniform(0.1, 20.0))
                await world.start_control()
            case 2:
                world.network.drop(host.node)
            case 3:
                silence = rng.choice([3.0, 30.0, 100.0])
                world.network.silent_until[host.node] = world.loop.time() + silence
            case _:
                world.kill_at_commit = 0.05
                await asyncio.sleep(3.0)
                world.kill_at_commit = 0.0
                if world.plane is None:
                    await world.start_control()
    if world.plane is None:
        await world.start_control()
    if rng.random() < 0.3:
        world.kill_agent(rng.choice(world.hosts))  # this host is gone for good


async def calm(world: World) -> None:
    """Every agent is connected, holds no attempt, and has delivered every report."""
    for host in world.hosts:
        assert host.agent is not None
        assert host.process is not None
        if host.process.dead:
            continue
        async with asyncio.timeout(200):
            while host.agent.attempts.held() or not host.agent.reports.empty:  # noqa: ASYNC110
                await asyncio.sleep(1.0)  # virtual time; asked from outside


def check(view: JobView, given: dict[str, Any]) -> None:
    if "error" in given:
        assert view.state is JobState.FAILED
    elif "exit" in given:
        assert view.state is JobState.FAILED
        assert view.error is not None
    elif view.state is JobState.FAILED:
        assert view.attempt >= 3, view  # its workers were taken from it three times
        assert "gave up" in (view.error or ""), view
    else:
        assert view.state is JobState.COMPLETED, view
        assert json.loads(view.output or b"null") == given["output"]


async def story(world: World, rng: Random) -> None:
    await world.start_control()
    for host in world.hosts:
        world.start_agent(host)
    breaking = asyncio.ensure_future(faults(world, rng))
    accepted: dict[str, dict[str, Any]] = {}
    for number in range(JOBS):
        given = script(rng, number)
        job = await world.submit(given)
        if job is not None:
            accepted[job] = given
        await asyncio.sleep(rng.uniform(0.0, 1.0))
    await breaking
    async with asyncio.timeout(600):
        for job, given in accepted.items():
            check(await world.end_of(job), given)
    await calm(world)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_accepted_job_ends_once(seed: int) -> None:
    loop = VirtualLoop(seed)
    world = World(seed, loop)
    try:
        run(loop, story(world, Random(seed)))
    finally:
        world.store.close()


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(2, 12))
def test_every_accepted_job_ends_once_over_many_seeds(hundred: int) -> None:
    for seed in range(hundred * 100, hundred * 100 + 100):
        test_every_accepted_job_ends_once(seed)


def test_a_seed_reproduces_a_run() -> None:
    def trace() -> tuple[int, float, dict[str, Any]]:
        loop = VirtualLoop(7)
        world = World(7, loop)
        try:
            run(loop, story(world, Random(7)))
            return loop.steps, loop.time(), world.ended
        finally:
            world.store.close()

    assert trace() == trace()
