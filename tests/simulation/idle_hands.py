"""Who looks for idle hands: a job that might begin, and a worker that waits for one, may not wait for long.
A job that lies ahead of another worker might begin, too.

Both as control itself sees them, so what it cannot know is not held against it: silence, faults of the store,
its own death. A jump of the wall clock makes it take its nodes for lost until they say that they are there.
"""

from __future__ import annotations

import asyncio

from tests.simulation.world import World

LOOK_S = 0.5
TOGETHER_S = 2.0
"""Control looks for what was overlooked each second."""

BEAT_S = 6.0
"""Within this an agent has said that it is there, and was heard."""


async def watch_for_idle_hands(world: World) -> None:
    """Until cancelled."""
    since, jumped, jumped_at = world.loop.time(), world.jumped, -BEAT_S
    waited: dict[tuple[str, int], float] = {}
    while True:
        await asyncio.sleep(LOOK_S)
        now = world.loop.time()
        if world.jumped != jumped:
            jumped, jumped_at = world.jumped, now
        if not _calm(world, now, jumped_at):
            since = now
        found = _might_begin(world) if since < now else {}
        waited = {job: waited.get(job, now) for job in found}
        for job, at in waited.items():
            if now - at > TOGETHER_S:
                world.witness.fail(
                    f"{job[0]} waited for {now - at:.1f} s beside {found[job]}, which was free"
                )


def _calm(world: World, now: float, jumped_at: float) -> bool:
    if world.plane is None or world.control is None or world.control.dead or world.rough:
        return False
    troubled = max(world.rough_until, world.thawed_at)
    connected = (world.witness.hosts[host.name].connected_since for host in world.hosts)
    return now - troubled > LOOK_S and now - max(jumped_at, *connected) > BEAT_S


def _might_begin(world: World) -> dict[tuple[str, int], str]:
    """Queued jobs whose time to begin has come, each with a worker that has a free slot for it. By job and
    attempt: what an agent with a full disk hands back has begun, and waits from then on."""
    assert world.plane is not None
    free = {worker.endpoint: worker.worker for worker in world.plane.cluster.workers.values() if worker.free}
    if not free:
        return {}
    rows = world.store.writer.raw.execute(
        "SELECT id, attempt, endpoint, not_before FROM jobs WHERE state = 'IN_QUEUE'"
    )
    now = world.clock()
    queued = {
        (job, attempt): free[endpoint]
        for job, attempt, endpoint, at in rows
        if endpoint in free and at <= now
    }
    cluster = world.plane.cluster
    ahead = {(key.job, key.attempt): free[name] for name in free for key in cluster.waiting_ahead(name)}
    return queued | ahead
