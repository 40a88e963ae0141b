"""Where workers go, which slot is offered first, and who is stopped."""

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.placement import (
    CPU_WORKERS,
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


def slot(worker: str, free: int = 1) -> Slot:
    return Slot("e", "n", 1, worker, free)


def test_without_a_node_there_is_no_capacity() -> None:
    assert place_worker([]) == NoPlace("no capacity: no node is connected")


def test_a_gpu_belongs_to_one_worker() -> None:
    room = Room("n", (gpu(0), gpu(1)), {"GPU-0": 1})
    assert place_worker([room]) == Place("n", ("GPU-1",))
    full = Room("n", (gpu(0),), {"GPU-0": 1})
    assert place_worker([full]) == NoPlace("throttled: every device is taken")


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


def test_the_warm_worker_is_offered_first_and_an_idle_one_before_a_shared_one() -> None:
    slots = [slot("cold"), slot("warm"), slot("roomy", free=2)]
    order = [s.worker for s in offer(slots, {"warm": 9.0, "cold": 1.0})]
    assert order == ["roomy", "warm", "cold"]


def test_the_longest_idle_stop_first() -> None:
    assert choose_stops({"a": 1.0, "b": 3.0, "c": 2.0}, 2) == ["b", "c"]
    assert choose_stops({"a": 1.0}, 0) == []
