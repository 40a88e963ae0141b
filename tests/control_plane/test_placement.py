"""Where workers go, which slot is offered first, and who is stopped."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.placement import (
    CPU_WORKERS,
    FreeWorker,
    NodeLoad,
    NoPlace,
    Place,
    Room,
    capacity,
    choose_stops,
    offer,
    place_worker,
)
from stoker.control.types import Slot
from stoker.wire.messages import Device


def gpu(n: int) -> Device:
    return Device(uuid=f"GPU-{n}", kind="gpu", name="H200", index=n)


CPU = Device(uuid="CPU-0", kind="cpu", name="a processor")


def test_without_a_node_there_is_no_capacity() -> None:
    assert place_worker([]) == NoPlace("no capacity: no node is connected")


def test_a_gpu_belongs_to_one_worker() -> None:
    room = Room("n", (gpu(0), gpu(1)), {"GPU-0": 1})
    assert place_worker([room]) == Place("n", ("GPU-1",))
    full = Room("n", (gpu(0),), {"GPU-0": 1})
    assert place_worker([full]) == NoPlace("throttled: every device is taken")


def test_nothing_is_placed_on_an_ill_device() -> None:
    ill = {"GPU-0": "Xid 79"}
    assert place_worker([Room("n", (gpu(0), gpu(1)), {}, ill)]) == Place("n", ("GPU-1",))
    assert place_worker([Room("n", (gpu(0), CPU), {}, ill)]) == Place("n", ("CPU-0",))
    why = "device GPU-0 is out of placement: Xid 79"
    alone = Room("n", (gpu(0),), {}, ill)
    assert place_worker([alone]) == NoPlace(f"throttled: no device is well; {why}")
    full = Room("m", (gpu(1),), {"GPU-1": 1})
    assert place_worker([alone, full]) == NoPlace(f"throttled: every other device is taken; {why}")
    two = Room("n", (gpu(0), gpu(1)), {}, {**ill, "GPU-1": "lost"})
    assert place_worker([two]) == NoPlace(f"throttled: no device is well; {why}; and 1 more")


def test_a_cpu_carries_several_but_not_any_number() -> None:
    assert place_worker([Room("n", (CPU,), {"CPU-0": CPU_WORKERS - 1})]) == Place("n", ("CPU-0",))
    assert isinstance(place_worker([Room("n", (CPU,), {"CPU-0": CPU_WORKERS})]), NoPlace)


def test_a_gpu_comes_before_a_cpu_and_the_emptiest_node_first() -> None:
    rooms = [
        Room("a", (CPU,), {}),
        Room("b", (gpu(0), gpu(1)), {"GPU-0": 1}),
        Room("c", (gpu(2),), {}),
    ]
    assert place_worker(rooms) == Place("c", ("GPU-2",))


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=6))
def test_a_place_always_has_room(devices: list[tuple[bool, int]]) -> None:
    made = [
        Device(uuid=str(i), kind="cpu" if cpu else "gpu", name="d", index=i)
        for i, (cpu, _) in enumerate(devices)
    ]
    held = {str(i): count for i, (_, count) in enumerate(devices)}
    place = place_worker([Room("n", tuple(made), held)])
    room_left = [d for d in made if held[d.uuid] < capacity(d)]
    if isinstance(place, Place):
        assert place.devices[0] in {d.uuid for d in room_left}
    else:
        assert not room_left


# ---- which free slot a job goes to


def free(worker: str, room: int = 1, *, busy: int = 0, used: float = 0.0, node: str = "n") -> FreeWorker:
    return FreeWorker(Slot("e", node, 1, worker, room), busy, used)


def jobs_of(slots: list[Slot]) -> list[str]:
    """The worker of each job, in the order in which the store fills the slots."""
    return [slot.worker for slot in slots for _ in range(slot.free)]


def offered(*workers: FreeWorker, most: int = 99, nodes: dict[str, NodeLoad] | None = None) -> list[str]:
    idle = {worker.slot.node: NodeLoad() for worker in workers}
    return jobs_of(offer(workers, idle | (nodes or {}), most))


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
    assert offer([free("a", 5)], {"n": NodeLoad()}, 99) == [Slot("e", "n", 1, "a", 5)]
    assert offer([free("a", 5)], {"n": NodeLoad()}, 3) == [Slot("e", "n", 1, "a", 3)]


@st.composite
def floors(draw: st.DrawFn) -> tuple[list[FreeWorker], dict[str, NodeLoad]]:
    nodes = {n: NodeLoad(draw(st.integers(0, 9)), draw(st.integers(1, 4))) for n in "xyz"}
    few = st.integers(0, 3)
    workers = [
        free(str(i), 1 + draw(few), busy=draw(few), used=float(draw(few)), node=draw(st.sampled_from("xyz")))
        for i in range(draw(st.integers(0, 6)))
    ]
    return workers, nodes


@given(floors(), st.integers(0, 30), st.randoms())
def test_every_offer_spreads_before_it_shares(
    floor: tuple[list[FreeWorker], dict[str, NodeLoad]], most: int, rng: Random
) -> None:
    workers, nodes = floor
    order = jobs_of(offer(workers, nodes, most))
    room = {worker.slot.worker: worker.slot.free for worker in workers}
    assert len(order) == min(most, sum(room.values())), "no slot stays empty while a job could have it"
    jobs = {worker.slot.worker: worker.busy for worker in workers}
    used = {worker.slot.worker: (worker.slot.node, worker.last_used) for worker in workers}
    for name in order:
        open_to = [other for other in room if room[other]]
        assert name in open_to, "a slot for two jobs"
        assert jobs[name] == min(jobs[other] for other in open_to)
        node, at = used[name]
        assert all(used[o][1] <= at for o in open_to if used[o][0] == node and jobs[o] == jobs[name])
        jobs[name] += 1
        room[name] -= 1
    shuffled = rng.sample(workers, len(workers))
    assert offer(shuffled, nodes, most) == offer(workers, nodes, most), "who comes first does not matter"


def test_the_longest_idle_stop_first() -> None:
    assert choose_stops({"a": 1.0, "b": 3.0, "c": 2.0}, 2) == ["b", "c"]
    assert choose_stops({"a": 1.0}, 0) == []
