"""What placement learns of nodes from the cluster state: what holds each device, and why a node is closed."""

from __future__ import annotations

import pytest

from stoker.control.rules.needs import Needs
from stoker.control.rules.placement import NodeRoom, NoPlacement, Placement, after, place
from stoker.control.scheduling.cluster_state import ClusterState, NodeState
from stoker.control.scheduling.placed import PlacedPod, PlacedWorker
from stoker.wire.messages import Device, DeviceSample

GPU, OTHER, CPU = (
    Device("GPU-0", "gpu", "H200"),
    Device("GPU-1", "gpu", "H200", 1),
    Device("cpu", "cpu", "CPU"),
)


def cluster(*nodes: NodeState) -> ClusterState:
    made = ClusterState()
    made.nodes = {node.node: node for node in nodes}
    return made


def worker(name: str, *devices: str, node: str = "n", needs: Needs | None = None) -> PlacedWorker:
    state = PlacedWorker(name, "e", 1, node, 1, "ready", devices=devices)
    state.needs = needs or Needs()
    return state


def only(made: ClusterState) -> NodeRoom:
    (room,) = made.rooms()
    return room


def test_workers_and_pods_hold_their_part_of_each_of_their_devices() -> None:
    made = cluster(NodeState("n", 1, (GPU, OTHER)))
    assert only(made).taken == {}
    made.add_worker(worker("w1", "GPU-0", needs=Needs(share=0.25)))
    made.add_worker(worker("w2", "GPU-0", needs=Needs(share=0.5)))
    made.pods["p"] = PlacedPod("p", "n", ("GPU-1", "GPU-0"), Needs(gpu_count=2, share=0.25))
    made.pods["q"] = PlacedPod("q", "another", ("GPU-1",))
    assert only(made).taken == {"GPU-0": 1.0, "GPU-1": 0.25}
    made.remove_worker("w2")
    assert only(made).taken == {"GPU-0": 0.5, "GPU-1": 0.25}


def test_a_worker_of_which_nothing_is_known_holds_all_of_its_device() -> None:
    made = cluster(NodeState("n", 1, (GPU,)))
    made.add_worker(worker("w1", "GPU-0", "GPU-gone"))
    assert only(made).taken == {"GPU-0": 1.0}


def test_a_pod_holds_its_devices_while_its_node_is_away() -> None:
    made = cluster(NodeState("n", 1, (GPU,)))
    made.pods["p"] = PlacedPod("p", "n", ("GPU-0",))
    made.remove_node("n", 1)
    assert made.rooms() == []
    made.nodes["n"] = NodeState("n", 2, (GPU,))
    assert only(made).taken == {"GPU-0": 1.0}


def test_processors_are_held_by_the_node_s_own_count() -> None:
    made = cluster(NodeState("n", 1, (CPU,), {"vcpus": "8"}))
    made.add_worker(worker("w1", "cpu", needs=Needs(vcpus=2)))
    assert only(made).taken == {"cpu": 0.25}


def test_a_node_reports_why_it_is_closed_and_which_devices_are_unhealthy() -> None:
    node = NodeState("n", 1, (GPU, OTHER), {"cuda": "12.8"})
    node.note([DeviceSample("GPU-1", ill="Xid 79")])
    made = cluster(node)
    room = only(made)
    assert (room.closed, room.unhealthy, room.facts) == ("", {"GPU-1": "Xid 79"}, {"cuda": "12.8"})
    node.drained = True
    assert only(made).closed == "is drained"
    node.draining = True
    assert only(made).closed == "is about to go"


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_is_placed_is_taken_for_the_next(share: float) -> None:
    rooms = cluster(NodeState("n", 1, (GPU, OTHER), {"gpu_sharing": "yes"}), NodeState("m", 1, ())).rooms()
    needs, places = Needs(share=share), []
    while isinstance(found := place(rooms, needs), Placement):
        places.append(found.devices[0])
        rooms = after(rooms, found, needs)
    assert places == ["GPU-0", "GPU-1"] if share == 1.0 else ["GPU-0", "GPU-0", "GPU-1", "GPU-1"]
    assert isinstance(found, NoPlacement)
