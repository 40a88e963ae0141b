"""Everything that breaks, and is mended. Each is drawn from the seed, may overlap with others, heals itself.

The names are those that a trace shows. `FAULTS` is the table of the protocol's hazards, turned into acts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from stoker.agent.jobs.attempts.running_attempt import RunningAttempt
from stoker.agent.jobs.attempts.states import Waiting
from stoker.control.errors import ControlError
from stoker.testing.fake_spawner import Start
from stoker.wire.messages import Chunk, Outcome, Progress, Save
from tests.simulation.two_controls.world import TwoControls
from tests.simulation.wishes import saving
from tests.simulation.world import Broken, Host, World

WATCHED_S = 62.0
"""Control counts silence only while it has been watching for as long."""

Fault = Callable[[World, Random], Coroutine[Any, Any, None]]


def _host(world: World, rng: Random) -> Host:
    return rng.choice([host for host in world.hosts if host.name == host.node])


@contextmanager
def _rough(world: World) -> Iterator[None]:
    """Meanwhile nobody is held to answer at once."""
    world.rough += 1
    try:
        yield
    finally:
        world.rough -= 1
        world.rough_until = world.loop.time()


# ---- connections --------------------------------------------------------------------------------


async def a_link_breaks(world: World, rng: Random) -> None:
    for _ in range(rng.choice([1, 1, 4])):
        world.network.drop(_host(world, rng).name)
        await asyncio.sleep(rng.random() * 2.0)


async def a_link_is_half_open(world: World, rng: Random) -> None:
    """One side thinks it lives, or both do, and nothing passes."""
    sides = rng.choice([("agent",), ("control",), ()])
    world.network.sever(_host(world, rng).name, *sides)


async def a_node_falls_silent(world: World, rng: Random) -> None:
    """Shorter than its lease, about as long, longer than control waits."""
    host, seconds = _host(world, rng), rng.choice([3.0, 12.0, 50.0, 58.0, 75.0])
    world.network.silent_until[host.name] = world.loop.time() + seconds
    world.witness.unwell(host.name, seconds)
    await asyncio.sleep(seconds)
    world.witness.unwell(host.name)


async def messages_come_twice(world: World, rng: Random) -> None:
    hosts = [host.name for host in world.hosts]
    world.network.doubled = dict.fromkeys(hosts, rng.choice([0.2, 0.9]))
    await asyncio.sleep(10.0)
    world.network.doubled = {}


async def a_command_is_lost(world: World, rng: Random) -> None:
    host = _host(world, rng)
    world.network.swallowing[host.name] = rng.choice(["assign", "assign", "cancel"])
    await asyncio.sleep(10.0)
    world.network.swallowing.pop(host.name, None)


async def a_report_is_poison(world: World, rng: Random) -> None:
    host = _host(world, rng)
    world.network.poisoning[host.name] = rng.choice([Progress, Chunk, Outcome, Save])
    await asyncio.sleep(6.0)
    world.network.poisoning.pop(host.name, None)


# ---- agents -------------------------------------------------------------------------------------


async def an_agent_is_killed(world: World, rng: Random) -> None:
    host, quietly = _host(world, rng), rng.random() < 0.3
    world.kill_agent(host, quietly=quietly)
    await asyncio.sleep(rng.choice([0.05, 1.0, 8.0, 20.0]))
    if rng.random() < 0.3:
        host.disk.data = None  # a new disk
    world.start_agent(host)


async def an_agent_is_stopped(world: World, rng: Random) -> None:
    """In order, as for an update: what it could not finish or deliver is handed back or kept."""
    host = _host(world, rng)
    if not host.up or host.agent is None:
        return
    host.wanted = False
    host.agent.stop()
    await asyncio.sleep(rng.choice([0.5, 10.0, 30.0]))
    world.start_agent(host)
    host.wanted = True


async def a_node_is_drained_in_a_hurry(world: World, rng: Random) -> None:
    """Its jobs are asked to yield; later the node is resumed, however often that has to be asked for."""
    host = _host(world, rng)

    async def drain(*, drained: bool) -> bool:
        try:
            await world.call(
                lambda plane: plane.management.nodes.drain(
                    "default", host.node, drained=drained, jobs_yield=drained
                )
            )
        except (Broken, ControlError):
            return False
        return True

    await drain(drained=True)
    await asyncio.sleep(rng.choice([2.0, 20.0]))
    while not await drain(drained=False):  # noqa: ASYNC110  # control may be away: its operator asks again
        await asyncio.sleep(1.0)


async def a_host_is_gone_for_good(world: World, rng: Random) -> None:
    host = world.hosts[0]
    world.kill_agent(host, quietly=rng.random() < 0.5)
    await asyncio.sleep(0.0)


async def a_host_is_cloned(world: World, rng: Random) -> None:
    """The same node id from another machine, at the same time; somebody puts it right in the end."""
    host = _host(world, rng)
    clone = world.add_host(f"{host.name}-clone-{len(world.hosts)}", host.node)
    clone.disk.data = host.disk.data if rng.random() < 0.5 else None
    if rng.random() < 0.5:
        world.network.drop(host.name)  # the clone may be the first to come
    world.start_agent(clone)
    await asyncio.sleep(rng.choice([3.0, 15.0, 60.0]))
    world.kill_agent(clone, quietly=rng.random() < 0.3)


async def an_agents_disk_is_full(world: World, rng: Random) -> None:
    host = _host(world, rng)
    host.disk.full = True
    world.full_disks.add(host.name)
    if host.scratch is not None:
        host.scratch.full = rng.random() < 0.5
    await asyncio.sleep(rng.random() * 10.0)
    host.disk.full = False
    if host.scratch is not None:
        host.scratch.full = False


# ---- workers ------------------------------------------------------------------------------------


async def workers_die(world: World, rng: Random) -> None:
    for _ in range(rng.choice([1, 3])):
        host = _host(world, rng)
        if host.up and host.spawner is not None and host.spawner.processes:
            rng.choice(host.spawner.processes).exit(-9, "killed by SIGKILL")
        await asyncio.sleep(rng.random() * 3.0)


async def workers_do_not_start(world: World, rng: Random) -> None:
    """A crash loop, a failing setup, a slow one; running workers are taken away, too."""
    start = rng.choice(
        [
            Start(exit=1, log_tail=("cannot open libcuda.so",)),
            Start(setup_error="no weights"),
            Start(spawn_error="no more processes"),
            Start(ready_s=5.0),
        ]
    )
    name = rng.choice(world.endpoints).id
    world.starts[name] = start
    await workers_die(world, rng)
    await asyncio.sleep(rng.choice([2.0, 10.0, 30.0]))
    world.starts.pop(name, None)


# ---- control ------------------------------------------------------------------------------------


async def control_is_stopped(world: World, rng: Random) -> None:
    """As for an update."""
    await world.stop_control(rng.choice([0.1, 1.0, 8.0]))


async def control_is_killed(world: World, rng: Random) -> None:
    """Also for longer than a lease."""
    out_s = rng.choice([0.1, 1.0, 8.0, 20.0, 55.0, 80.0])
    world.kill_control(after_s=out_s, quietly=rng.random() < 0.2)
    await asyncio.sleep(out_s)


async def control_is_killed_at_commits(world: World, rng: Random) -> None:
    """Before one, or between one and its reply; again and again."""
    if rng.random() < 0.3:
        world.kill_before_commit = 0.05
    else:
        world.kill_after_commit = rng.choice([0.02, 0.1, 0.3])
    await asyncio.sleep(rng.choice([2.0, 6.0]))
    world.kill_before_commit = world.kill_after_commit = 0.0


async def control_is_frozen(world: World, rng: Random) -> None:
    """A gap in the sweeper's own runs, and in everything else."""
    await world.freeze_control(rng.choice([2.0, 20.0, 70.0]))


async def the_store_is_full(world: World, rng: Random) -> None:
    world.disk.full = world.was_full = True
    with _rough(world):
        await asyncio.sleep(rng.choice([0.5, 4.0, 15.0]))
    world.disk.full = False


async def submissions_are_not_stored(world: World, rng: Random) -> None:
    """Their COMMIT fails, that of nothing else; what was sent of them would take long."""
    world.disk.fails = 0.5
    for _ in range(3):
        world.ask([{"run_s": 20.0}], 60.0)
        await asyncio.sleep(1.0 + rng.random() * 3.0)
    world.disk.fails = 0.0


async def the_store_is_slow(world: World, rng: Random) -> None:
    world.disk.slow_s = rng.choice([0.05, 0.5])
    with _rough(world):
        await asyncio.sleep(8.0)
        world.disk.slow_s = 0.002
        await asyncio.sleep(world.disk.free_at - world.loop.time())  # until what waits had its turn


async def the_wall_clock_jumps(world: World, rng: Random) -> None:
    world.jump(rng.choice([-2.0, -0.3, 1.0, 20.0, 100.0, 1000.0]))
    await asyncio.sleep(0.0)


async def a_connected_node_is_overtaken(world: World, rng: Random) -> None:
    """The clock jumps: all nodes seem silent and lose their jobs. Those that come back first are given the
    work of one that does not know yet, and still reports what it did.
    """
    await asyncio.sleep(max(WATCHED_S - world.loop.time(), 0.0))
    for _ in range(2):
        world.ask([{"run_s": 3.0, "chunks": 2}])
    await asyncio.sleep(0.5)
    busy = [host for host in world.hosts if host.up and host.spawner_jobs]
    if not busy:
        return
    slow = rng.choice(busy)
    world.jump(100.0)
    await asyncio.sleep(1.1)  # the sweeper looks
    for host in world.hosts:
        if host is not slow:
            world.network.drop(host.name)


async def a_busy_node_falls_silent(world: World, rng: Random) -> None:
    """In the middle of a job that outlasts its lease. Not one of FAULTS: most stories are to be about other
    things. Chance seldom brings the two together, so a plant that only this shows draws it often."""
    world.ask([{"run_s": 65.0}], 100.0)
    await asyncio.sleep(1.0 + rng.random() * 4.0)
    seconds = 75.0
    for host in [host for host in world.hosts if host.spawner_jobs]:
        world.network.silent_until[host.name] = world.loop.time() + seconds
        world.witness.unwell(host.name, seconds)
    await asyncio.sleep(seconds)
    for host in world.hosts:
        world.witness.unwell(host.name)


async def an_agent_dies_with_results(world: World, rng: Random) -> None:
    """They are on its disk, and control has not heard of them. Of its kind as the one above."""
    world.ask([{"run_s": 2.0}])
    await asyncio.sleep(1.0 + rng.random())
    busy = [host for host in world.hosts if host.spawner_jobs and host.name == host.node]
    for host in busy:
        world.network.silent_until[host.name] = world.loop.time() + 8.0
        world.witness.unwell(host.name, 8.0)
    await asyncio.sleep(5.0)
    for host in busy:
        world.kill_agent(host)
    await asyncio.sleep(1.0)
    for host in busy:
        world.start_agent(host)


async def a_link_breaks_while_jobs_wait(world: World, rng: Random) -> None:
    """Some lie ahead of a worker, behind one that is short. Of the same kind."""
    endpoint = world.endpoints[-1].id  # the one whose jobs are short, where there is one
    for _ in range(6):
        world.ask([{"run_s": 0.004}], endpoint=endpoint)
        await asyncio.sleep(0.1)
    for _ in range(3):
        for _ in range(12):
            world.ask([{"run_s": 0.004}], 100.0, endpoint=endpoint)
        for _ in range(60):
            await asyncio.sleep(0.001)
            if waiting := hosts_with_waiting(world):
                world.network.drop(rng.choice(waiting).name)
                break
        await asyncio.sleep(1.0)


async def urgent_jobs_come_one_by_one(world: World, rng: Random) -> None:
    """While jobs that save have the slots. Of the same kind."""
    for number in (2, 6, 10):
        world.ask([saving({"run_s": 40.0 + rng.random() * 40.0}, number)], 400.0)
    await asyncio.sleep(12.0)
    for _ in range(5):
        world.ask([{"run_s": 0.5}], urgent=True)
        await asyncio.sleep(4.0 + rng.random() * 8.0)


def hosts_with_waiting(world: World) -> list[Host]:
    """Those whose agents hold attempts that wait for their worker: a Hello must not leave them out."""
    agents = [(host, host.agent) for host in world.hosts if host.up and host.agent is not None]
    return [host for host, agent in agents if any(map(_waits, agent.attempts._attempts.values()))]


def _waits(attempt: RunningAttempt) -> bool:
    return isinstance(attempt.state, Waiting)


async def a_clone_has_an_older_disk(world: World, rng: Random) -> None:
    """It tells what its original, which nobody hears, has kept and added to. Of the same kind."""
    world.ask([{"run_s": 2.0}])
    await asyncio.sleep(1.0 + rng.random())
    for host in [host for host in world.hosts if host.spawner_jobs and host.name == host.node]:
        world.network.silent_until[host.name] = world.loop.time() + 130.0
        world.witness.unwell(host.name, 130.0)
        await asyncio.sleep(5.0)
        clone = world.add_host(f"{host.name}-clone-{len(world.hosts)}", host.node)
        clone.disk.data = host.disk.data
        world.start_agent(clone)
        await asyncio.sleep(60.0)
        world.kill_agent(clone)


# ---- the object store ---------------------------------------------------------------------------


async def the_object_store_fails(world: World, rng: Random) -> None:
    """A moment, or until the ttl of some."""
    world.shop.error = rng.choice(["down", "down", "full"])
    with _rough(world):
        await asyncio.sleep(rng.choice([1.0, 6.0, 40.0]))
    world.shop.error = None


async def the_object_store_is_slow(world: World, rng: Random) -> None:
    world.shop.slow_s = rng.choice([0.5, 4.0])
    with _rough(world):
        await asyncio.sleep(10.0)
    world.shop.slow_s = 0.0


FAULTS: list[Fault] = [
    a_link_is_half_open,
    a_node_falls_silent,
    a_connected_node_is_overtaken,
    a_connected_node_is_overtaken,
    a_link_breaks,
    a_link_is_half_open,
    a_node_falls_silent,
    messages_come_twice,
    a_command_is_lost,
    a_report_is_poison,
    an_agent_is_killed,
    an_agent_is_stopped,
    a_host_is_cloned,
    an_agents_disk_is_full,
    workers_die,
    workers_do_not_start,
    control_is_killed,
    control_is_stopped,
    control_is_killed_at_commits,
    control_is_frozen,
    the_store_is_full,
    submissions_are_not_stored,
    the_store_is_slow,
    the_wall_clock_jumps,
    the_object_store_fails,
    the_object_store_is_slow,
]


async def the_leader_stands_still(world: World, rng: Random) -> None:
    await world.freeze_control(rng.choice([8.0, 25.0, 70.0, 70.0]))


async def the_leader_is_cut_off_from_the_database(world: World, rng: Random) -> None:
    assert isinstance(world, TwoControls)
    with _rough(world):
        await world.cut_off_control(rng.choice([4.0, 20.0, 40.0]))


async def the_database_restarts(world: World, rng: Random) -> None:
    assert isinstance(world, TwoControls)
    with _rough(world):
        await world.restart_server(rng.choice([0.5, 3.0, 15.0]))


async def the_database_restarts_as_the_leader_wakes(world: World, rng: Random) -> None:
    """The lock is free for a moment, and two controls want it."""
    assert isinstance(world, TwoControls)
    waking = asyncio.ensure_future(world.freeze_control(30.0))
    await asyncio.sleep(29.0 + rng.random() * 2.0)
    await the_database_restarts(world, rng)
    await waking


OF_TWO_CONTROLS: list[Fault] = [
    the_leader_stands_still,
    the_leader_is_cut_off_from_the_database,
    the_database_restarts,
    the_database_restarts_as_the_leader_wakes,
    control_is_killed,
    control_is_stopped,
]


async def breaks(world: World, rng: Random) -> None:
    """Two to six faults, at moments of the story that may overlap. Those named twice are drawn more often."""
    table = FAULTS + OF_TWO_CONTROLS * 4 if isinstance(world, TwoControls) else FAULTS
    drawn = rng.choices(table, k=rng.randint(2, 6))
    others = Random(world.seed + 1)
    await asyncio.gather(
        *(_later(world, rng, fault) for fault in drawn),
        *(_later(world, others, fault) for fault in drains(world)),
    )
    if rng.random() < 0.1:
        await a_host_is_gone_for_good(world, rng)


def drains(world: World) -> list[Fault]:
    """Drawn apart from the others, so that the stories of earlier seeds stay as they are, but for this."""
    return [a_node_is_drained_in_a_hurry] if Random(world.seed).random() < 0.3 else []


async def _later(world: World, rng: Random, fault: Fault) -> None:
    await asyncio.sleep(0.1 + rng.random() * 14.0)
    world.witness.note("fault: {}", fault.__name__)
    await fault(world, rng)
    world.witness.note("over: {}", fault.__name__)


def mend(world: World) -> None:
    """Whatever is still broken is put right."""
    world.network.silent_until.clear()
    world.network.doubled = {}
    world.network.swallowing.clear()
    world.network.poisoning.clear()
    world.starts.clear()
    world.kill_before_commit = world.kill_after_commit = 0.0
    world.disk.full, world.disk.fails, world.disk.slow_s = False, 0.0, 0.002
    world.shop.error, world.shop.slow_s = None, 0.0
