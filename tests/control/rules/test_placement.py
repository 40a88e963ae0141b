"""Where workers and pods go, which slot is offered first, and who is stopped."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.needs import Needs
from stoker.control.rules.placement import (
    CPU_WORKERS,
    HOST_MEMORY,
    NodeRoom,
    NoPlacement,
    Placement,
    after,
    capacity,
    charges,
    place,
    takes,
    would_be_on_cpus,
)
from stoker.wire.messages import Device

GIB = 1 << 30


def gpu(n: int, name: str = "H200", memory: int | None = None, kind: str = "gpu") -> Device:
    return Device(uuid=f"GPU-{n}", kind=kind, name=name, index=n, memory_total=memory)


CPU = Device(uuid="CPU-0", kind="cpu", name="a processor")
MIG = gpu(9, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10 * GIB, kind="mig")
CPU_2 = replace(CPU, uuid="CPU-2", index=1)
ANY, CPUS = Needs(), Needs(compute="CPU")


def room(*devices: Device, node: str = "n", closed: str = "", **held: float) -> NodeRoom:
    """`held` by the last part of a device's uuid: g0 for GPU-0."""
    taken = {f"GPU-{name[1:]}" if name[0] == "g" else "CPU-0": share for name, share in held.items()}
    return NodeRoom(node, devices, taken, closed=closed)


def why(rooms: list[NodeRoom], needs: Needs = ANY) -> str:
    found = place(rooms, needs)
    assert isinstance(found, NoPlacement)
    return found.why


# ---- what a worker would run on


def test_a_worker_is_for_cpus_where_no_node_has_a_gpu_for_it() -> None:
    gpus, cpus = room(gpu(0), CPU, g0=1.0), room(CPU, node="m")
    assert would_be_on_cpus([cpus], ANY)
    assert not would_be_on_cpus([cpus, gpus], ANY), "a GPU that others hold is one"
    assert not would_be_on_cpus([cpus, room(MIG)], ANY)
    assert not would_be_on_cpus([], ANY), "a GPU is what an endpoint is made for"
    assert would_be_on_cpus([gpus], Needs(compute="CPU"))
    for wants_a_gpu in (Needs(compute="GPU"), Needs(gpu_types=("H200",)), Needs(gpu_count=2)):
        assert not would_be_on_cpus([cpus], wants_a_gpu)


def test_a_gpu_of_a_node_that_it_may_not_go_to_is_none_for_it() -> None:
    rooms = [
        replace(room(gpu(0), CPU), facts={"data_center": "EU-RO-1"}),
        replace(room(CPU, node="m"), facts={"data_center": "EU-CZ-1"}),
    ]
    assert would_be_on_cpus(rooms, Needs(data_centers=("EU-CZ-1",)))
    assert not would_be_on_cpus(rooms, Needs(data_centers=("EU-RO-1",)))


# ---- whether a device is free


def test_without_a_node_there_is_no_capacity() -> None:
    assert why([]) == "no capacity: no node is connected"


def test_a_gpu_belongs_to_one_worker() -> None:
    assert place([room(gpu(0), gpu(1), g0=1)], ANY) == Placement("n", ("GPU-1",))
    assert why([room(gpu(0), g0=1)]) == "throttled: no node has a free device: node n has none free"


def test_nothing_is_placed_on_an_unhealthy_device() -> None:
    unhealthy = {"GPU-0": "Xid 79"}
    assert place([replace(room(gpu(0), gpu(1)), unhealthy=unhealthy)], ANY) == Placement("n", ("GPU-1",))
    assert place([replace(room(CPU, CPU_2), unhealthy={"CPU-0": "Xid 79"})], CPUS) == Placement(
        "n", ("CPU-2",)
    )
    out = "has none free; device GPU-0 is out of placement: Xid 79"
    alone = replace(room(gpu(0)), unhealthy=unhealthy)
    assert why([alone]) == f"throttled: no node has a free device: node n {out}"
    full = room(gpu(1), node="m", g1=1)
    assert why([alone, full]) == f"throttled: no node has a free device: node m has none free; node n {out}"
    two = replace(room(gpu(0), gpu(1)), unhealthy={**unhealthy, "GPU-1": "lost"})
    assert why([two]) == f"throttled: no node has a free device: node n {out}, and 1 more"


def test_nothing_is_placed_on_a_closed_node() -> None:
    closed, other = room(gpu(0), node="a", closed="is drained"), room(gpu(1), node="b")
    assert place([closed, other], ANY) == Placement("b", ("GPU-1",))
    assert why([closed]) == "no capacity: every connected node is drained"
    leaving = room(gpu(1), node="b", closed="is about to go")
    full = "no capacity: no node has a free device: node a is drained; node b is about to go"
    assert why([leaving, closed]) == full
    assert why([closed, room(gpu(1), node="b", g1=1)]).startswith("throttled: ")


def test_a_container_goes_where_the_engine_can_bring_the_device() -> None:
    unfit = {"GPU-0": "has docker 20, which brings no GPUs"}
    assert place([replace(room(gpu(0), CPU), unfit=unfit)], CPUS) == Placement("n", ("CPU-0",))
    assert why([replace(room(gpu(0)), unfit=unfit)]) == (
        "no capacity: no node has a free device: node n has docker 20, which brings no GPUs"
    )


def test_work_that_requests_no_cpu_waits_for_the_gpus_of_a_node() -> None:
    busy, cpus = room(gpu(0), CPU, g0=1), room(CPU, node="m")
    assert why([busy]) == "throttled: no node has a free device: node n has none free"
    assert place([busy, cpus], ANY) == Placement("m", ("CPU-0",))
    assert place([busy], CPUS) == Placement("n", ("CPU-0",))
    assert place([busy, cpus], CPUS) == Placement("m", ("CPU-0",)), "a node without GPUs comes first"
    assert place([busy, replace(cpus, taken={"CPU-0": 1.0})], CPUS) == Placement("n", ("CPU-0",))


# ---- which of several


def test_a_gpu_comes_before_a_mig_device_and_that_before_a_cpu() -> None:
    rooms = [room(CPU, node="a"), room(MIG, node="b"), room(gpu(0), gpu(1), node="c", g0=1)]
    assert place(rooms, ANY) == Placement("c", ("GPU-1",))
    assert place(rooms[:2], ANY) == Placement("b", ("GPU-9",))
    assert place(rooms[:1], ANY) == Placement("a", ("CPU-0",))


def test_the_emptiest_node_comes_first_and_then_the_first_by_name() -> None:
    rooms = [room(gpu(0), gpu(1), node="a", g0=1), room(gpu(2), node="c"), room(gpu(3), node="b")]
    assert place(rooms, ANY) == Placement("b", ("GPU-3",))
    assert place(rooms[:2], ANY) == Placement("c", ("GPU-2",))


def test_the_first_type_with_room_anywhere_wins() -> None:
    rooms = [room(gpu(0, "L4"), node="a"), room(gpu(1, "H200"), gpu(2, "H200"), node="b", g1=1)]
    assert place(rooms, Needs(gpu_types=("H200", "L4"))) == Placement("b", ("GPU-2",))
    assert place(rooms, Needs(gpu_types=("B200", "L4", "H200"))) == Placement("a", ("GPU-0",))
    assert why(rooms, Needs(gpu_types=("B200", "A40"))) == (
        "no capacity: no node has a free GPU of B200 or A40: node a has L4; node b has H200"
    )


def test_a_published_name_with_two_spaces_is_the_same_gpu() -> None:
    rooms = [room(gpu(0, "NVIDIA RTX A4500"))]
    assert isinstance(place(rooms, Needs(gpu_types=("NVIDIA  RTX A4500",))), Placement)
    assert isinstance(place(rooms, Needs(gpu_types=("NVIDIA RTX A450",))), NoPlacement)


def test_a_mig_device_is_meant_only_by_its_own_name() -> None:
    rooms = [room(MIG)]
    assert place(rooms, Needs(gpu_types=(MIG.name,))) == Placement("n", ("GPU-9",))
    assert why(rooms, Needs(gpu_types=("NVIDIA H100 80GB HBM3",))) == (
        "no capacity: no node has a free GPU of NVIDIA H100 80GB HBM3: "
        "node n has NVIDIA H100 80GB HBM3 MIG 1g.10gb (10 GiB)"
    )


# ---- several GPUs


def test_several_gpus_are_on_one_node_and_of_one_name() -> None:
    split = [room(gpu(0), gpu(1), node="a", g0=1), room(gpu(2), node="b")]
    assert why(split, Needs(gpu_types=("H200",), gpu_count=2)) == (
        "throttled: no node has 2 free GPUs of H200: node a has 1 free; node b has 1 in all"
    )
    mixed = room(gpu(0, "L4"), gpu(1, "H200"), gpu(2, "L4"))
    assert place([mixed], Needs(gpu_count=2)) == Placement("n", ("GPU-0", "GPU-2"))
    assert why([mixed], Needs(gpu_count=3)).endswith("node n has 2 in all")
    assert place([room(gpu(0), gpu(1), gpu(2), g1=1)], Needs(gpu_count=2)) == Placement(
        "n", ("GPU-0", "GPU-2")
    )


def test_several_gpus_are_neither_a_cpu_nor_unnamed_slices() -> None:
    slices = room(CPU, MIG, replace(MIG, uuid="MIG-2"))
    assert isinstance(place([slices], Needs(gpu_count=2)), NoPlacement)
    assert place([slices], Needs(gpu_count=2, gpu_types=(MIG.name,))) == Placement("n", ("GPU-9", "MIG-2"))


# ---- memory, CUDA, where


def test_a_gpu_has_at_least_the_memory_that_is_requested() -> None:
    rooms = [room(gpu(0, memory=24 * GIB), node="a"), room(gpu(1), node="b"), room(CPU, node="c")]
    assert place(rooms, Needs(gpu_memory_bytes=24 * GIB)) == Placement("a", ("GPU-0",))
    assert why(rooms, Needs(gpu_memory_bytes=24 * GIB + 1, gpu_types=("H200",))) == (
        "no capacity: no node has a free GPU of H200 with 24 GiB of memory: node a has H200 (24 GiB); "
        "node b has H200 (memory unknown); node c has a processor"
    )


def test_a_gpu_that_uses_the_memory_of_its_host_has_it() -> None:
    spark = replace(gpu(0, "NVIDIA GB10", 120 * GIB), unified_memory=True)
    assert place([room(spark)], Needs(gpu_memory_bytes=80 * GIB)) == Placement("n", ("GPU-0",))
    assert why([room(spark)], Needs(gpu_memory_bytes=141 * GIB)) == (
        "no capacity: no node has a free GPU with 141 GiB of memory: "
        "node n has NVIDIA GB10 (120 GiB of the host's)"
    )


def cuda(version: str, node: str) -> NodeRoom:
    return replace(room(gpu(0), CPU, node=node), facts={"cuda": version})


def test_cuda_versions_compare_as_numbers() -> None:
    rooms = [cuda("12.10", "a")]
    assert isinstance(place(rooms, Needs(min_cuda="12.9")), Placement)
    assert isinstance(place(rooms, Needs(min_cuda="12.10")), Placement)
    assert why(rooms, Needs(min_cuda="12.11")) == (
        "no capacity: no node has a free GPU with CUDA 12.11 or later: node a has CUDA 12.10"
    )
    assert place([cuda("12.10", "a"), cuda("12.1", "b")], Needs(cuda_versions=("12.1",))) == (
        Placement("b", ("GPU-0",))
    )
    assert why(rooms, Needs(cuda_versions=("12.1", "13.0"))) == (
        "no capacity: no node has a free GPU with CUDA 12.1 or 13.0: node a has CUDA 12.10"
    )


def test_a_node_that_does_not_tell_its_cuda_version_is_not_trusted_to_have_one() -> None:
    for one in ("", "?", "12.x"):
        for needs in (Needs(min_cuda="11.8"), Needs(cuda_versions=("12.1",))):
            assert why([cuda(one, "a")], needs).endswith("node a does not tell its CUDA version")
        assert isinstance(place([cuda(one, "a")], Needs(min_cuda="11.8", compute="CPU")), Placement)


def test_data_centers_and_labels_are_those_that_the_agent_was_started_with() -> None:
    here = {"data_center": "EU-RO-1", "label.tier": "gold"}
    rooms = [replace(room(gpu(0), node="a"), facts=here), room(gpu(1), node="b")]
    assert place(rooms, Needs(data_centers=("US-1", "EU-RO-1"))) == Placement("a", ("GPU-0",))
    assert place(rooms, Needs(labels={"tier": "gold"})) == Placement("a", ("GPU-0",))
    assert why(rooms, Needs(data_centers=("US-1", "US-2"))) == (
        "no capacity: no node has a free device in US-1 or US-2: "
        "node a is in data center EU-RO-1; node b reports no data center"
    )
    assert why(rooms, Needs(labels={"tier": "iron"})) == (
        "no capacity: no node has a free device labelled tier=iron: "
        "node a has the label tier=gold; node b has no label tier"
    )


# ---- processors


def test_a_cpu_carries_several_but_not_any_number() -> None:
    assert place([room(CPU, c=(CPU_WORKERS - 1) / CPU_WORKERS)], ANY) == Placement("n", ("CPU-0",))
    assert isinstance(place([room(CPU, c=1)], ANY), NoPlacement)


def test_what_is_for_one_kind_is_not_placed_on_the_other() -> None:
    assert place([room(gpu(0), CPU)], Needs(compute="CPU")) == Placement("n", ("CPU-0",))
    assert why([room(CPU)], Needs(compute="GPU")) == (
        "no capacity: no node has a free GPU: node n has a processor"
    )
    assert why([room(gpu(0))], Needs(compute="CPU")) == (
        "no capacity: no node has a free CPU: node n has H200"
    )
    assert why([room(CPU)], Needs(compute="CPU", data_centers=("EU",), labels={"a": "b"})) == (
        "no capacity: no node has a free CPU in EU labelled a=b: node n reports no data center"
    )


def test_who_asks_for_something_of_a_gpu_gets_no_cpu() -> None:
    small = replace(room(CPU), facts={"cuda": "12.1"})
    for needs in (
        Needs(gpu_types=("a processor",)),
        Needs(gpu_count=2),
        Needs(gpu_memory_bytes=1),
        Needs(min_cuda="11.8"),
        Needs(cuda_versions=("12.1",)),
    ):
        assert isinstance(place([small], needs), NoPlacement)


def test_the_capacity_is_how_many_could_run_if_nothing_else_did() -> None:
    gpus = room(gpu(0), gpu(1), CPU, g0=1)
    assert capacity([gpus, room(CPU, node="m")], ANY) == 3
    assert capacity([gpus, room(CPU, node="m")], CPUS) == 2, "one on each CPU"
    assert capacity([gpus, room(gpu(2), node="m", closed="is drained")], ANY) == 2
    assert capacity([room(gpu(0), gpu(1), gpu(2))], Needs(gpu_count=2)) == 1
    assert capacity([room(gpu(0), gpu(1), gpu(2, "L4"), gpu(3, "L4"))], Needs(gpu_count=2)) == 2
    shared = replace(room(gpu(0), gpu(1)), facts={"gpu_sharing": "yes"})
    assert (capacity([shared], Needs(share=0.3)), capacity([shared], Needs(share=0.5))) == (6, 4)
    assert capacity([room(gpu(0, memory=12 * GIB), gpu(1, memory=48 * GIB))], LARGE) == 1
    assert capacity([room(CPU)], LARGE) == 0
    assert capacity([], ANY) == 0


LARGE = Needs(gpu_memory_bytes=36_000_000_000)

HOST = {"vcpus": "16", "memory_bytes": str(64 * GIB)}


def test_work_on_gpus_takes_cpu_beside_them() -> None:
    there = (gpu(0), gpu(1), CPU)
    each = 1 / CPU_WORKERS
    assert charges(there, HOST, ANY, ("GPU-0",)) == {"GPU-0": 1.0, "CPU-0": each}
    assert charges(there, HOST, Needs(gpu_count=2), ("GPU-0", "GPU-1"))["CPU-0"] == 2 * each
    assert charges(there, HOST, Needs(share=0.25, vcpus=4), ("GPU-0",)) == {"GPU-0": 0.25, "CPU-0": 0.25}
    assert charges(there, HOST, Needs(memory_bytes=16 * GIB), ("GPU-0",))[HOST_MEMORY] == 0.25
    assert charges(there, {}, Needs(memory_bytes=16 * GIB), ("CPU-0",)) == {"CPU-0": each}
    assert charges((gpu(0),), HOST, ANY, ("GPU-0",)) == {"GPU-0": 1.0}
    assert charges(there, HOST, ANY, ()) == {}
    assert charges(there, HOST, ANY, ("a GPU of another time",)) == {}


def test_the_memory_of_the_host_is_counted() -> None:
    needs = Needs(compute="CPU", vcpus=1, memory_bytes=24 * GIB)
    rooms = [NodeRoom("n", (gpu(0), CPU), {}, facts=HOST)]
    for _ in range(2):
        found = place(rooms, needs)
        assert isinstance(found, Placement)
        rooms = after(rooms, found, needs)
    assert why(rooms, needs) == (
        "throttled: no node has 1 free vCPUs with 24 GiB of memory: node n has 16 GiB of memory free"
    )
    assert isinstance(place(rooms, Needs(compute="CPU", vcpus=14)), Placement)
    assert why(rooms, replace(needs, memory_bytes=65 * GIB)) == (
        "no capacity: no node has 1 free vCPUs with 65 GiB of memory: node n has 64 GiB in all"
    )
    unknown = [replace(rooms[0], facts={"vcpus": "16"})]
    assert isinstance(place(unknown, needs), Placement), "what a node does not tell is not held against it"


@given(
    st.lists(
        st.builds(
            Needs,
            compute=st.sampled_from(["", "CPU", "GPU"]),
            gpu_count=st.integers(1, 2),
            vcpus=st.none() | st.integers(1, 8),
            memory_bytes=st.none() | st.integers(1, 32).map(lambda size: size * GIB),
        ),
        max_size=24,
    )
)
def test_no_device_is_overfilled_by_what_is_placed_on_it(wanted: list[Needs]) -> None:
    """What GPU work takes of the CPU beside it may exceed the CPU: nothing for CPUs is placed there then."""
    rooms = [NodeRoom("a", (gpu(0), gpu(1), CPU), {}, facts=HOST), NodeRoom("b", (CPU,), {}, facts=HOST)]
    for needs in wanted:
        found = place(rooms, needs)
        if isinstance(found, Placement):
            rooms = after(rooms, found, needs)
            [chosen] = [room for room in rooms if room.node == found.node]
            assert all(chosen.taken[uuid] <= 1 + 1e-6 for uuid in found.devices)
            if "CPU-0" in found.devices:
                assert chosen.taken.get(HOST_MEMORY, 0.0) <= 1 + 1e-6
                assert needs.compute == "CPU" or found.node == "b"


def test_vcpus_are_counted_where_the_node_reports_how_many_it_has() -> None:
    small = replace(room(CPU, c=0.5), facts={"vcpus": "8"})
    assert isinstance(place([small], Needs(compute="CPU", vcpus=4)), Placement)
    assert why([small], Needs(compute="CPU", vcpus=5)) == (
        "throttled: no node has 5 free vCPUs: node n has 4 free"
    )
    odd = replace(room(CPU, c=2 / 3), facts={"vcpus": "4"})
    assert why([odd], Needs(compute="CPU", vcpus=2)) == (
        "throttled: no node has 2 free vCPUs: node n has 1.33 free"
    )
    full = replace(room(CPU, c=1.0), facts={"vcpus": "4"})
    assert why([full], Needs(compute="CPU", vcpus=2)) == (
        "throttled: no node has 2 free vCPUs: node n has none free"
    )
    assert why([small], Needs(compute="CPU", vcpus=9)) == (
        "no capacity: no node has 9 free vCPUs: node n has 8 in all"
    )
    for facts in ({}, {"vcpus": "many"}, {"vcpus": "0"}, {"vcpus": "nan"}):
        assert takes(CPU, Needs(vcpus=4), facts) == 1 / CPU_WORKERS
    assert takes(CPU, ANY, {"vcpus": "8"}) == 1 / CPU_WORKERS


# ---- shares of a GPU


SHARED = {"gpu_sharing": "yes"}
NINTH = Needs(share=1 / 9)


def test_shares_fill_one_gpu_before_the_next() -> None:
    both = replace(room(gpu(0), gpu(1), g1=0.5), facts=SHARED)
    assert place([both], Needs(share=0.5)) == Placement("n", ("GPU-1",))
    assert place([both], Needs(share=0.6)) == Placement("n", ("GPU-0",))
    assert place([both], ANY) == Placement("n", ("GPU-0",)), "a whole GPU is one that nobody shares"
    other = replace(room(gpu(2), node="a"), facts=SHARED)
    assert place([other, both], Needs(share=0.5)) == Placement("n", ("GPU-1",))


def test_nine_ninths_are_a_whole() -> None:
    held = sum(1 / 9 for _ in range(8))
    assert held + 1 / 9 > 1, "as computers count"
    assert isinstance(place([replace(room(gpu(0), g0=held), facts=SHARED)], NINTH), Placement)
    assert isinstance(place([replace(room(gpu(0), g0=held + 1 / 9), facts=SHARED)], NINTH), NoPlacement)


def test_the_message_for_a_share_that_is_too_large_names_what_is_left() -> None:
    needs = Needs(share=0.5, compute="GPU")
    shared = replace(room(gpu(0), gpu(1), g0=0.75, g1=1), facts={"gpu_sharing": "yes"})
    assert why([shared], needs) == "throttled: no node has 50% of a GPU free: node n has 25% free"
    full = replace(room(gpu(0), g0=1), facts={"gpu_sharing": "yes"})
    assert why([full], needs) == "throttled: no node has 50% of a GPU free: node n has none free"


def test_a_gpu_is_shared_only_where_each_process_is_seen() -> None:
    blind = replace(room(gpu(0)), facts={"gpu_sharing": "no: it does not see the host's processes"})
    assert why([blind], Needs(share=0.4, compute="GPU")) == (
        "no capacity: no node has 40% of a GPU free: "
        "node n shares no GPU: it does not see the host's processes"
    )
    assert isinstance(place([room(gpu(0))], Needs(share=0.4, compute="GPU")), NoPlacement), (
        "unknown is not yes"
    )
    assert isinstance(place([blind], ANY), Placement)


# ---- whatever the fleet


def test_a_long_refusal_names_the_nearest_nodes() -> None:
    rooms = [room(gpu(0), node=f"n{n}", closed="is drained") for n in range(4)]
    rooms.append(room(gpu(0), node="z", g0=1))
    assert why(rooms) == (
        "throttled: no node has a free device: node z has none free; node n0 is drained; "
        "node n1 is drained; and 2 more"
    )


NAMES = ("H200", "L4")
FACTS = st.fixed_dictionaries(
    {},
    optional={
        "cuda": st.sampled_from(["12.1", "12.9", "12.10", "?"]),
        "data_center": st.sampled_from(["EU", "US"]),
        "label.tier": st.sampled_from(["gold", "iron"]),
        "vcpus": st.sampled_from(["2", "8"]),
        "gpu_sharing": st.sampled_from(["yes", "no: blind"]),
    },
)
SHARES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def fleets(draw: st.DrawFn) -> list[NodeRoom]:
    rooms = []
    for node in "abc"[: draw(st.integers(0, 3))]:
        devices = [
            Device(
                f"{node}{n}",
                kind,
                draw(st.sampled_from(NAMES)),
                n,
                memory_total=draw(st.sampled_from([None, 24 * GIB, 80 * GIB])),
            )
            for n, kind in enumerate(draw(st.lists(st.sampled_from(["gpu", "mig", "cpu"]), max_size=4)))
        ]
        uuids = [device.uuid for device in devices]
        some = st.sets(st.sampled_from(uuids)) if uuids else st.just(set())
        rooms.append(
            NodeRoom(
                node,
                tuple(devices),
                {uuid: draw(SHARES) for uuid in uuids},
                dict.fromkeys(draw(some), "ill") if draw(st.booleans()) else {},
                draw(FACTS),
                draw(st.sampled_from(["", "", "", "is drained"])),
                dict.fromkeys(draw(some), "no engine") if draw(st.booleans()) else {},
            )
        )
    return rooms


NEEDS = st.builds(
    Needs,
    compute=st.sampled_from(["", "GPU", "CPU"]),
    gpu_types=st.sampled_from([(), (), ("H200",), ("L4", "H200"), ("B200", "L4")]),
    gpu_count=st.sampled_from([1, 1, 2]),
    gpu_memory_bytes=st.sampled_from([None, None, 48 * GIB]),
    share=st.sampled_from([1.0, 1.0, 0.5]),
    min_cuda=st.sampled_from(["", "", "12.9"]),
    cuda_versions=st.sampled_from([(), (), ("12.1", "12.10")]),
    data_centers=st.sampled_from([(), (), ("EU",)]),
    labels=st.sampled_from([{}, {}, {"tier": "gold"}]),
    vcpus=st.sampled_from([None, 4]),
)


def satisfies(room: NodeRoom, devices: tuple[Device, ...], needs: Needs) -> bool:
    """The rules, said another way: whether one worker may have exactly these devices."""
    if room.closed or any(d.uuid in room.unhealthy or d.uuid in room.unfit for d in devices):
        return False
    if needs.data_centers and room.facts.get("data_center") not in needs.data_centers:
        return False
    if any(room.facts.get(f"label.{name}") != value for name, value in needs.labels.items()):
        return False
    if {device.kind for device in devices} == {"cpu"}:
        plain = not (needs.gpu_types or needs.gpu_count > 1 or needs.gpu_memory_bytes)
        plain = plain and not (needs.min_cuda or needs.cuda_versions)
        vcpus = room.facts.get("vcpus")
        part = needs.vcpus / float(vcpus) if needs.vcpus and vcpus else 1 / CPU_WORKERS
        fits = room.taken[devices[0].uuid] + part <= 1
        return len(devices) == 1 and fits and (needs.compute == "CPU" or (needs.compute == "" and plain))
    if needs.compute == "CPU" or len(devices) != needs.gpu_count or len({d.name for d in devices}) > 1:
        return False
    return _gpus_satisfy(room, devices, needs)


def _gpus_satisfy(room: NodeRoom, devices: tuple[Device, ...], needs: Needs) -> bool:
    versions = {"12.1": 1, "12.9": 9, "12.10": 10}
    minor = versions.get(room.facts.get("cuda", ""))
    if needs.min_cuda and (minor is None or minor < 9):
        return False
    if needs.cuda_versions and minor not in (1, 10):
        return False
    if needs.share < 1 and room.facts.get("gpu_sharing") != "yes":
        return False
    if any(d.kind == "cpu" or (needs.gpu_types and d.name not in needs.gpu_types) for d in devices):
        return False
    if len(devices) > 1 and not needs.gpu_types and any(d.kind == "mig" for d in devices):
        return False
    least = needs.gpu_memory_bytes or 0
    enough = all(not least or (d.memory_total or 0) >= least for d in devices)
    return enough and all(room.taken[d.uuid] + needs.share <= 1 for d in devices)


def choices(rooms: list[NodeRoom], needs: Needs) -> list[tuple[Device, ...]]:
    return [
        devices
        for room in rooms
        for count in {1, needs.gpu_count}
        for devices in combinations(room.devices, count)
        if satisfies(room, devices, needs)
    ]


def preference(device: Device, needs: Needs) -> int:
    if device.kind != "cpu" and needs.gpu_types:
        return needs.gpu_types.index(device.name)
    return ("gpu", "mig", "cpu").index(device.kind)


@given(fleets(), NEEDS)
def test_a_place_satisfies_every_need_and_is_found_where_there_is_one(
    rooms: list[NodeRoom], needs: Needs
) -> None:
    found, open_to = place(rooms, needs), choices(rooms, needs)
    if isinstance(found, NoPlacement):
        assert open_to == []
        assert found.why.startswith(("throttled: ", "no capacity: "))
        return
    there = next(room for room in rooms if room.node == found.node)
    chosen = tuple(next(d for d in there.devices if d.uuid == uuid) for uuid in found.devices)
    assert satisfies(there, chosen, needs)
    best = min(preference(devices[0], needs) for devices in open_to)
    assert preference(chosen[0], needs) == best, "a later wish was taken before an earlier one"


@given(fleets(), st.lists(NEEDS, max_size=12))
def test_no_device_ever_holds_more_than_it_has(rooms: list[NodeRoom], wanted: list[Needs]) -> None:
    for needs in wanted:
        found = place(rooms, needs)
        if isinstance(found, Placement):
            at = next(n for n, room in enumerate(rooms) if room.node == found.node)
            there = rooms[at]
            taken = dict(there.taken)
            for device in there.devices:
                if device.uuid in found.devices:
                    taken[device.uuid] += takes(device, needs, there.facts)
                    assert taken[device.uuid] <= 1.0 + 1e-6
            rooms[at] = replace(there, taken=taken)


@given(fleets(), NEEDS)
def test_throttled_is_reported_only_where_others_hold_or_bad_health_bars_what_would_do(
    rooms: list[NodeRoom], needs: Needs
) -> None:
    found = place(rooms, needs)
    if isinstance(found, NoPlacement):
        emptied = [replace(room, taken=dict.fromkeys(room.taken, 0.0), unhealthy={}) for room in rooms]
        assert found.why.startswith("throttled: ") == isinstance(place(emptied, needs), Placement), found.why
