"""Slot accounting: a slot is free, reserved or busy, and never two of these."""

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from stoker.control.rules.types import Slot
from stoker.control.scheduling.cluster_state import ClusterState, NodeLoad, NodeState, offer
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import AttemptKey, DeviceSample
from tests.profiles import examples


def worker(name: str, session: int = 1, concurrency: int = 1) -> PlacedWorker:
    return PlacedWorker(name, "e", 1, "n", session, "ready", concurrency=concurrency)


class ClusterMachine(RuleBasedStateMachine):
    """Reservations, claims and releases in any order, against a plain count."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterState()
        self.sizes = {"a": 1, "b": 3}
        for name, size in self.sizes.items():
            self.cluster.add_worker(worker(name, concurrency=size))
        self.reserved: list[list[Slot]] = []
        self.busy: list[tuple[str, AttemptKey]] = []
        self.drawn = 0

    @rule()
    def reserve(self) -> None:
        self.reserved.append(self.cluster.reserve("e", 99, 0.0))

    @rule(taken=st.integers(0, 4))
    def settle(self, taken: int) -> None:
        if not self.reserved:
            return
        slots = self.reserved.pop()
        room = [slot.worker for slot in slots for _ in range(slot.free)][:taken]
        taken_by = [(name, AttemptKey(f"j{self.drawn + i}", 1)) for i, name in enumerate(room)]
        self.drawn += len(taken_by)
        self.cluster.settle(slots, {key: name for name, key in taken_by}, 0.0)
        self.busy += taken_by

    @rule(pick=st.integers(0, 10))
    def release(self, pick: int) -> None:
        if self.busy:
            _, key = self.busy.pop(pick % len(self.busy))
            assert self.cluster.release(key, 1.0) == "e"
            assert self.cluster.release(key, 1.0) is None

    @invariant()
    def nothing_is_lent_twice(self) -> None:
        for name, size in self.sizes.items():
            reserved = sum(s.free for slots in self.reserved for s in slots if s.worker == name)
            busy = sum(1 for owner, _ in self.busy if owner == name)
            assert reserved + busy <= size
            assert self.cluster.workers[name].free == size - reserved - busy
        assert self.cluster.load("n").jobs == sum(worker.jobs for worker in self.cluster.workers.values())


TestClusterState = ClusterMachine.TestCase
TestClusterState.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def test_a_device_stays_unhealthy_until_a_sample_says_otherwise() -> None:
    cluster = ClusterState()
    node = cluster.nodes["n"] = NodeState("n", 1, ())
    node.note([DeviceSample("a", ill="lost"), DeviceSample("b")])
    node.note([DeviceSample("b", memory_used=7)])
    assert cluster.unhealthy() == {"a": "lost"}
    assert node.samples["b"].memory_used == 7
    there, other = worker("w"), worker("v")
    there.devices, other.devices = ("a",), ("b",)
    assert (cluster.on_unhealthy_device(there), cluster.on_unhealthy_device(other)) == (True, False)
    node.note([DeviceSample("a")])
    assert cluster.unhealthy() == {}


def test_only_ready_workers_that_do_not_retire_have_slots() -> None:
    cluster = ClusterState()
    cluster.add_worker(worker("a"))
    cluster.workers["a"].state = "starting"
    assert cluster.reserve("e", 9, 0.0) == []
    cluster.workers["a"].state = "ready"
    cluster.workers["a"].retiring = True
    assert cluster.reserve("e", 9, 0.0) == []
    cluster.workers["a"].retiring = False
    assert [slot.worker for slot in cluster.reserve("e", 9, 0.0)] == ["a"]


def test_a_reservation_of_an_earlier_session_is_not_taken_from_the_new_one() -> None:
    cluster = ClusterState()
    cluster.add_worker(worker("a", session=1))
    old = cluster.reserve("e", 9, 0.0)
    cluster.add_worker(worker("a", session=2))
    cluster.reserve("e", 9, 0.0)
    cluster.settle(old, {}, 0.0)
    assert cluster.workers["a"].free == 0


def test_a_node_has_the_jobs_of_all_its_workers_and_none_of_those_that_left() -> None:
    cluster = ClusterState()
    for name, node in (("a", "n"), ("b", "n"), ("c", "m")):
        cluster.add_worker(replace(worker(name), node=node))
        cluster.settle((), {AttemptKey(f"of {name}", 1): name}, 0.0)
    assert tuple(cluster.load(node).jobs for node in "nm?") == (2, 1, 0)
    cluster.remove_worker("a")
    assert cluster.load("n").jobs == 1


def test_a_worker_that_takes_fewer_at_once_has_no_free_slot_until_its_jobs_end() -> None:
    cluster = ClusterState()
    cluster.add_worker(worker("a", concurrency=3))
    keys = [AttemptKey(f"j{n}", 1) for n in range(3)]
    cluster.settle((), dict.fromkeys(keys, "a"), 0.0)
    cluster.workers["a"].concurrency = 2
    for key, free in zip(keys, (0, 1, 2), strict=True):
        cluster.release(key, 1.0)
        assert cluster.workers["a"].free == free


def test_a_worker_whose_node_refused_a_job_comes_last_among_equals() -> None:
    cluster = ClusterState()
    for name in ("a", "b"):
        cluster.add_worker(worker(name))
    key = AttemptKey("j", 1)
    cluster.settle((), {key: "a"}, 5.0)
    workers = list(cluster.workers.values())
    cluster.handed_back(key)
    cluster.release(key, 6.0)
    assert offered(*workers) == ["b", "a"]


# ---- which free slot a job goes to


def free(name: str, room: int = 1, *, busy: int = 0, used: float = 0.0, node: str = "n") -> PlacedWorker:
    held = {AttemptKey(f"{n} of {name}", 1): 0.0 for n in range(busy)}
    return replace(worker(name, concurrency=room + busy), node=node, busy=held, last_used=used)


def rooms(workers: Sequence[PlacedWorker]) -> dict[str, int]:
    return {worker.worker: worker.free for worker in workers}


def jobs_of(offered: list[tuple[PlacedWorker, int]]) -> list[str]:
    """The worker of each job, in the order in which the store fills the slots."""
    return [one.worker for one, count in offered for _ in range(count)]


def offered(*workers: PlacedWorker, most: int = 99, nodes: dict[str, NodeLoad] | None = None) -> list[str]:
    idle = {worker.node: NodeLoad() for worker in workers}
    return jobs_of(offer(workers, idle | (nodes or {}), rooms(workers), most))


def test_three_jobs_go_to_three_workers_and_the_fourth_to_the_warmest() -> None:
    workers = [free("a", 4, used=1.0), free("b", 4, used=3.0), free("c", 4, used=2.0)]
    assert offered(*workers, most=4) == ["b", "c", "a", "b"]


def test_an_idle_worker_comes_before_one_with_more_room_that_has_a_job() -> None:
    assert offered(free("idle"), free("roomy", 7, busy=1, used=9.0), most=1) == ["idle"]


def test_among_idle_workers_the_one_that_was_used_last_is_warm() -> None:
    assert offered(free("a", used=1.0), free("b", used=9.0), free("c")) == ["b", "a", "c"]
    assert offered(free("b"), free("a")) == ["a", "b"], "nothing tells them apart but their names"


def test_an_idle_node_comes_before_a_warm_worker_on_a_busy_one() -> None:
    workers = free("warm", used=9.0, node="busy"), free("cold", node="calm")
    assert offered(*workers, nodes={"busy": NodeLoad(1)}) == ["cold", "warm"]
    assert offered(*workers, nodes={"busy": NodeLoad(2, 8), "calm": NodeLoad(1, 1)}) == ["warm", "cold"]


def test_jobs_of_one_claim_spread_over_the_nodes() -> None:
    workers = [free(name, node=name[0]) for name in ("a1", "a2", "b1", "b2")]
    assert offered(*workers) == ["a1", "b1", "a2", "b2"]


def test_the_slots_of_one_worker_are_one_claim() -> None:
    roomy, other = free("a", 5), free("b", used=1.0)
    assert offer([roomy], {"n": NodeLoad()}, {"a": 5}, 99) == [(roomy, 5)]
    assert offer([roomy], {"n": NodeLoad()}, {"a": 5}, 3) == [(roomy, 3)]
    for workers, slots in (((roomy,), [("a", 5)]), ((roomy, other), [("b", 1), ("a", 5)])):
        cluster = ClusterState()
        for one in workers:
            cluster.add_worker(replace(one, busy={}))
        assert [(slot.worker, slot.free) for slot in cluster.reserve("e", 99, 0.0)] == slots
        assert cluster.reserve("e", 99, 0.0) == []


@st.composite
def floors(draw: st.DrawFn) -> tuple[list[PlacedWorker], dict[str, NodeLoad]]:
    nodes = {n: NodeLoad(draw(st.integers(0, 9)), draw(st.integers(1, 4))) for n in "xyz"}
    few = st.integers(0, 3)
    workers = [
        free(str(i), 1 + draw(few), busy=draw(few), used=float(draw(few)), node=draw(st.sampled_from("xyz")))
        for i in range(draw(st.integers(0, 6)))
    ]
    return workers, nodes


@given(floors(), st.integers(0, 30), st.randoms())
def test_every_offer_spreads_before_it_shares(
    cluster: tuple[list[PlacedWorker], dict[str, NodeLoad]], most: int, rng: Random
) -> None:
    workers, nodes = cluster
    order = jobs_of(offer(workers, nodes, rooms(workers), most))
    room = {worker.worker: worker.free for worker in workers}
    assert len(order) == min(most, sum(room.values())), "no slot stays empty while a job could have it"
    jobs = {worker.worker: worker.jobs for worker in workers}
    used = {worker.worker: (worker.node, worker.last_used) for worker in workers}
    for name in order:
        open_to = [other for other in room if room[other]]
        assert name in open_to, "a slot for two jobs"
        assert jobs[name] == min(jobs[other] for other in open_to)
        node, at = used[name]
        assert all(used[o][1] <= at for o in open_to if used[o][0] == node and jobs[o] == jobs[name])
        jobs[name] += 1
        room[name] -= 1
    shuffled = rng.sample(workers, len(workers))
    room_of = rooms(workers)
    assert offer(shuffled, nodes, room_of, most) == offer(workers, nodes, room_of, most), (
        "who comes first does not matter"
    )


@given(floors())
def test_one_slot_is_the_first_of_many(cluster: tuple[list[PlacedWorker], dict[str, NodeLoad]]) -> None:
    workers, nodes = cluster
    room_of = rooms(workers)
    assert jobs_of(offer(workers, nodes, room_of, 1)) == jobs_of(offer(workers, nodes, room_of, 99))[:1]
