"""A story of one bad host: workers do not start there, and other hosts would do. Jobs end elsewhere, and the
host is not tried again for each of them.

The faults of `faults` break an endpoint on every host, so that nothing can be placed elsewhere; and they may
take the other hosts away. Here nothing else breaks: who is to blame for a job that waits is plain.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from stoker.testing.fake_spawner import Start
from tests.simulation.callers import Caller
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wishes import GOOD, Request
from tests.simulation.world import World, shrink

STEPS = 200_000
LATEST_S = 10.0
"""Two failed starts with the agent's pause between them, and the start elsewhere."""

MOST_STARTS = 3
"""A worker that was killed starts once more; after two failed starts the host is avoided, for longer than the
story takes."""

GIVEN_UP_S = 600.0
BAD = (
    Start(exit=1, log_tail=("cannot open libcuda.so",)),
    Start(setup_error="no weights"),
)


@dataclass
class Told:
    """What became of a story: how long the slowest job took, in seconds of virtual time, and how many workers
    were started on the bad host."""

    longest_s: float = 0.0
    starts: int = 0

    @property
    def holds(self) -> bool:
        return self.longest_s <= LATEST_S and self.starts <= MOST_STARTS


def play(seed: int) -> Told:
    shrink()
    loop = VirtualLoop(seed, limit=STEPS)
    world, told = World(seed, loop), Told()
    try:
        run(loop, _story(world, Random(seed), told))
    finally:
        world.close()
    return told


async def _story(world: World, rng: Random, told: Told) -> None:
    world.add_endpoint("echo", workers_min=rng.choice([0, 0, 1]), workers_max=1, idle_timeout_s=2)
    await world.start_control()
    bad = rng.choice(world.hosts)
    from_the_start = rng.random() < 0.5
    if from_the_start:
        world.starts_on[bad.name] = rng.choice(BAD)
    for host in world.hosts:
        world.loop.call_later(rng.random() * 5.0, world.start_agent, host, context=world.context)
    await asyncio.sleep(10.0)
    before = 0 if from_the_start else len(bad.spawner.spawned)
    if not from_the_start:
        world.starts_on[bad.name] = rng.choice(BAD)
        for process in tuple(bad.spawner.processes):
            process.exit(-9, "killed by SIGKILL")
    for number in range(4):
        told.longest_s = max(told.longest_s, await _asked(world, number, rng))
        await asyncio.sleep(rng.choice([0.1, 8.0]))  # in the longer one, an idle worker is stopped
    told.starts = len(bad.spawner.spawned) - before


async def _asked(world: World, number: int, rng: Random) -> float:
    caller = Caller(world, Request(number, "echo", [GOOD], ttl_s=7200.0, timeout_s=30.0), rng)
    began = world.loop.time()
    try:
        async with asyncio.timeout(GIVEN_UP_S):
            job = await caller.submit()
            assert job is not None, "nothing breaks control here"
            await caller.wait(job)
    except TimeoutError:
        return GIVEN_UP_S
    assert world.witness.tales[job].state == "COMPLETED"
    return world.loop.time() - began
