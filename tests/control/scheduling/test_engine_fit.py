"""Containers go to nodes that can run them, and a job that waits says which cannot, and why."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.auth.secret_references import SecretValues
from stoker.control.config.endpoints import Endpoints
from stoker.control.rules.needs import Needs
from stoker.control.rules.placement import NodeRoom, Placement, place
from stoker.control.rules.types import QueueSample
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.desired import DesiredWorkers
from stoker.control.scheduling.desired_pods import DesiredVolumes
from stoker.control.scheduling.engine_fit import fitting, unfit
from stoker.control.scheduling.worker_scaling import WorkerScaling
from stoker.wire.messages import Device
from tests.control.plane_world import endpoint

GPU, CPU = Device("GPU-1", "gpu", "H100"), Device("cpu", "cpu", "CPU")
NONE = {"containers": "none: there is no socket of docker or podman", "containers_cdi": "no"}
OLD = {"containers": "docker 20.10.24", "containers_cdi": "no"}
NEW = {"containers": "podman 4.3.1", "containers_cdi": "yes"}


@pytest.mark.parametrize(
    ("device", "facts", "why"),
    [
        (CPU, NONE, "has no container engine: there is no socket of docker or podman"),
        (GPU, NONE, "has no container engine: there is no socket of docker or podman"),
        (GPU, OLD, "has docker 20.10.24, which brings no GPUs into containers (CDI)"),
        (CPU, OLD, None),
        (GPU, NEW, None),
        (GPU, {}, None),
    ],
)
def test_what_a_node_can_run(device: Device, facts: dict[str, str], why: str | None) -> None:
    assert unfit(device, facts) == why


def test_one_node_refuses_and_another_takes_it() -> None:
    rooms = [
        NodeRoom("a", (GPU, CPU), {}, facts=OLD),
        NodeRoom("b", (GPU,), {}, facts=NEW),
        NodeRoom("c", (CPU,), {}, facts=NONE),
    ]
    able = fitting("a/b:1", rooms)
    assert [sorted(room.unfit) for room in able] == [["GPU-1"], [], ["cpu"]]
    assert place(able, Needs(compute="GPU")) == Placement("b", ("GPU-1",))
    assert place(able[:1], Needs(compute="CPU")) == Placement("a", ("cpu",))
    assert fitting("", rooms) == rooms


ROOMS = st.lists(
    st.builds(
        NodeRoom,
        st.sampled_from("abc"),
        st.lists(st.sampled_from([GPU, CPU]), max_size=2).map(tuple),
        st.just({}),
        facts=st.sampled_from([NONE, OLD, NEW, {}]),
    ),
    max_size=3,
    unique_by=lambda room: room.node,
)


def suits(compute: str, device: Device, room: NodeRoom) -> bool:
    """Returns True for a device of that kind; "" is a GPU, and a CPU only on a node without GPUs."""
    kind = compute.lower() or ("gpu" if GPU in room.devices else "cpu")
    return device.kind == kind


@given(ROOMS, st.sampled_from(["", "GPU", "CPU"]))
@example([NodeRoom("a", (GPU, CPU), {}, facts=OLD)], "")
def test_what_cannot_take_the_image_has_a_reason_and_gets_nothing(
    rooms: list[NodeRoom], compute: str
) -> None:
    able = fitting("a/b:1", rooms)
    for room in able:
        for device in room.devices:
            assert room.unfit.get(device.uuid) == unfit(device, room.facts)
    suited = [(room, device) for room in able for device in room.devices if suits(compute, device, room)]
    fit = [(room.node, (device.uuid,)) for room, device in suited if device.uuid not in room.unfit]
    found = place(able, Needs(compute=compute))
    if isinstance(found, Placement):
        assert (found.node, found.devices) in fit
    else:
        assert not fit


def reconciled(*nodes: NodeState, image: str = "a/b:1") -> tuple[WorkerScaling, ClusterState, object]:
    wanted = endpoint()
    wanted = replace(wanted, run=replace(wanted.run, image=image))
    cluster = ClusterState()
    cluster.nodes = {node.node: node for node in nodes}
    endpoints = Endpoints({})
    endpoints.load([wanted])
    secrets, volumes = SecretValues(), DesiredVolumes(cluster)
    desired = DesiredWorkers(
        cluster, lambda _: (), volumes.of_node, lambda *_: None, lambda _: None, lambda: 0.0
    )
    made = WorkerScaling(cluster, endpoints, desired, secrets.fill, volumes.rooms, lambda: 0.0, Random(1))
    made.reconcile({wanted.id: QueueSample(endpoint=wanted.id, queued=1)}, 0.0)
    return made, cluster, wanted


def test_a_worker_starts_on_the_node_that_can() -> None:
    scaling, cluster, wanted = reconciled(NodeState("a", 1, (CPU,), NONE), NodeState("b", 1, (CPU,), OLD))
    assert [worker.node for worker in cluster.workers.values()] == ["b"]
    assert scaling.reason(wanted) == "starting"


def test_none_is_started_where_none_can_and_the_job_says_why() -> None:
    scaling, cluster, wanted = reconciled(NodeState("a", 1, (CPU,), NONE))
    assert not cluster.workers, "it would only crash and crash again"
    assert scaling.reason(wanted) == (
        "no capacity: no node has a free device: "
        "node a has no container engine: there is no socket of docker or podman"
    )


def test_a_plain_process_needs_no_engine() -> None:
    _, cluster, _ = reconciled(NodeState("a", 1, (CPU,), NONE), image="")
    assert [worker.node for worker in cluster.workers.values()] == ["a"]
