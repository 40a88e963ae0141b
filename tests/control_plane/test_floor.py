"""Slot accounting: a slot is free, reserved or busy, and never two of these."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stoker.control.floor import Floor, FloorNode, FloorWorker
from stoker.control.types import Slot
from stoker.wire.messages import AttemptKey, DeviceSample


def worker(name: str, session: int = 1, concurrency: int = 1) -> FloorWorker:
    return FloorWorker(name, "e", 1, "n", session, "ready", concurrency=concurrency)


class FloorMachine(RuleBasedStateMachine):
    """Reservations, claims and releases in any order, against a plain count."""

    def __init__(self) -> None:
        super().__init__()
        self.floor = Floor()
        self.sizes = {"a": 1, "b": 3}
        for name, size in self.sizes.items():
            self.floor.add_worker(worker(name, concurrency=size))
        self.reserved: list[list[Slot]] = []
        self.busy: list[tuple[str, AttemptKey]] = []
        self.drawn = 0

    @rule()
    def reserve(self) -> None:
        slots = self.floor.free_slots("e")
        self.floor.reserve(slots)
        self.reserved.append(slots)

    @rule(taken=st.integers(0, 4))
    def settle(self, taken: int) -> None:
        if not self.reserved:
            return
        slots = self.reserved.pop()
        room = [slot.worker for slot in slots for _ in range(slot.free)][:taken]
        claimed = [(name, AttemptKey(f"j{self.drawn + i}", 1)) for i, name in enumerate(room)]
        self.drawn += len(claimed)
        self.floor.settle(slots, claimed, 0.0)
        self.busy += claimed

    @rule(pick=st.integers(0, 10))
    def release(self, pick: int) -> None:
        if self.busy:
            _, key = self.busy.pop(pick % len(self.busy))
            assert self.floor.release(key, 1.0) == "e"
            assert self.floor.release(key, 1.0) is None

    @invariant()
    def nothing_is_lent_twice(self) -> None:
        for name, size in self.sizes.items():
            reserved = sum(s.free for slots in self.reserved for s in slots if s.worker == name)
            busy = sum(1 for owner, _ in self.busy if owner == name)
            assert reserved + busy <= size
            assert self.floor.workers[name].free == size - reserved - busy
        assert self.floor.jobs_on("n") == sum(worker.jobs for worker in self.floor.workers.values())


TestFloor = FloorMachine.TestCase
TestFloor.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_device_stays_ill_until_a_sample_says_otherwise() -> None:
    floor = Floor()
    node = floor.nodes["n"] = FloorNode("n", 1, ())
    node.note([DeviceSample("a", ill="lost"), DeviceSample("b")])
    node.note([DeviceSample("b", memory_used=7)])
    assert floor.ill() == {"a": "lost"}
    assert node.samples["b"].memory_used == 7
    there, other = worker("w"), worker("v")
    there.devices, other.devices = ("a",), ("b",)
    assert (floor.on_ill_device(there), floor.on_ill_device(other)) == (True, False)
    node.note([DeviceSample("a")])
    assert floor.ill() == {}


def test_only_ready_workers_that_do_not_retire_have_slots() -> None:
    floor = Floor()
    floor.add_worker(worker("a"))
    floor.workers["a"].state = "starting"
    assert floor.free_slots("e") == []
    floor.workers["a"].state = "ready"
    floor.workers["a"].retiring = True
    assert floor.free_slots("e") == []
    floor.workers["a"].retiring = False
    assert [slot.worker for slot in floor.free_slots("e")] == ["a"]


def test_a_reservation_of_an_earlier_session_is_not_taken_from_the_new_one() -> None:
    floor = Floor()
    floor.add_worker(worker("a", session=1))
    old = floor.free_slots("e")
    floor.reserve(old)
    floor.add_worker(worker("a", session=2))
    new = floor.free_slots("e")
    floor.reserve(new)
    floor.settle(old, [], 0.0)
    assert floor.workers["a"].free == 0


def test_a_node_has_the_jobs_of_all_its_workers_and_none_of_those_that_left() -> None:
    floor = Floor()
    for name, node in (("a", "n"), ("b", "n"), ("c", "m")):
        floor.add_worker(replace(worker(name), node=node))
        floor.occupy(name, AttemptKey(f"of {name}", 1), 0.0)
    assert (floor.jobs_on("n"), floor.jobs_on("m"), floor.jobs_on("?")) == (2, 1, 0)
    floor.remove_worker("a")
    assert floor.jobs_on("n") == 1


def test_a_worker_that_takes_fewer_at_once_has_no_free_slot_until_its_jobs_end() -> None:
    floor = Floor()
    floor.add_worker(worker("a", concurrency=3))
    keys = [AttemptKey(f"j{n}", 1) for n in range(3)]
    for key in keys:
        floor.occupy("a", key, 0.0)
    floor.workers["a"].concurrency = 2
    for key, free in zip(keys, (0, 1, 2), strict=True):
        floor.release(key, 1.0)
        assert floor.workers["a"].free == free
