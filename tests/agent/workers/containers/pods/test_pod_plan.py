"""A pod's container in the words of each engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.agent.pods.containers import PodContainers
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.pods.plan import docker_pod_request, own_volume, pod_plan, podman_pod_request
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.images import Images
from stoker.agent.workers.containers.plan import ContainerLimits, EngineFacts
from stoker.wire.messages import Device, PodPort, PodSpec, RegistryAuth, WorkerLimits

SPEC = PodSpec(
    "p1",
    3,
    "RUNNING",
    "an/image",
    restarts=2,
    registry=RegistryAuth("robot", "swordfish"),
    env={"RUNPOD_POD_ID": "mine", "A": "b"},
    ports=(
        PodPort(8000, "http"),
        PodPort(22, "tcp"),
        PodPort(8000, "tcp"),
        PodPort(53, "udp"),
        PodPort(70_000, "tcp"),
    ),
    limits=WorkerLimits(memory_bytes=1 << 30, cpus=2.0),
    disk_bytes=5 << 30,
)
PLAN = pod_plan(
    SPEC, "sha256:1", ("GPU-1", "GPU-2"), "", "agent-1", ContainerLimits(), (20_001, 20_002, 20_003, 20_004)
)


def test_ports_gpus_limits_and_labels() -> None:
    docker, podman = docker_pod_request(PLAN), podman_pod_request(PLAN, "stoker-p1")
    host = docker["HostConfig"]
    bound = {target: [one["HostPort"] for one in places] for target, places in host["PortBindings"].items()}
    assert bound == {"8000/tcp": ["20001"], "22/tcp": ["20002"], "53/udp": ["20003"], "20004/tcp": ["20004"]}
    assert docker["ExposedPorts"].keys() == bound.keys()
    assert [(one["container_port"], one["host_port"], one["protocol"]) for one in podman["portmappings"]] == [
        (8000, 20_001, "tcp"),
        (22, 20_002, "tcp"),
        (53, 20_003, "udp"),
        (20_004, 20_004, "tcp"),
    ]
    assert host["DeviceRequests"][0]["DeviceIDs"] == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert [one["path"] for one in podman["devices"]] == ["nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"]
    assert (host["Memory"], host["NanoCpus"], host["StorageOpt"]) == (1 << 30, 2e9, {"size": str(5 << 30)})
    assert podman["storage_opts"] == {"size": str(5 << 30)}
    labels = {"stoker.agent": "agent-1", "stoker.pod": "p1"}
    labels |= {"stoker.pod.version": "3", "stoker.pod.restarts": "2"}
    labels["stoker.pod.ports"] = "8000/tcp=20001 22/tcp=20002 53/udp=20003 70000/tcp=20004"
    assert docker["Hostname"] == podman["hostname"] == "p1"
    assert docker["Labels"] == podman["labels"] == labels


def test_it_is_neither_privileged_nor_on_the_nodes_network() -> None:
    docker, podman = docker_pod_request(PLAN), podman_pod_request(PLAN, "stoker-p1")
    assert docker["HostConfig"]["NetworkMode"] == podman["netns"]["nsmode"] == "bridge"
    assert not {"Privileged", "CapAdd", "SecurityOpt", "PidMode"} & docker["HostConfig"].keys()
    assert not {"privileged", "cap_add", "pidns"} & podman.keys()


def test_its_environment_names_its_node_and_no_secret_of_ours() -> None:
    assert PLAN.environment["RUNPOD_POD_ID"] == PLAN.environment["STOKER_POD_ID"] == "p1"
    assert (PLAN.environment["RUNPOD_GPU_COUNT"], PLAN.environment["A"]) == ("2", "b")
    assert PLAN.environment["RUNPOD_POD_HOSTNAME"] == "p1"
    ports = {name: port for name, port in PLAN.environment.items() if name.startswith("RUNPOD_TCP_PORT_")}
    assert ports == {
        "RUNPOD_TCP_PORT_8000": "20001",
        "RUNPOD_TCP_PORT_22": "20002",
        "RUNPOD_TCP_PORT_70000": "20004",
    }
    assert "CUDA_VISIBLE_DEVICES" not in PLAN.environment
    assert PLAN.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "swordfish" not in repr(docker_pod_request(PLAN))


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "stoker-p1"),
        ({"volume_bytes": 1 << 30}, "stoker-p1"),
        ({"volume_bytes": 0}, ""),
        ({"volume_path": ""}, ""),
        ({"volume": "shared"}, ""),
    ],
)
def test_when_it_has_a_volume_of_its_own(fields: dict[str, object], name: str) -> None:
    assert own_volume(PodSpec("p1", 1, "RUNNING", "i", **fields)) == name  # type: ignore[arg-type]


async def test_what_a_node_cannot_run_is_refused_with_a_reason(tmp_path: Path) -> None:
    old = ContainerEngine(None, EngineFacts("docker", "20.10"))
    gpu = Device(uuid="GPU-1", kind="gpu", name="one")
    pods = PodContainers(old, Images(old, tmp_path / "i.json"), "a", (gpu,))
    with pytest.raises(PodFailed, match="GPUs come into containers by CDI, which needs docker 25"):
        await pods.pull(PodSpec("p1", 1, "RUNNING", "i", devices=("GPU-1",)))
    with pytest.raises(PodFailed, match="this node has no device GPU-9"):
        await pods.pull(PodSpec("p1", 1, "RUNNING", "i", devices=("GPU-9",)))
    none = ContainerEngine(None, EngineFacts(why="no socket"))
    pods = PodContainers(none, Images(none, tmp_path / "i.json"), "a", ())
    with pytest.raises(PodFailed, match="this node has none: no socket"):
        await pods.look("p1")
    assert await pods.found() == {}
    for engine in (old, none):
        engine.close()
