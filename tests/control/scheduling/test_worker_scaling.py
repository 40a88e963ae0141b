"""Scaling on the real plane, on virtual time: bursts, zero and back, settings that change, and roll-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import Endpoint, Listing
from stoker.control.sweeper import STAFF_PAUSE_S
from stoker.wire.messages import HeldWorker, WorkerState
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.working_agent import WorkingAgent, gpus

JOB_S = 8.0
COLD_S = 10.0


async def working(
    w: World, tasks: asyncio.TaskGroup, *, cold_s: float = COLD_S, job_s: float = JOB_S, places: int = 0
) -> WorkingAgent:
    agent = WorkingAgent(w.plane, w.token, cold_s=cold_s, job_s=job_s)
    await (agent.works(tasks, gpus(places)) if places else agent.works(tasks))
    return agent


async def burst(w: World, count: int) -> float:
    """Submits so many jobs at once; the seconds until all have succeeded."""
    began = w.loop.time()
    jobs = [(await w.plane.commands.submit(w.echo, one(n), sync=False)).id for n in range(count)]
    for job in jobs:
        await succeeds(w, job)
    return w.loop.time() - began


async def succeeds(w: World, job: str) -> None:
    while (view := await w.plane.queries.wait(w.echo, job, 60)).state is not JobState.COMPLETED:
        assert not view.ended, view


async def until(reported: Callable[[], bool], within: float) -> None:
    """Looks ten times a second until it is so."""
    for _ in range(int(within * 10)):
        await asyncio.sleep(0.1)
        if reported():
            return
    raise AssertionError(f"it was not so within {within:g} s")


async def change(w: World, **fields: object) -> None:
    """What a change over the management API does: stored, known, and looked at."""
    found = w.plane.endpoints.by_id.get("echo")
    assert found is not None
    changed = replace(found, **fields)  # type: ignore[arg-type]
    stored = await w.commits.commit(lambda conn: store.put_endpoint(conn, changed, w.now()))
    w.plane.endpoints.load([stored])
    w.plane.scaling.wake.set()


async def new_version(w: World) -> None:
    found = w.plane.endpoints.by_id.get("echo")
    assert found is not None
    await change(w, run=replace(found.run, env={"VERSION": str(found.version + 1)}))


def versions(agent: WorkingAgent) -> list[int]:
    return sorted(spec.version for spec in agent.held.values())


def by_count(**fields: object) -> Endpoint:
    return endpoint(**{"workers_max": 3, "scaler_type": "REQUEST_COUNT", "scaler_value": 1, **fields})


def by_delay(**fields: object) -> Endpoint:
    return endpoint(**{"workers_max": 3, "scaler_type": "QUEUE_DELAY", "scaler_value": 4, **fields})


# ---- bursts, as they were measured elsewhere


@story
async def test_six_jobs_by_count_from_cold() -> None:
    async with world(by_count()) as (w, tasks):
        agent = await working(w, tasks)
        assert await burst(w, 6) <= 52
        assert agent.most == 3


@story
async def test_nine_jobs_by_count_on_three_warm_workers() -> None:
    async with world(by_count(workers_min=3)) as (w, tasks):
        agent = await working(w, tasks)
        await until(lambda: len(agent.ready) == 3, 15)
        assert await burst(w, 9) <= 3 * JOB_S + 1
        assert agent.most == 3


@story
async def test_six_jobs_by_delay_on_two_warm_workers_are_not_worth_a_third() -> None:
    """A third would be ready after 14 s, when hardly one job is left that nobody has begun."""
    async with world(by_delay(workers_min=2)) as (w, tasks):
        agent = await working(w, tasks)
        await until(lambda: len(agent.ready) == 2, 15)
        await burst(w, 2)  # how long a job takes, and a start, is known of a service that is in use
        assert await burst(w, 6) <= 34
        assert agent.most == 2


@story
async def test_from_zero_to_three_and_back() -> None:
    for made in (by_count(idle_timeout_s=5), by_delay(idle_timeout_s=5)):
        async with world(made) as (w, tasks):
            agent = await working(w, tasks)
            await burst(w, 12)
            assert agent.most == 3
            ended = w.loop.time()
            await until(lambda agent=agent: not agent.held, 30)
            assert 4 <= w.loop.time() - ended <= 2 * COLD_S + 5
            assert await burst(w, 1) <= COLD_S + JOB_S + 2
            await until(lambda agent=agent: not agent.held, 30)


# ---- by waiting


@story
async def test_the_first_job_starts_one_worker_and_a_long_wait_the_others() -> None:
    async with world(by_delay(workers_max=10)) as (w, tasks):
        agent = await working(w, tasks, job_s=60.0)
        work = tasks.create_task(burst(w, 5))
        await asyncio.sleep(COLD_S - 0.5)
        assert agent.most == 1
        assert await work <= 100
        assert agent.most == 5


@story
async def test_low_priority_jobs_start_nothing_and_use_what_others_started() -> None:
    async with world(by_delay(), endpoint("other")) as (w, tasks):
        agent = await working(w, tasks)
        low = await w.plane.commands.submit(w.echo, Submission(b"{}", priority=Priority.LOW), sync=False)
        await asyncio.sleep(60)
        assert not agent.held
        await burst(w, 1)
        await succeeds(w, low.id)
        assert agent.most == 1


@story
async def test_what_finds_no_place_is_throttled() -> None:
    async with world(by_delay(workers_max=5)) as (w, tasks):
        agent = await working(w, tasks, places=2, job_s=60.0)
        work = tasks.create_task(burst(w, 5))
        await asyncio.sleep(40)
        assert (await w.plane.queries.health(w.echo)).throttled == 3
        assert agent.most == 2
        work.cancel()


@story
async def test_room_that_a_worker_leaves_is_used_at_once() -> None:
    """A handler that did not stop is killed, and the next job waits for its device."""
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, devices=gpus(1))
        (worker,) = await agent.ready_workers()
        await agent.listen(5)
        await agent.report(WorkerState(worker, "echo", 1, "stopping", "a job did not stop"))
        await agent.listen(STAFF_PAUSE_S / 5)
        assert not agent.specs
        before = w.loop.time()
        await agent.report(WorkerState(worker, "echo", 1, "gone"))
        while not agent.specs:
            await agent.receive()
        assert w.loop.time() - before < STAFF_PAUSE_S / 5


@story
async def test_who_says_again_and_again_that_there_is_room_is_looked_at_no_more_often() -> None:
    async with world(endpoint(workers_min=2, workers_max=2)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, devices=gpus(1))
        await agent.ready_workers()
        await agent.listen(5)
        before = w.loop.time()
        for _ in range(20):
            (worker,) = agent.specs
            await agent.report(WorkerState(worker, "echo", 1, "gone"))
            while not agent.specs.keys() - {worker}:
                await agent.receive()
        assert w.loop.time() - before > 8 * STAFF_PAUSE_S


# ---- settings that change while it runs


@story
async def test_a_changed_scaler_is_followed_at_the_next_look() -> None:
    async with world(by_count(scaler_value=10)) as (w, tasks):
        agent = await working(w, tasks, job_s=100.0)
        work = tasks.create_task(burst(w, 5))
        await until(lambda: len(agent.ready) == 1, 15)
        before = set(agent.held)
        await change(w, scaler_value=2)
        await until(lambda: len(agent.held) == 3, 2)
        assert before < set(agent.held)
        await change(w, workers_max=1)
        await work
        assert agent.ran.total() == 5


@story
async def test_a_lower_maximum_lets_busy_workers_end_their_jobs_and_takes_no_more() -> None:
    async with world(by_count()) as (w, tasks):
        agent = await working(w, tasks)
        work = tasks.create_task(burst(w, 20))
        await until(lambda: len(agent.ready) == 3, 15)
        await change(w, workers_max=1)
        await until(lambda: len(agent.held) == 1, JOB_S + 1)
        await work
        assert agent.ran.total() == 20


@story
async def test_a_higher_minimum_and_a_shorter_idleness_act_at_once() -> None:
    async with world(by_count(idle_timeout_s=3600)) as (w, tasks):
        agent = await working(w, tasks)
        await burst(w, 1)
        await change(w, workers_min=2)
        await until(lambda: len(agent.ready) == 2, COLD_S + 2)
        await change(w, workers_min=0, idle_timeout_s=1)
        await until(lambda: not agent.held, 2)


# ---- a new version


@story
async def test_a_new_version_under_load_fails_no_job_and_never_lacks_a_worker() -> None:
    async with world(by_count()) as (w, tasks):
        agent = await working(w, tasks)
        work = tasks.create_task(burst(w, 40))
        await until(lambda: len(agent.ready) == 3, 15)
        agent.fewest, before = 99, agent.ran[1]
        await new_version(w)
        await until(lambda: versions(agent) == [2, 2, 2], 100)
        assert agent.fewest >= 3
        assert agent.most == 4
        assert agent.ran[1] > before
        await work
        assert agent.ran.total() == 40


@story
async def test_idle_workers_are_replaced_one_after_the_other() -> None:
    async with world(by_count(workers_min=3)) as (w, tasks):
        agent = await working(w, tasks)
        await until(lambda: len(agent.ready) == 3, 15)
        await new_version(w)
        await until(lambda: versions(agent) == [2, 2, 2], 3 * COLD_S + 5)
        assert (agent.fewest, agent.most) == (3, 4)


@story
async def test_a_new_version_that_does_not_start_leaves_the_old_one_at_work() -> None:
    async with world(by_count(workers_min=2)) as (w, tasks):
        agent = await working(w, tasks)
        await until(lambda: len(agent.ready) == 2, 15)
        agent.broken = {2}
        await new_version(w)
        await asyncio.sleep(60)
        assert versions(agent) == [1, 1, 2]
        assert await burst(w, 4) <= 2 * JOB_S + 1
        work = tasks.create_task(burst(w, 9))
        await asyncio.sleep(1)
        waiting = (await w.plane.queries.requests(w.echo, Listing())).views
        whys = {view.reason for view in waiting if view.reason}
        assert any(
            "the new version does not start, the old one stays: crash loop: it is broken" in why
            for why in whys
        )
        await work
        await new_version(w)
        await until(lambda: versions(agent) == [3, 3], 60)
        assert agent.fewest >= 1


@story
async def test_the_next_job_of_a_temporary_endpoint_runs_on_its_new_version() -> None:
    """Whoever changes it develops: each job after the change waits for the new version, none runs on the old
    one, and a job that runs already ends there."""
    async with world(by_count(requested={"temporary": True})) as (w, tasks):
        agent = await working(w, tasks)
        await burst(w, 2)
        assert versions(agent) == [1, 1]
        running = await w.plane.commands.submit(w.echo, one("long"), sync=False)
        await asyncio.sleep(1)
        old = {name for name, spec in agent.held.items() if spec.version == 1}
        changed = replace(w.echo, run=replace(w.echo.run, env={"SIZE": "2"}))
        stored = await w.commits.commit(lambda conn: store.put_endpoint(conn, changed, w.now()))
        w.plane.management.endpoints.renewed([stored])
        jobs = [await w.plane.commands.submit(w.echo, one(n), sync=False) for n in range(4)]
        for job in jobs:
            await succeeds(w, job.id)
            assert (await w.plane.queries.view(w.echo, job.id)).worker not in old
        await succeeds(w, running.id)
        assert (await w.plane.queries.view(w.echo, running.id)).worker in old
        assert set(versions(agent)) == {2}
        assert agent.most <= 4, "one more than the maximum, which ends"


@story
async def test_without_room_for_another_one_goes_first_and_the_rest_serve() -> None:
    async with world(by_count(workers_min=3)) as (w, tasks):
        agent = await working(w, tasks, places=3)
        await until(lambda: len(agent.ready) == 3, 15)
        work = tasks.create_task(burst(w, 30))
        await new_version(w)
        await until(lambda: versions(agent) == [2, 2, 2], 120)
        assert (agent.fewest, agent.most) == (2, 3)
        await work


@story
async def test_without_room_a_new_version_that_does_not_start_costs_one_worker() -> None:
    async with world(by_count(workers_min=3)) as (w, tasks):
        agent = await working(w, tasks, places=3)
        await until(lambda: len(agent.ready) == 3, 15)
        agent.broken = {2}
        await new_version(w)
        await asyncio.sleep(200)
        assert versions(agent) == [1, 1, 2]


@story
async def test_a_node_that_comes_back_keeps_its_old_workers_until_they_are_replaced() -> None:
    async with world(by_count(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (name,) = await agent.ready_workers()
        await new_version(w)
        await agent.leaves()
        again = w.agent(boot="boot-2")
        old = HeldWorker(name, "echo", 1, "ready", ("CPU-0",))
        await again.connect(tasks, workers=[old])
        while len(again.specs) < 2:
            await again.receive()
        assert {spec.version for spec in again.specs.values()} == {1, 2}
        assert again.specs[name].env == {}


@story
async def test_a_node_that_came_back_to_the_next_process_and_left_is_not_waited_for() -> None:
    async with world(by_count(workers_min=1)) as (w, tasks):
        w.plane.sweeper.expect(["node-1", "node-2"])
        first, second = w.agent("node-1"), w.agent("node-2")
        await first.connect(tasks)
        await asyncio.sleep(1.5)
        assert not first.specs, "the other one may hold a worker"
        await second.connect(tasks)
        await first.ready_workers()
        await first.leaves()
        began = w.loop.time()
        await second.ready_workers()
        assert w.loop.time() - began < 2.0


@story
async def test_the_next_process_knows_what_the_last_versions_run() -> None:
    async with world(by_count()) as (w, _):
        for _version in (2, 3):
            await new_version(w)
        runs = await w.commits.read(lambda conn: store.list_runs(conn, 2))
        assert {n: run.env for n, run in runs["echo"].items()} == {2: {"VERSION": "2"}, 3: {"VERSION": "3"}}
