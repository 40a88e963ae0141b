"""Jobs that lie ahead of a busy worker: how many, which worker, and what becomes of them."""

import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing import ahead
from stoker.control.rules.types import Listing, QueueSample
from stoker.control.rules.wanted_workers import ScaleSample, decide
from stoker.control.scheduling import worker_scaling
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import Assign, AttemptKey, HeldAttempt, HeldWorker, Refused, WorkerSpec
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import CPU, ScriptedAgent

MOST = 8
seconds = st.one_of(st.none(), st.floats(0.0, 100.0))


@pytest.fixture(autouse=True)
def lies_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST", MOST)


def worker(name: str, **fields: object) -> PlacedWorker:
    spec = WorkerSpec(name, "e", 1, "h.py:handler", **fields)  # type: ignore[arg-type]
    return PlacedWorker(name, "e", 1, "n", 1, "ready", spec=spec, concurrency=spec.concurrency)


def cluster_of(*workers: PlacedWorker, run_s: float | None = 0.001) -> ClusterState:
    cluster = ClusterState()
    cluster.nodes["n"] = NodeState("n", 1, (), jobs_ahead=MOST)
    for added in workers:
        cluster.add_worker(added)
    cluster.throughputs["e"].run_s = run_s
    return cluster


def give(cluster: ClusterState, jobs: int, now: float = 0.0, first: int = 0) -> list[str]:
    """Gives so many jobs out, as far as there is room; the worker of each."""
    slots = cluster.reserve("e", jobs, now)
    names = [slot.worker for slot in slots for _ in range(slot.free)]
    cluster.settle(slots, {key(first + n): name for n, name in enumerate(names)}, now)
    return names


def key(n: int) -> AttemptKey:
    return AttemptKey(f"j{n}", 1)


# ---- how many


@given(seconds, seconds)
def test_the_longer_jobs_take_the_fewer_lie_ahead(one: float | None, other: float | None) -> None:
    for many in (ahead.depth, ahead.packed):
        assert many(None) == 0, "nothing is known"
        if one is not None and other is not None:
            assert many(min(one, other)) >= many(max(one, other))
        if one is not None:
            assert 0 <= many(one) <= MOST
            assert many(one) * one <= ahead.WAIT_S
            assert ahead.packed(one) <= ahead.depth(one)


def test_how_many_lie_ahead() -> None:
    assert [ahead.depth(ms / 1000) for ms in (0, 1, 2, 2.5, 5, 10, 20, 20.1, 60_000)] == [
        8,
        8,
        8,
        8,
        4,
        2,
        1,
        0,
        0,
    ]
    assert [ahead.packed(ms / 1000) for ms in (0, 0.5, 1, 2, 2.1)] == [8, 4, 2, 1, 0]


def test_nothing_lies_ahead_where_it_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "MOST", 0)
    assert (ahead.depth(0.0), ahead.packed(0.0)) == (0, 0)


@pytest.mark.parametrize("fields", [{"kind": "protocol"}, {"concurrency": 2}, {"max_jobs": 100}])
def test_of_these_workers_nothing_lies_ahead(fields: dict[str, object]) -> None:
    cluster = cluster_of(worker("a", **fields))
    assert len(give(cluster, 9)) == fields.get("concurrency", 1)
    assert not cluster.waiting_ahead("e")


def test_of_a_worker_that_this_process_did_not_ask_for_nothing_lies_ahead() -> None:
    cluster = cluster_of(replace(worker("a"), spec=None))
    assert give(cluster, 9) == ["a"]


def test_no_more_lie_ahead_than_the_agent_takes() -> None:
    for takes, given_out in ((0, 1), (2, 3), (MOST + 5, 1 + MOST)):
        cluster = cluster_of(worker("a"))
        cluster.nodes["n"].jobs_ahead = takes
        assert give(cluster, 99) == ["a"] * given_out


# ---- which worker


def test_short_jobs_spread_before_they_lie_ahead() -> None:
    cluster = cluster_of(worker("a"), worker("b"), run_s=0.005)
    assert give(cluster, 3) == ["a", "b", "a"]
    assert list(cluster.waiting_ahead("e")) == [key(2)]


def test_the_shortest_are_packed_onto_few_workers() -> None:
    cluster = cluster_of(worker("a"), worker("b"), worker("c"), run_s=0.0)
    assert give(cluster, 9) == ["a"] * 9
    assert give(cluster, 2, first=9) == ["b"] * 2
    assert [one.jobs for one in cluster.workers.values()] == [9, 2, 0]


def test_a_few_are_packed_where_they_take_a_millisecond() -> None:
    cluster = cluster_of(worker("a"), worker("b"), run_s=0.001)
    assert give(cluster, 6) == ["a"] * 3 + ["b"] * 3


def test_nothing_more_lies_ahead_behind_a_job_that_takes_long() -> None:
    cluster = cluster_of(worker("a"), worker("b"), run_s=0.005)
    give(cluster, 1)
    assert give(cluster, 9, now=ahead.PATIENCE_S * 2, first=1) == ["b"] * 5


def test_a_worker_that_retires_or_stops_has_no_room() -> None:
    for change in ({"retiring": True}, {"state": "stopping"}, {"state": "starting"}):
        assert give(cluster_of(replace(worker("a"), **change)), 9) == []  # type: ignore[arg-type]


# ---- what becomes of them


def test_the_first_that_lies_ahead_has_the_slot_next() -> None:
    cluster = cluster_of(worker("a"))
    give(cluster, 3)
    assert [cluster.lies_ahead(key(n)) for n in range(3)] == [False, True, True]
    assert cluster.release(key(0), 7.0) == "e"
    assert cluster.workers["a"].busy == {key(1): 7.0}, "its time counts from there"
    assert [cluster.lies_ahead(key(n)) for n in range(3)] == [False, False, True]
    cluster.release(key(2), 8.0)
    assert cluster.workers["a"].jobs == 1


def test_a_job_holds_its_slot_from_its_turn_on() -> None:
    cluster = cluster_of(worker("a"))
    give(cluster, 2)
    cluster.release(key(0), 1.0)
    cluster.release(key(1), 3.0)
    assert cluster.throughputs["e"].job_s == pytest.approx(1.0 + 0.2 * (2.0 - 1.0))
    assert cluster.workers["a"].idle


def test_one_that_is_handed_back_ends_the_giving() -> None:
    """The endpoint's jobs take longer than they did, and none of these has ended yet."""
    cluster = cluster_of(worker("a"), worker("b"))
    give(cluster, 3)
    for n in (1, 2):
        cluster.handed_back(key(n))
        cluster.release(key(n), 0.06)
    assert give(cluster, 9, now=0.06, first=3) == ["b"], "only free slots are given"
    for n in range(8):
        cluster.release(key(0), 0.06, ran_s=0.001)
        cluster.settle((), {key(0): "a"}, 0.06)
        short = ahead.depth(cluster.throughputs["e"].run_s)
        assert (short > 0) == (n >= 4), "it takes a few short ones to trust them again"


def test_a_worker_that_goes_takes_what_lay_ahead_with_it() -> None:
    cluster = cluster_of(worker("a"))
    give(cluster, 3)
    cluster.remove_worker("a")
    assert cluster.waiting_ahead("e") == {}
    assert not any(cluster.lies_ahead(key(n)) for n in range(3))
    assert cluster.release(key(2), 1.0) is None


class AheadMachine(RuleBasedStateMachine):
    """Jobs are given and end in any order, against lists."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = cluster_of(worker("a"), worker("b"), run_s=0.0025)
        self.lists: dict[str, list[AttemptKey]] = {"a": [], "b": []}
        self.now, self.made = 0.0, 0

    @rule(jobs=st.integers(1, 12), by=st.sampled_from([0.0, 0.01, 0.1]))
    def give(self, jobs: int, by: float) -> None:
        self.now += by
        before = {name: list(held) for name, held in self.lists.items()}
        since = {name: list(one.busy.values()) for name, one in self.cluster.workers.items()}
        for name in give(self.cluster, jobs, self.now, self.made):
            self.lists[name].append(key(self.made))
            self.made += 1
        for name, at in since.items():
            if at and self.now - at[0] > ahead.PATIENCE_S:
                assert self.lists[name] == before[name], "nothing more behind one that takes long"

    @rule(pick=st.integers(0, 99), by=st.sampled_from([0.0, 0.01]))
    def release(self, pick: int, by: float) -> None:
        self.now += by
        held = [(name, one) for name, keys in self.lists.items() for one in keys]
        if held:
            name, one = held[pick % len(held)]
            self.lists[name].remove(one)
            assert self.cluster.release(one, self.now) == "e"

    @invariant()
    def the_first_of_each_runs_and_the_others_wait(self) -> None:
        for name, keys in self.lists.items():
            one = self.cluster.workers[name]
            assert [*one.busy, *one.ahead] == keys
            assert len(one.busy) == min(len(keys), 1)
            assert len(one.ahead) <= MOST
            assert one.lay_ahead.keys() <= one.busy.keys()
        for keys in self.lists.values():
            for first, then in pairwise(keys):
                assert self.cluster.lies_ahead(then), first
        waiting = {one for keys in self.lists.values() for one in keys[1:]}
        assert set(self.cluster.waiting_ahead("e")) == waiting


TestAhead: Callable[[], object] = AheadMachine.TestCase
TestAhead.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)  # type: ignore[attr-defined]


# ---- as callers, scaling and nodes see them


async def short_jobs(w: World, agent: ScriptedAgent, number: int) -> list[Assign]:
    """So many jobs, all given to the only worker: the first runs, the others lie ahead."""
    await w.plane.commands.submit(w.echo, one(), sync=False)
    await agent.completes(await agent.assigned(), ms=1)
    await agent.listen(0.1)
    for n in range(number):
        await w.plane.commands.submit(w.echo, one(n), sync=False)
    return [await agent.assigned() for _ in range(number)]


async def states(w: World, assigns: list[Assign]) -> list[str]:
    return [(await w.plane.queries.status(w.echo, one.job)).state.value for one in assigns]


@story
async def test_a_job_that_lies_ahead_is_in_the_queue_to_its_caller() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        assigns = await short_jobs(w, agent, 3)
        assert await states(w, assigns) == ["IN_PROGRESS", "IN_QUEUE", "IN_QUEUE"]
        view = await w.plane.queries.status(w.echo, assigns[1].job)
        assert (view.reason, view.delay_ms) == ("every worker is busy", None)
        health = await w.plane.queries.health(w.echo)
        assert (health.in_queue, health.in_progress, health.running) == (2, 1, 1)
        listed = (await w.plane.queries.requests(w.echo, Listing(state=JobState.IN_PROGRESS))).views
        assert [view.id for view in listed] == [assigns[0].job]
        page = await w.plane.queries.requests(w.echo, Listing(state=JobState.IN_QUEUE, limit=2))
        assert [view.id for view in page.views] == [assigns[2].job, assigns[1].job]
        assert {view.state for view in page.views} == {JobState.IN_QUEUE}
        rest = await w.plane.queries.requests(w.echo, Listing(JobState.IN_QUEUE, before=page.cursor))
        assert (rest.views, rest.cursor) == ((), None)
        await agent.completes(assigns[0], ms=1)
        await agent.listen(0.1)
        assert await states(w, assigns) == ["COMPLETED", "IN_PROGRESS", "IN_QUEUE"]


@story
async def test_a_purge_cancels_what_lies_ahead_and_not_what_runs() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        assigns = await short_jobs(w, agent, 3)
        assert await w.plane.commands.purge(w.echo) == 2
        stopped = {cancel.job for cancel in (await agent.receive()).cancels}
        assert stopped == {assign.job for assign in assigns[1:]}
        assert await states(w, assigns) == ["IN_PROGRESS", "CANCELLED", "CANCELLED"]
        await agent.completes(assigns[0], ms=1)
        assert (await w.plane.queries.wait(w.echo, assigns[0].job, 10)).state is JobState.COMPLETED


@story
async def test_what_is_handed_back_goes_to_another_worker_at_once_and_is_not_counted() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        first, second = await short_jobs(w, agent, 2)
        await agent.report(Refused(second.job, second.attempt, "the job before it takes long", at_once=True))
        await agent.listen(0.2)
        assert not agent.assigns, "its only worker is busy, and nothing lies ahead any more"
        assert (await w.plane.queries.status(w.echo, second.job)).state is JobState.IN_QUEUE
        await agent.completes(first, ms=60)
        again = await agent.assigned()
        assert (again.job, again.attempt) == (second.job, 2)
        await agent.completes(again, ms=60)
        view = await w.plane.queries.wait(w.echo, second.job, 10)
        assert (view.state, view.retries) == (JobState.COMPLETED, 0)


@story
async def test_a_node_that_comes_back_goes_on_with_what_waits_there() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (name,) = await agent.ready_workers()
        assigns = await short_jobs(w, agent, 3)
        await agent.leaves()
        held = [HeldAttempt(one.job, one.attempt, name, "waiting") for one in assigns]
        held[0] = replace(held[0], phase="running")
        worker = HeldWorker(name, "echo", 1, "ready", (CPU.uuid,))
        welcome = (await agent.connect(tasks, workers=[worker], attempts=held)).welcome
        assert welcome is not None
        assert set(welcome.keep) == {one.key for one in held}
        assert await states(w, assigns) == ["IN_PROGRESS", "IN_QUEUE", "IN_QUEUE"]
        for assign in assigns:
            await agent.completes(assign, ms=1)
            assert (await w.plane.queries.wait(w.echo, assign.job, 10)).attempt == 1


@story
async def test_the_loss_of_a_node_is_no_failure_of_what_lay_ahead_there() -> None:
    async with world(endpoint(workers_min=1, max_attempts=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        (name,) = await agent.ready_workers()
        assigns = await short_jobs(w, agent, 3)
        await agent.leaves()
        await asyncio.sleep(PlaneSettings().broken_s + 1)
        assert await states(w, assigns) == ["FAILED", "IN_QUEUE", "IN_QUEUE"]
        held = [HeldAttempt(one.job, one.attempt, name, "waiting") for one in assigns]
        worker = HeldWorker(name, "echo", 1, "ready", (CPU.uuid,))
        welcome = (await agent.connect(tasks, workers=[worker], attempts=held)).welcome
        assert welcome is not None
        assert {key.job for key in welcome.keep} == {one.job for one in assigns[1:]}
        for assign in assigns[1:]:
            await agent.completes(assign, ms=1)
            assert (await w.plane.queries.wait(w.echo, assign.job, 10)).attempt == 1


@story
async def test_nor_is_its_silence() -> None:
    async with world(endpoint(workers_min=1, max_attempts=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        for number in range(13):  # control must have watched for a minute
            await asyncio.sleep(5)
            await agent.beat(number)
        assigns = await short_jobs(w, agent, 3)
        w.moved += 100.0
        assert "by the clock of control" in await agent.cut_off()
        assert await states(w, assigns) == ["FAILED", "IN_QUEUE", "IN_QUEUE"]


@story
async def test_scaling_takes_a_job_off_its_sample_of_the_queue_only_if_it_was_given_out_since() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await agent.ready_workers()
        first, second, *_ = await short_jobs(w, agent, 3)
        await asyncio.sleep(0.01)
        sampled_at = w.now()
        await agent.completes(first, ms=1)
        await agent.listen(0.1)
        assert await states(w, [second]) == ["IN_PROGRESS"], "its turn came after the sample"
        seen: list[ScaleSample] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                worker_scaling,
                "decide",
                lambda sample, *rest: (seen.append(sample), decide(sample, *rest))[1],
            )
            w.plane.scaling.reconcile({"echo": QueueSample("echo", queued=5, in_progress=3)}, sampled_at)
            w.plane.scaling.reconcile({"echo": QueueSample("echo", queued=5, in_progress=0)}, 0.0)
        assert [(one.queued, one.in_progress) for one in seen] == [(6, 2), (4, 1)]


@story
async def test_an_agent_that_does_not_know_of_jobs_ahead_gets_none() -> None:
    async with world(endpoint(workers_min=1)) as (w, tasks):
        agent = w.agent()
        agent.jobs_ahead = 0
        await agent.connect(tasks)
        await agent.ready_workers()
        (first,) = await short_jobs(w, agent, 1)
        second = await w.plane.commands.submit(w.echo, one(), sync=False)
        await agent.listen(1.0)
        assert not agent.assigns
        await agent.completes(first, ms=1)
        assert (await agent.assigned()).job == second.id
