"""What a worker's and a pod's environment say of their node."""

from __future__ import annotations

from stoker.control.scheduling.node_environment import of_pod, of_worker

FACTS = {"vcpus": "7.5", "data_center": "EU-RO-1", "memory_bytes": "64500000000", "public_ip": "192.0.2.7"}


def test_what_the_node_reports() -> None:
    assert of_worker(FACTS, None) == {"RUNPOD_CPU_COUNT": "7", "RUNPOD_DC_ID": "EU-RO-1"}
    assert of_pod(FACTS, None) == {
        "RUNPOD_CPU_COUNT": "7",
        "RUNPOD_DC_ID": "EU-RO-1",
        "RUNPOD_MEM_GB": "64",
        "RUNPOD_PUBLIC_IP": "192.0.2.7",
    }


def test_what_it_is_held_to() -> None:
    assert of_worker(FACTS, 2.0)["RUNPOD_CPU_COUNT"] == "2"
    assert of_worker(FACTS, 0.25)["RUNPOD_CPU_COUNT"] == "1"


def test_what_is_not_known_is_left_out() -> None:
    assert of_worker({}, None) == of_pod({}, None) == {}
