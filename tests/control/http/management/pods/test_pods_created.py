"""Pods over HTTP: what may be asked for, and what is refused."""

from __future__ import annotations

import re

from stoker.wire.messages import PodPort, PodSpec, PortMapping
from tests.control.http.management.pods.pod_world import (
    FACTS,
    IMAGE,
    as_requested,
    does,
    get_pod,
    joined,
    once,
    refused,
    sent_spec,
    state,
)


@once
async def test_a_pod_is_created_placed_and_sent_to_its_node() -> None:
    async with joined("node-1") as (api, (agent,), _):
        answer = await api.http.post("/pods", json={"imageName": IMAGE})
        assert answer.status_code == 201
        made = answer.json()
        assert state(made) == ("RUNNING", "PROVISIONING")
        assert made["name"] == "my pod"
        assert made["image"] == IMAGE
        assert made["ports"] == ["8888/http", "22/tcp"]
        assert (made["containerDiskInGb"], made["volumeInGb"]) == (50, 20)
        assert made["volumeMountPath"] == "/workspace"
        assert made["gpu"] == {"id": "NVIDIA GeForce RTX 4090", "count": 1, "displayName": "RTX 4090"}
        assert made["machineId"] == "node-1"
        assert made["savingsPlans"] == []
        assert (made["portMappings"], made["publicIp"]) == (None, None)
        assert "costPerHr" not in made, made.get("costPerHr")
        flags = ("locked", "interruptible", "volumeEncrypted")
        assert [made[flag] for flag in flags] == [False, False, False]
        assert re.fullmatch(
            r"Rented by User: \w{3} \w{3} \d\d \d{4} [\d:]{8} GMT\+0000 \(Coordinated Universal Time\)",
            made["lastStatusChange"],
        )
        spec = await sent_spec(agent, made["id"])
        assert as_requested(spec) == PodSpec(
            made["id"],
            1,
            "RUNNING",
            IMAGE,
            devices=("GPU-0",),
            ports=(PodPort(8888, "http"), PodPort(22, "tcp")),
            disk_bytes=50_000_000_000,
            volume_bytes=20_000_000_000,
        )


@once
async def test_a_pod_that_runs_shows_its_ports_and_since_when() -> None:
    async with joined(
        "node-1", facts=FACTS | {"public_ip": "100.65.0.119", "memory_bytes": "62500000000"}
    ) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await sent_spec(agent, pod)
        await agent.report_pod(spec, "creating")
        await agent.listen(0.1)
        assert state(await get_pod(api, pod)) == ("RUNNING", "STARTING")
        ports = (PortMapping(22, 10341, "tcp"), PortMapping(8888, 10342, "tcp"))
        await agent.report_pod(spec, "running", ports=ports, started_ms=1_720_811_680_144)
        await agent.listen(0.1)
        found = await get_pod(api, pod)
        assert state(found) == ("RUNNING", "RUNNING")
        assert found["portMappings"] == {"22": 10341, "8888": 10342}
        assert found["publicIp"] == "100.65.0.119"
        assert (found["vcpuCount"], found["memoryInGb"]) == (16, 62)
        assert found["lastStartedAt"] == "2024-07-12T19:14:40.144Z"


@once
async def test_a_pod_can_be_created_without_starting_it() -> None:
    async with joined("node-1") as (api, (agent,), _):
        made = await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED")
        assert state(made) == ("EXITED", "EXITED")
        assert "machineId" not in made
        await agent.listen(0.1)
        assert agent.pods == {}
        started = await does(api, made["id"], "start")
        assert state(started) == ("RUNNING", "PROVISIONING")
        spec = await sent_spec(agent, made["id"])
        assert (spec.wish, spec.version, spec.restarts, spec.devices) == ("RUNNING", 1, 1, ("GPU-0",))


@once
async def test_a_pod_that_never_ran_is_deleted_for_good_at_once() -> None:
    async with joined("node-1") as (api, _, _):
        made = await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED")
        assert (await api.http.delete(f"/pods/{made['id']}")).status_code == 204
        assert (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json() == []


EVERY_FIELD = {
    "allowedCudaVersions": ["12.8", "12.7"],
    "cloudType": "COMMUNITY",
    "computeType": "GPU",
    "containerDiskInGb": 10,
    "countryCodes": ["NL"],
    "cpuFlavorIds": ["cpu3c", "cpu3g", "cpu3m", "cpu5c", "cpu5g", "cpu5m"],
    "cpuFlavorPriority": "custom",
    "dataCenterIds": ["EU-RO-1", "CA-MTL-1"],
    "dataCenterPriority": "custom",
    "dockerEntrypoint": ["/bin/sh"],
    "dockerStartCmd": ["-c", "sleep 1"],
    "env": {"MODE": "fast", "_A1": ""},
    "globalNetworking": True,
    "gpuCount": 2,
    "gpuTypeIds": ["NVIDIA H200", "NVIDIA GeForce RTX 4090"],
    "gpuTypePriority": "custom",
    "imageName": IMAGE,
    "interruptible": True,
    "locked": True,
    "minDiskBandwidthMBps": 100,
    "minDownloadMbps": 1.5,
    "minRAMPerGPU": 16,
    "minUploadMbps": 1,
    "minVCPUPerGPU": 4,
    "name": "n" * 191,
    "ports": ["80/http", "5000/udp"],
    "supportPublicIp": True,
    "vcpuCount": 24,
    "volumeInGb": 0,
    "volumeMountPath": "/data",
}


@once
async def test_every_field_is_accepted_and_does_its_part() -> None:
    async with joined("node-1", facts=FACTS | {"cuda": "12.8"}) as (api, (agent,), _):
        made = await api.made("/pods", **EVERY_FIELD)
        spec = await sent_spec(agent, made["id"])
        assert spec.entrypoint == ("/bin/sh",)
        assert spec.command == ("-c", "sleep 1")
        assert as_requested(spec).env == {"MODE": "fast", "_A1": ""}
        assert set(spec.devices) == {"GPU-0", "GPU-1"}
        assert spec.ports == (PodPort(80, "http"), PodPort(5000, "udp"))
        assert (spec.disk_bytes, spec.volume_bytes, spec.volume_path) == (10_000_000_000, 0, "/data")
        assert (made["locked"], made["interruptible"]) == (True, True)
        assert made["gpu"]["count"] == 2
        assert made["env"] == EVERY_FIELD["env"]


@once
async def test_a_pod_on_cpus_has_the_cpus_that_it_requested() -> None:
    async with joined("node-1") as (api, (agent,), _):
        made = await api.made(
            "/pods", imageName=IMAGE, computeType="CPU", vcpuCount=12, cpuFlavorIds=["cpu3c"]
        )
        assert (made["vcpuCount"], made["cpuFlavorId"]) == (12, "cpu3c")
        assert "gpu" not in made
        spec = await sent_spec(agent, made["id"])
        assert spec.devices == ("CPU-0",)
        assert spec.limits is not None
        assert spec.limits.cpus == 12
        why = await refused(api, "/pods", imageName=IMAGE, computeType="CPU", vcpuCount=5)
        assert "no node has 5 free vCPUs" in why


@once
async def test_sizes_may_be_left_open() -> None:
    async with joined("node-1") as (api, (agent,), _):
        made = await api.made("/pods", imageName=IMAGE, containerDiskInGb=None, volumeInGb=None)
        assert (made["containerDiskInGb"], made["volumeInGb"]) == (None, None)
        spec = await sent_spec(agent, made["id"])
        assert (spec.disk_bytes, spec.volume_bytes) == (None, None)


@once
async def test_ports_may_be_one_text() -> None:
    async with joined("node-1") as (api, _, _):
        made = await api.made("/pods", imageName=IMAGE, ports="8888/http,22/tcp")
        assert made["ports"] == ["8888/http", "22/tcp"]
        assert (await api.made("/pods", imageName=IMAGE, ports=""))["ports"] == []


WRONG = (
    ({"ports": ["0/tcp"]}, "ports"),
    ({"ports": ["1000000/tcp"]}, "ports"),
    ({"ports": "22/sctp"}, "ports"),
    ({"ports": ["22/tcp", "22/tcp"]}, "ports names 22/tcp twice"),
    ({"ports": [f"{n}/tcp" for n in range(1, 52)]}, "ports holds at most 50"),
    ({"env": {"A=B": "x"}}, "env"),
    ({"env": {f"A{n}": "x" for n in range(51)}}, "env"),
    ({"env": {"A": 5}}, "env"),
    ({"env": {"A": "{{ STOKER_SECRET_none }}"}}, "env.A names the secret 'none'"),
    ({"volumeMountPath": "workspace"}, "volumeMountPath"),
    ({"volumeMountPath": "/"}, "volumeMountPath"),
    ({"volumeMountPath": "/workspace/../etc"}, "volumeMountPath"),
    ({"imageName": "../containers/abc"}, "imageName"),
    ({"imageName": "a/../../containers/abc:1"}, "imageName"),
    ({"imageName": "http://registry.test/image:1"}, "imageName"),
    ({"imageName": "LOCAL:/srv"}, "imageName"),
    ({"imageName": "-v"}, "imageName"),
    ({"gpuCount": 0}, "gpuCount"),
    ({"vcpuCount": 0}, "vcpuCount"),
    ({"containerDiskInGb": -1}, "containerDiskInGb"),
    ({"volumeInGb": "20"}, "volumeInGb"),
    ({"name": "n" * 192}, "name"),
    ({"computeType": "TPU"}, "computeType"),
    ({"cloudType": "secure"}, "cloudType"),
    ({"cpuFlavorIds": ["cpu9"]}, "cpuFlavorIds"),
    ({"gpuTypeIds": ["RTX 9090"]}, "gpuTypeIds"),
    ({"dataCenterIds": ["MOON-1"]}, "dataCenterIds"),
    ({"allowedCudaVersions": ["12.x"]}, "allowedCudaVersions"),
    ({"allowedCudaVersions": ["99.9"]}, "allowedCudaVersions"),
    ({"desiredStatus": "TERMINATED"}, "desiredStatus"),
    ({"networkVolumeId": "none"}, "networkVolumeId"),
    ({"templateId": "none"}, "templateId"),
    ({"containerRegistryAuthId": "none"}, "containerRegistryAuthId"),
    ({"imageName": "local:/srv/x.py:handler"}, "imageName"),
    ({"imageName": ""}, "imageName"),
    ({"imageName": None}, "imageName is required"),
    ({"minCudaVersion": "1.0"}, "minCudaVersion"),
)


@once
async def test_whatever_is_wrong_is_named_and_nothing_is_stored() -> None:
    async with joined("node-1") as (api, (agent,), _):
        for fields, message in WRONG:
            why = await refused(api, "/pods", **{"imageName": IMAGE, **fields})
            assert message in why, (fields, why)
        assert (await api.http.get("/pods")).json() == []
        await agent.listen(0.1)
        assert agent.pods == {}
        assert api.plane.cluster.pods == {}
