"""How nodes stand to the weights that a worker needs, and which of them it goes to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.needs import Needs
from stoker.control.rules.placement import NodeRoom, NoPlacement, Placement, place
from stoker.control.rules.weights import (
    HAS_ROOM,
    HOLDS,
    MAKES_ROOM,
    UNKNOWN,
    HeldWeights,
    Standing,
    held_weights,
    standing,
)
from stoker.control.scheduling.engine_fit import with_weights
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import Device, LockedWeights, WeightsFile, WorkerSpec
from stoker.wire.messages.weights import AVAILABLE, HELD, MOST, ROOM, SIZES

GB = 1_000_000_000


def weights(name: str = "flux-1-dev", gigabytes: int = 24, sha256: str = "ab" * 32) -> LockedWeights:
    files = (
        WeightsFile("model.safetensors", gigabytes * GB, sha256),
        WeightsFile("config.json", 0, "cd" * 32),
    )
    return LockedWeights(name, "huggingface:owner/repo", "c0ffee", files)


ANY = Needs()
FLUX, SDXL = weights(), weights("sdxl", 7)


def facts(*held: LockedWeights, room: int = 100, most: int = 200, left: int | None = None) -> dict[str, str]:
    """Sizes are in GB. `left`: what is available beside weights in use, if the node reports that."""
    keys = ", ".join(entry.key for entry in held)
    known = {HELD: keys, ROOM: str(room * GB), MOST: str(most * GB)}
    return known if left is None else known | {AVAILABLE: str(left * GB)}


def worker(name: str, node: str, *needed: LockedWeights) -> PlacedWorker:
    spec = WorkerSpec(name, "e", 1, "h:handler", weights=needed)
    return PlacedWorker(name, "e", 1, node, 1, "ready", spec=spec)


def node(name: str, known: dict[str, str], taken: float = 0.0) -> NodeRoom:
    device = Device(f"GPU-{name}", "gpu", "H200")
    return NodeRoom(name, (device, Device(f"cpu-{name}", "cpu", "CPU")), {device.uuid: taken}, facts=known)


def placed(rooms: list[NodeRoom], *needed: LockedWeights, needs: Needs = ANY) -> Placement | NoPlacement:
    return place(with_weights(needed, rooms, {}), needs)


def test_a_key_names_the_contents_whatever_the_order_of_the_files() -> None:
    assert replace(FLUX, files=FLUX.files[::-1]).key == FLUX.key
    assert replace(FLUX, source="folder", commit="").key == FLUX.key, "it is the same files"
    assert weights(sha256="ef" * 32).key != FLUX.key
    assert weights(sha256="").key != FLUX.key
    assert FLUX.key.startswith("flux-1-dev@")


def test_a_busier_node_that_holds_the_weights_goes_before_an_empty_one() -> None:
    rooms = [node("a", facts()), replace(node("b", facts(SDXL, FLUX)), taken={"cpu-b": 0.5})]
    assert placed(rooms, FLUX) == Placement("b", ("GPU-b",), "holds the weights flux-1-dev")
    assert placed(rooms) == Placement("a", ("GPU-a",)), "without weights the emptier one is first"


def test_room_goes_before_removing_others_and_that_before_what_is_not_known() -> None:
    unknown, full, free = node("a", {}), node("b", facts(room=3)), node("c", facts())
    assert placed([unknown, full, free], FLUX) == (
        Placement("c", ("GPU-c",), "has room for the weights flux-1-dev (24.0 GB), and fetches them")
    )
    removing = "removes other weights, and fetches the weights flux-1-dev (24.0 GB)"
    assert placed([unknown, full], FLUX) == Placement("b", ("GPU-b",), removing)
    silent = "does not report whether it holds the weights flux-1-dev (24.0 GB)"
    assert placed([unknown], FLUX) == Placement("a", ("GPU-a",), silent)


def test_other_contents_of_the_same_name_are_not_held() -> None:
    rooms = [node("a", facts(weights(sha256="ef" * 32))), node("b", facts(FLUX))]
    assert placed(rooms, FLUX) == Placement("b", ("GPU-b",), "holds the weights flux-1-dev")


def test_a_node_that_lacks_less_goes_first() -> None:
    rooms = [node("a", facts(SDXL)), node("b", facts(FLUX))]
    found = placed(rooms, FLUX, SDXL)
    assert found == Placement("b", ("GPU-b",), "has room for the weights sdxl (7.0 GB), and fetches them")


def test_a_node_that_cannot_hold_them_is_not_chosen_and_the_reason_says_why() -> None:
    small, taken = node("a", facts(room=20, most=20)), node("b", facts(FLUX), taken=1.0)
    barred = "can keep 20.0 GB of weights, which is too little for the weights flux-1-dev (24.0 GB)"
    assert placed([small], FLUX) == NoPlacement(f"no capacity: every connected node {barred}")
    found = placed([small, taken], FLUX, needs=Needs(compute="GPU"))
    assert found == NoPlacement(f"throttled: no node has a free GPU: node b has none free; node a {barred}")
    assert placed([small], SDXL) == Placement(
        "a", ("GPU-a",), "has room for the weights sdxl (7.0 GB), and fetches them"
    )


def test_what_an_operator_put_on_a_node_is_not_counted_against_its_bound() -> None:
    """The node keeps 10 GB at most of what it fetches itself; flux lies there besides."""
    assert standing(facts(FLUX, room=10, most=10), (FLUX, SDXL)).rank == HAS_ROOM


def test_a_node_that_holds_one_of_two_must_hold_both_at_once() -> None:
    assert standing(facts(FLUX, room=6, most=30), (FLUX, SDXL)).bars.startswith("can keep 30.0 GB of weights")
    assert standing(facts(FLUX, room=6, most=31), (FLUX, SDXL)).rank == MAKES_ROOM
    assert standing(facts(FLUX, SDXL, room=0, most=1), (FLUX, SDXL)) == Standing(HOLDS)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, None),
        ({HELD: "", SIZES: ""}, ()),
        ({HELD: "a@1, b@2", SIZES: "7, 24"}, (HeldWeights("a", "1", 7), HeldWeights("b", "2", 24))),
        ({HELD: "a@1", SIZES: "big"}, (HeldWeights("a", "1", None),)),
        ({HELD: "a@1, b@2"}, (HeldWeights("a", "1", None), HeldWeights("b", "2", None))),
        ({HELD: "a@1, b@2", SIZES: "7"}, (HeldWeights("a", "1", None), HeldWeights("b", "2", None))),
    ],
)
def test_what_a_node_holds_has_its_sizes_if_it_reports_them(known, expected) -> None:  # type: ignore[no-untyped-def]
    assert held_weights(known) == expected


def test_a_node_whose_weights_are_in_use_is_passed_over_and_the_reason_says_why() -> None:
    """It could never have been chosen with luck: its agent refuses to remove what is in use."""
    full, other = (
        node("a", facts(SDXL, room=3, most=30, left=6)),
        node("b", facts(SDXL, room=3, most=30, left=30)),
    )
    assert placed([full, other], FLUX).node == "b"  # type: ignore[union-attr]
    occupied = "can keep 30.0 GB of weights, of which those in use leave 6.0 GB"
    assert placed([full], FLUX) == NoPlacement(
        "throttled: no node has a free device: node a"
        f" {occupied}, which is too little now for the weights flux-1-dev (24.0 GB)"
    )
    assert placed([full], SDXL) == Placement("a", ("GPU-a",), "holds the weights sdxl")
    never = node("a", facts(SDXL, room=3, most=10, left=3))
    assert placed([never], FLUX).why.startswith("no capacity: every connected node can keep 10.0 GB")  # type: ignore[union-attr]


def test_a_worker_that_is_to_go_leaves_the_weights_that_no_other_uses() -> None:
    """As when a new version with other contents replaces it on the only node."""
    new, room = weights(sha256="ef" * 32), node("a", facts(FLUX, room=6, most=30, left=6))
    old, other = worker("old", "a", FLUX), worker("other", "a", FLUX)
    elsewhere = worker("elsewhere", "b", FLUX)

    def found(*workers: PlacedWorker, without: str = "") -> Placement | NoPlacement:
        return place(with_weights([new], [room], {one.worker: one for one in workers}, without), ANY)

    assert isinstance(found(old), NoPlacement)
    assert isinstance(found(old, elsewhere, without="old"), Placement)
    assert isinstance(found(old, other, without="old"), NoPlacement)
    assert isinstance(found(old, elsewhere, without="elsewhere"), NoPlacement)


def test_what_a_node_fetches_already_takes_no_room_twice() -> None:
    rooms = [node("a", facts(room=6, most=30, left=6)), node("b", facts())]
    workers = {"w": worker("w", "a", FLUX)}
    found = place(with_weights([FLUX], rooms, workers), ANY)
    assert found == Placement("a", ("GPU-a",), "fetches the weights flux-1-dev already")


NODES = st.lists(
    st.tuples(
        st.sets(st.sampled_from(["flux", "sdxl", "ink"])),
        st.integers(0, 60),
        st.integers(0, 60),
        st.sampled_from([0.0, 0.5, 1.0]),
        st.booleans(),
    ),
    max_size=5,
)
ENTRIES = {"flux": FLUX, "sdxl": SDXL, "ink": weights("ink", 1)}


@given(NODES, st.sets(st.sampled_from(sorted(ENTRIES)), min_size=1))
def test_the_chosen_node_stands_best_of_those_with_a_free_device(nodes, names) -> None:  # type: ignore[no-untyped-def]
    needed = [ENTRIES[name] for name in sorted(names)]
    rooms = []
    for n, (held, room, more, taken, silent) in enumerate(nodes):
        known = {} if silent else facts(*(ENTRIES[name] for name in held), room=room, most=room + more)
        rooms.append(node(f"n{n}", known, taken))
    found = placed(rooms, *needed, needs=Needs(compute="GPU"))
    stands = {room.node: standing(room.facts, needed) for room in rooms}
    free = {room.node for room in rooms if not room.taken[f"GPU-{room.node}"] and not stands[room.node].bars}
    assert isinstance(found, Placement) == bool(free)
    if isinstance(found, Placement):
        assert stands[found.node] == min(stands[name] for name in free)
        assert found.why == stands[found.node].why != ""


@given(NODES)
def test_what_is_missing_fits_where_a_node_is_said_to_have_room(nodes) -> None:  # type: ignore[no-untyped-def]
    needed = list(ENTRIES.values())
    for held, room, more, _, _ in nodes:
        found = standing(facts(*(ENTRIES[name] for name in held), room=room, most=room + more), needed)
        missing = sum(entry.size for name, entry in ENTRIES.items() if name not in held)
        assert found.missing_bytes == missing
        assert (found.rank == HOLDS) == (missing == 0)
        assert not (found.rank == HAS_ROOM and missing > room * GB)
        assert found.rank != UNKNOWN or bool(found.bars)
        assert bool(found.bars) == (missing > room * GB and room + more < 32)
