"""Pods over HTTP: every operation, on a plane at work with nodes that say what the test says."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from managed import Managed, managed

sys.path.insert(0, str(Path(__file__).parents[1] / "control_plane"))
from plane_world import endpoint, story
from scripted_agent import ScriptedAgent
from virtual_loop import VirtualLoop
from virtual_loop import run as run_story

from stoker.control.management.catalog import DATA_CENTERS
from stoker.control.settings import PlaneSettings
from stoker.wire.messages import Device, HeldPod, PodPort, PodSpec, PortMapping, RegistryAuth

IMAGE = "ghcr.io/example/notebook:1.2"
GPUS = tuple(Device(f"GPU-{n}", "gpu", "NVIDIA GeForce RTX 4090", n, memory_total=24 << 30) for n in range(2))
CPU = Device("CPU-0", "cpu", "a processor")
FACTS = {"containers": "docker 28.0.1", "containers_cdi": "yes", "vcpus": "16", "data_center": "EU-RO-1"}


@asynccontextmanager
async def joined(
    *nodes: str,
    facts: dict[str, str] = FACTS,
    devices: tuple[Device, ...] = (*GPUS, CPU),
    settings: PlaneSettings | None = None,
) -> AsyncIterator[tuple[Managed, list[ScriptedAgent], asyncio.TaskGroup]]:
    """A plane at work, and these nodes connected."""
    async with managed(endpoint(workers_max=0), settings=settings) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agents = [api.world.agent(node=node) for node in nodes]
        for agent in agents:
            await agent.connect(tasks, devices=devices, facts=facts)
            await agent.listen(0.1)
        yield api, agents, tasks
        for agent in agents:
            agent.stream.end("the test is over")


async def heard(agent: ScriptedAgent, pod: str) -> PodSpec:
    """What the node was told of it last."""
    await agent.listen(0.1)
    return agent.pods[pod]


async def told(api: Managed, pod: str, **query: Any) -> dict[str, Any]:
    answer = await api.http.get(f"/pods/{pod}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def does(api: Managed, pod: str, action: str) -> dict[str, Any]:
    answer = await api.http.post(f"/pods/{pod}/{action}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refused(api: Managed, path: str, status: int = 400, method: str = "POST", **body: Any) -> str:
    answer = await api.http.request(method, path, json=body or None)
    assert answer.status_code == status, answer.text
    error: str = answer.json()["error"]
    return error


def state(pod: dict[str, Any]) -> tuple[str, str]:
    return pod["desiredStatus"], pod["status"]


def once(test):  # type: ignore[no-untyped-def]
    """On virtual time, in one order of events: for what does not hang on it."""

    def wrapped() -> None:
        run_story(VirtualLoop(1), test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


# ---- creation -----------------------------------------------------------------------------------


@once
async def test_a_pod_is_created_placed_and_told_to_its_node() -> None:
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
        spec = await heard(agent, made["id"])
        assert spec == PodSpec(
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
async def test_a_pod_that_runs_tells_its_ports_and_since_when() -> None:
    async with joined(
        "node-1", facts=FACTS | {"public_ip": "100.65.0.119", "memory_bytes": "62500000000"}
    ) as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await heard(agent, pod)
        await agent.tells(spec, "creating")
        await agent.listen(0.1)
        assert state(await told(api, pod)) == ("RUNNING", "STARTING")
        ports = (PortMapping(22, 10341, "tcp"), PortMapping(8888, 10342, "tcp"))
        await agent.tells(spec, "running", ports=ports, started_ms=1_720_811_680_144)
        await agent.listen(0.1)
        found = await told(api, pod)
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
        spec = await heard(agent, made["id"])
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
        spec = await heard(agent, made["id"])
        assert spec.entrypoint == ("/bin/sh",)
        assert spec.command == ("-c", "sleep 1")
        assert spec.env == {"MODE": "fast", "_A1": ""}
        assert set(spec.devices) == {"GPU-0", "GPU-1"}
        assert spec.ports == (PodPort(80, "http"), PodPort(5000, "udp"))
        assert (spec.disk_bytes, spec.volume_bytes, spec.volume_path) == (10_000_000_000, 0, "/data")
        assert (made["locked"], made["interruptible"]) == (True, True)
        assert made["gpu"]["count"] == 2
        assert made["env"] == EVERY_FIELD["env"]


@once
async def test_a_pod_on_cpus_has_the_cpus_that_it_asked_for() -> None:
    async with joined("node-1") as (api, (agent,), _):
        made = await api.made(
            "/pods", imageName=IMAGE, computeType="CPU", vcpuCount=12, cpuFlavorIds=["cpu3c"]
        )
        assert (made["vcpuCount"], made["cpuFlavorId"]) == (12, "cpu3c")
        assert "gpu" not in made
        spec = await heard(agent, made["id"])
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
        spec = await heard(agent, made["id"])
        assert (spec.disk_bytes, spec.volume_bytes) == (None, None)


@once
async def test_ports_may_be_one_text() -> None:
    async with joined("node-1") as (api, _, _):
        made = await api.made("/pods", imageName=IMAGE, ports="8888/http,22/tcp")
        assert made["ports"] == ["8888/http", "22/tcp"]
        assert (await api.made("/pods", imageName=IMAGE, ports=""))["ports"] == []


WRONG = (
    ({"ports": ["0/tcp"]}, "ports"),
    ({"ports": ["65536/tcp"]}, "ports"),
    ({"ports": "22/sctp"}, "ports"),
    ({"ports": ["22/tcp", "22/tcp"]}, "ports names 22/tcp twice"),
    ({"ports": [f"{n}/tcp" for n in range(1, 52)]}, "ports holds at most 50"),
    ({"env": {"1A": "x"}}, "env"),
    ({"env": {f"A{n}": "x" for n in range(51)}}, "env"),
    ({"env": {"A": 5}}, "env"),
    ({"env": {"A": "{{ STOKER_SECRET_none }}"}}, "env.A names the secret 'none'"),
    ({"volumeMountPath": "workspace"}, "volumeMountPath"),
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
    ({"countryCodes": ["NLD"]}, "countryCodes"),
    ({"sise": 4}, "sise is not a known field"),
)


@once
async def test_whatever_is_wrong_is_named_and_nothing_is_stored() -> None:
    async with joined("node-1") as (api, (agent,), _):
        for fields, words in WRONG:
            why = await refused(api, "/pods", **{"imageName": IMAGE, **fields})
            assert words in why, (fields, why)
        assert (await api.http.get("/pods")).json() == []
        await agent.listen(0.1)
        assert agent.pods == {}
        assert api.plane.floor.pods == {}


# ---- placement ----------------------------------------------------------------------------------


@once
async def test_without_an_engine_nothing_is_stored() -> None:
    async with joined("node-1", facts={"containers": "none: no socket was found"}) as (api, _, _):
        for wish in ("RUNNING", "EXITED"):
            why = await refused(api, "/pods", imageName=IMAGE, desiredStatus=wish)
            assert "node node-1 has no container engine: no socket was found" in why
        assert (await api.http.get("/pods")).json() == []


async def test_without_a_node_nothing_starts(api: Managed) -> None:
    assert "no node is connected" in await refused(api, "/pods", imageName=IMAGE)
    assert (await api.http.get("/pods")).json() == []
    later = await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED")
    assert "no node is connected" in await refused(api, f"/pods/{later['id']}/start")


@once
async def test_to_name_every_data_center_is_to_name_none() -> None:
    async with joined("node-1", facts={"containers": "docker 28.0.1"}) as (api, _, _):
        why = await refused(api, "/pods", imageName=IMAGE, dataCenterIds=list(DATA_CENTERS[:25]))
        assert "tells no data center" in why
        await api.made("/pods", imageName=IMAGE, dataCenterIds=list(DATA_CENTERS))


@once
async def test_a_registry_of_the_configuration_file_is_used_by_its_id() -> None:
    settings = PlaneSettings(registries={"mine": RegistryAuth("u", "p")})
    async with joined("node-1", settings=settings) as (api, (agent,), _):
        made = await api.made("/pods", imageName=IMAGE, containerRegistryAuthId="mine")
        assert (await heard(agent, made["id"])).registry == RegistryAuth("u", "p")


@once
async def test_a_pod_that_is_not_started_asks_for_no_device() -> None:
    async with joined("node-1", devices=(CPU,)) as (api, _, _):
        assert "no node has a free GPU" in await refused(api, "/pods", imageName=IMAGE)
        later = await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED")
        assert "no node has a free GPU" in await refused(api, f"/pods/{later['id']}/start")


@story
async def test_pods_hold_their_gpus_until_their_container_has_ended() -> None:
    async with joined("node-1") as (api, (agent,), _):
        first = await api.made("/pods", imageName=IMAGE)
        await api.made("/pods", imageName=IMAGE)
        assert "throttled" in await refused(api, "/pods", imageName=IMAGE)

        spec = await heard(agent, first["id"])
        await agent.tells(spec, "running")
        await agent.listen(0.1)
        stopped = await does(api, first["id"], "stop")
        assert state(stopped) == ("EXITED", "RUNNING")
        assert stopped["reason"] == "it is being stopped"
        assert "throttled" in await refused(api, "/pods", imageName=IMAGE)

        await agent.tells(await heard(agent, first["id"]), "exited", exit_code=143)
        await agent.listen(0.1)
        assert state(await told(api, first["id"])) == ("EXITED", "EXITED")
        third = await api.made("/pods", imageName=IMAGE)
        assert (await heard(agent, third["id"])).devices == ("GPU-0",)

        why = await refused(api, f"/pods/{first['id']}/start")
        assert "throttled" in why
        assert state(await told(api, first["id"])) == ("EXITED", "EXITED")


@story
async def test_a_stopped_pod_starts_on_its_own_node_and_devices() -> None:
    async with joined("node-1", "node-2") as (api, agents, _):
        by_name = {agent.node: agent for agent in agents}
        pods = [(await api.made("/pods", imageName=IMAGE))["id"] for _ in range(4)]
        where = {pod: by_name[(await told(api, pod))["machineId"]] for pod in pods}
        last = pods[3]
        before = await heard(where[last], last)
        await does(api, last, "stop")
        await does(api, last, "start")
        after = await heard(where[last], last)
        assert (after.devices, after.version, after.restarts) == (before.devices, 1, 1)
        assert (await told(api, last))["machineId"] == where[last].node


@once
async def test_other_devices_make_the_container_anew() -> None:
    async with joined("node-1") as (api, (agent,), _):
        first = (await api.made("/pods", imageName=IMAGE))["id"]
        await does(api, first, "stop")
        second = (await api.made("/pods", imageName=IMAGE))["id"]
        assert (await heard(agent, second)).devices == ("GPU-0",)
        await does(api, first, "start")
        spec = await heard(agent, first)
        assert (spec.devices, spec.version, spec.restarts) == (("GPU-1",), 2, 1)


@once
async def test_a_stopped_pod_of_a_node_that_is_gone_cannot_start() -> None:
    async with joined("node-1", "node-2") as (api, (one, two), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        node = one if (await told(api, pod))["machineId"] == "node-1" else two
        await does(api, pod, "stop")
        await node.leaves()
        assert f"node {node.node}, which has it, is not connected" in await refused(api, f"/pods/{pod}/start")


@story
async def test_nothing_stays_held_when_the_store_is_full() -> None:
    async with joined("node-1") as (api, (agent,), _):
        api.world.commits.full = True
        await refused(api, "/pods", 503, imageName=IMAGE)
        api.world.commits.full = False
        assert api.plane.floor.pods == {}
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await does(api, pod, "stop")
        api.world.commits.full = True
        await refused(api, f"/pods/{pod}/start", 503)
        api.world.commits.full = False
        assert api.plane.floor.pods == {}
        assert (await heard(agent, pod)).wish == "EXITED"


# ---- actions ------------------------------------------------------------------------------------


@story
async def test_stop_start_restart_and_reset_lead_where_they_say() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        steps = []
        for action in ("start", "stop", "stop", "start", "restart", "reset"):
            await does(api, pod, action)
            spec = await heard(agent, pod)
            steps.append((action, spec.wish, spec.version, spec.restarts))
        assert steps == [
            ("start", "RUNNING", 1, 0),
            ("stop", "EXITED", 1, 0),
            ("stop", "EXITED", 1, 0),
            ("start", "RUNNING", 1, 1),
            ("restart", "RUNNING", 1, 2),
            ("reset", "RUNNING", 2, 2),
        ]
        await does(api, pod, "stop")
        assert "is stopped: start it" in await refused(api, f"/pods/{pod}/restart")


@story
async def test_a_deleted_pod_is_gone_from_lists_at_once_and_from_its_node_when_that_says_so() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await agent.tells(await heard(agent, pod), "running")
        await agent.listen(0.1)
        answer = await api.http.delete(f"/pods/{pod}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert await refused(api, f"/pods/{pod}", 404, "GET")
        assert (await api.http.get("/pods")).json() == []
        (going,) = (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json()
        assert state(going) == ("TERMINATED", "TERMINATED")

        spec = await heard(agent, pod)
        assert spec.wish == "TERMINATED"
        await agent.tells(spec, "gone")
        await agent.listen(0.1)
        assert (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json() == []
        assert api.plane.floor.pods == {}
        api.plane.staffing.tell("node-1")
        await agent.listen(0.1)
        assert agent.pods == {}


@once
async def test_what_is_not_there_cannot_be_changed() -> None:
    async with joined("node-1") as (api, _, _):
        for action in ("start", "stop", "restart", "reset", "update"):
            assert "no pod 'none'" in await refused(api, "/pods/none/" + action, **_body(action))
        assert "no pod 'none'" in await refused(api, "/pods/none", method="DELETE")
        assert "no pod 'none'" in await refused(api, "/pods/none", method="PATCH", name="x")
        assert "no pod 'none'" in await refused(api, "/pods/none", 404, "GET")
        for action in ("start", "stop", "restart", "reset", "update"):
            assert "podId" in await refused(api, "/pods/NO_ID/" + action, **_body(action))
        for method in ("GET", "DELETE"):
            assert "podId" in await refused(api, "/pods/NO_ID", method=method)


def _body(action: str) -> dict[str, Any]:
    return {"name": "x"} if action == "update" else {}


async def test_every_operation_wants_a_key(api: Managed) -> None:
    del api.http.headers["authorization"]
    for method, path in (
        ("POST", "/pods"),
        ("GET", "/pods"),
        ("GET", "/pods/x"),
        ("PATCH", "/pods/x"),
        ("POST", "/pods/x/update"),
        ("DELETE", "/pods/x"),
        ("POST", "/pods/x/start"),
        ("POST", "/pods/x/stop"),
        ("POST", "/pods/x/restart"),
        ("POST", "/pods/x/reset"),
    ):
        assert "token" in await refused(api, path, 401, method)


@once
async def test_a_locked_pod_is_not_ended_by_anybody() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, locked=True))["id"]
        for action in ("stop", "restart", "reset"):
            why = await refused(api, f"/pods/{pod}/{action}")
            assert why == f"pod {pod} is locked: set locked to false before you {action} it"
        assert "is locked" in await refused(api, f"/pods/{pod}", method="DELETE")
        assert "is locked" in await refused(api, f"/pods/{pod}", method="PATCH", imageName="other:1")
        assert "is locked" in await refused(api, f"/pods/{pod}/update", imageName="other:1", locked=True)
        renamed = await api.made(f"/pods/{pod}/update", name="renamed")
        assert renamed["name"] == "renamed"
        freed = await api.made(f"/pods/{pod}/update", imageName="other:1", locked=False)
        assert (freed["image"], freed["version"], freed["locked"]) == ("other:1", 2, False)
        await does(api, pod, "stop")
        assert (await heard(agent, pod)).wish == "EXITED"


# ---- updates ------------------------------------------------------------------------------------


@once
async def test_only_name_and_lock_apply_in_place() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        answer = await api.http.patch(f"/pods/{pod}", json={"name": "other", "locked": True})
        assert (answer.status_code, answer.json()["version"]) == (200, 1)
        await api.made(f"/pods/{pod}/update", locked=False)
        changes: list[dict[str, Any]] = [
            {"containerDiskInGb": 9},
            {"containerDiskInGb": None},
            {"dockerEntrypoint": ["/x"]},
            {"dockerStartCmd": ["y"]},
            {"env": {"A": "b"}},
            {"globalNetworking": True},
            {"imageName": "other:1"},
            {"ports": "80/http"},
            {"volumeInGb": 30},
            {"volumeMountPath": "/data"},
        ]
        for n, change in enumerate(changes):
            changed = await api.made(f"/pods/{pod}/update", **change)
            assert changed["version"] == n + 2, change
            assert state(changed) == ("RUNNING", "PROVISIONING")
            same = await api.made(f"/pods/{pod}/update", **change)
            assert same["version"] == n + 2
        spec = await heard(agent, pod)
        assert (spec.version, spec.image, spec.env) == (11, "other:1", {"A": "b"})
        assert (spec.entrypoint, spec.command) == (("/x",), ("y",))
        assert (spec.disk_bytes, spec.volume_bytes, spec.volume_path) == (None, 30_000_000_000, "/data")
        assert spec.ports == (PodPort(80, "http"),)
        assert (await told(api, pod))["name"] == "other"


@once
async def test_an_update_of_what_cannot_change_is_refused() -> None:
    async with joined("node-1") as (api, _, _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        for field, value in (("gpuCount", 2), ("networkVolumeId", "v"), ("templateId", "t"), ("x", 1)):
            why = await refused(api, f"/pods/{pod}", method="PATCH", **{field: value})
            assert f"{field} is not a known field" in why
        why = await refused(api, f"/pods/{pod}", method="PATCH", containerRegistryAuthId="none")
        assert "containerRegistryAuthId" in why
        assert (await told(api, pod))["version"] == 1


# ---- what nodes say -----------------------------------------------------------------------------


@story
async def test_a_container_that_ends_by_itself_reads_exited_and_why() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await heard(agent, pod)
        await agent.tells(spec, "running")
        await agent.tells(spec, "exited", exit_code=3)
        await agent.listen(0.1)
        found = await told(api, pod)
        assert state(found) == ("EXITED", "EXITED")
        assert (found["exitCode"], found["reason"]) == (3, "its container ended by itself with exit code 3")
        assert found["lastStatusChange"].startswith("Exited by itself: ")
        await does(api, pod, "start")
        spec = await heard(agent, pod)
        assert (spec.wish, spec.version, spec.restarts) == ("RUNNING", 1, 1)
        found = await told(api, pod)
        assert state(found) == ("RUNNING", "STARTING")
        assert "exitCode" not in found


@once
async def test_a_container_that_cannot_start_is_an_error_with_its_reason() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await agent.tells(
            await heard(agent, pod), "failed", reason="the image could not be pulled: no such tag"
        )
        await agent.listen(0.1)
        found = await told(api, pod)
        assert state(found) == ("EXITED", "ERROR")
        assert found["reason"] == "the image could not be pulled: no such tag"


@story
async def test_late_news_of_an_older_version_or_start_is_ignored() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        old = await heard(agent, pod)
        await does(api, pod, "reset")
        await agent.tells(old, "exited", exit_code=1)
        await agent.listen(0.1)
        assert state(await told(api, pod)) == ("RUNNING", "PROVISIONING")
        new = await heard(agent, pod)
        await does(api, pod, "restart")
        await agent.tells(new, "failed", reason="x")
        await agent.listen(0.1)
        assert state(await told(api, pod))[0] == "RUNNING"
        await agent.tells(await heard(agent, pod), "running")
        await agent.listen(0.1)
        assert state(await told(api, pod)) == ("RUNNING", "RUNNING")


@once
async def test_a_node_tells_nothing_of_another_nodes_pods() -> None:
    async with joined("node-1", "node-2") as (api, (one, two), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        own, other = (one, two) if (await told(api, pod))["machineId"] == "node-1" else (two, one)
        spec = await heard(own, pod)
        await other.tells(spec, "running")
        await other.listen(0.1)
        assert state(await told(api, pod)) == ("RUNNING", "PROVISIONING")


@story
async def test_the_pod_of_a_silent_node_keeps_its_wish_and_says_so() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        spec = await heard(agent, pod)
        await agent.tells(spec, "running", ports=(PortMapping(22, 10341, "tcp"),))
        await agent.listen(0.1)
        await agent.leaves()
        found = await told(api, pod)
        assert state(found) == ("RUNNING", "ERROR")
        assert "node node-1 is not connected" in found["reason"]
        await does(api, pod, "restart")

        held = [HeldPod(pod, 1, 0, "running")]
        await agent.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        spec = await heard(agent, pod)
        assert (spec.wish, spec.restarts) == ("RUNNING", 1)
        assert state(await told(api, pod)) == ("RUNNING", "STARTING")
        await agent.tells(spec, "running")
        await agent.listen(0.1)
        assert state(await told(api, pod)) == ("RUNNING", "RUNNING")


@story
async def test_what_a_hello_does_not_hold_is_not_there() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        kept, lost = [(await api.made("/pods", imageName=IMAGE))["id"] for _ in range(2)]
        for pod in (kept, lost):
            await agent.tells(await heard(agent, pod), "running", ports=(PortMapping(22, 10341, "tcp"),))
        await agent.listen(0.1)
        await agent.leaves()
        held = [HeldPod(kept, 1, 0, "running"), HeldPod("another-s-pod", 1, 0, "running")]
        await agent.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        await agent.listen(0.1)
        assert set(agent.pods) == {kept, lost}
        found = await told(api, kept)
        assert (state(found), found["portMappings"]) == (("RUNNING", "RUNNING"), {"22": 10341})
        assert state(await told(api, lost)) == ("RUNNING", "PROVISIONING")
        assert api.plane.floor.pods.keys() == {kept, lost}


@story
async def test_another_control_process_finds_everything_again() -> None:
    async with joined("node-1") as (api, (agent,), tasks):
        await api.http.put("/secrets/word", json={"value": "hush"})
        pod = (await api.made("/pods", imageName=IMAGE, env={"A": "{{ STOKER_SECRET_word }}"}))["id"]
        deleted = (await api.made("/pods", imageName=IMAGE))["id"]
        before = await heard(agent, pod)
        await agent.tells(before, "running")
        await agent.listen(0.1)
        await api.http.delete(f"/pods/{deleted}")
        agent.stream.end("control is killed")
        await api.again()
        api.run()
        assert state(await told(api, pod)) == ("RUNNING", "ERROR")
        again = api.world.agent()
        held = [HeldPod(pod, 1, 0, "running"), HeldPod(deleted, 1, 0, "running")]
        await again.connect(tasks, devices=(*GPUS, CPU), facts=FACTS, pods=held)
        assert await heard(again, pod) == before
        assert state(await told(api, pod)) == ("RUNNING", "RUNNING")
        assert again.pods[deleted].wish == "TERMINATED"
        assert "throttled" in await refused(api, "/pods", imageName=IMAGE)
        again.stream.end("the test is over")


@story
async def test_a_commit_in_doubt_is_found_by_the_nodes_next_hello() -> None:
    async with joined("node-1") as (api, _, tasks):
        api.world.commits.doubt = 2  # the audit's is the first
        await refused(api, "/pods", 503, imageName=IMAGE)
        (pod,) = (await api.http.get("/pods")).json()
        again = api.world.agent()
        await again.connect(tasks, devices=(*GPUS, CPU), facts=FACTS)
        spec = await heard(again, pod["id"])
        assert (spec.wish, spec.devices) == ("RUNNING", ("GPU-0",))
        assert pod["id"] in api.plane.floor.pods
        again.stream.end("the test is over")


# ---- what else is named -------------------------------------------------------------------------


@once
async def test_a_template_fills_what_the_body_leaves_out() -> None:
    async with joined("node-1") as (api, (agent,), _):
        template = await api.made(
            "/templates",
            name="t",
            imageName=IMAGE,
            ports=["80/http"],
            env={"A": "template", "B": "template"},
            volumeInGb=7,
            containerDiskInGb=8,
            volumeMountPath="/data",
            dockerStartCmd=["serve"],
        )
        made = await api.made("/pods", templateId=template["id"], env={"A": "pod"}, volumeInGb=9)
        assert made["templateId"] == template["id"]
        assert (made["image"], made["ports"]) == (IMAGE, ["80/http"])
        assert made["env"] == {"A": "pod", "B": "template"}
        assert (made["volumeInGb"], made["containerDiskInGb"]) == (9, 8)
        assert (made["volumeMountPath"], made["dockerStartCmd"]) == ("/data", ["serve"])
        assert "template" not in await told(api, made["id"])
        whole = await told(api, made["id"], includeTemplate=True)
        assert whole["template"]["id"] == template["id"]
        assert (await heard(agent, made["id"])).command == ("serve",)


@once
async def test_a_network_volume_is_mounted_and_cannot_be_deleted_under_a_pod() -> None:
    async with joined("node-1") as (api, (agent,), _):
        volume = (await api.made("/networkvolumes", name="v", size=50, dataCenterId="EU-RO-1"))["id"]
        pod = (await api.made("/pods", imageName=IMAGE, networkVolumeId=volume))["id"]
        assert (await heard(agent, pod)).volume == volume
        found = await told(api, pod, includeNetworkVolume=True)
        assert found["networkVolumeId"] == volume
        assert found["networkVolume"]["size"] == 50
        assert f"pod {pod}" in await refused(api, f"/networkvolumes/{volume}", method="DELETE")
        await api.http.delete(f"/pods/{pod}")
        assert (await api.http.delete(f"/networkvolumes/{volume}")).status_code == 204


@once
async def test_a_network_volume_elsewhere_restricts_the_nodes() -> None:
    async with joined("node-1") as (api, _, _):
        volume = (await api.made("/networkvolumes", name="v", size=50, dataCenterId="CA-MTL-1"))["id"]
        why = await refused(api, "/pods", imageName=IMAGE, networkVolumeId=volume)
        assert "is in data center EU-RO-1" in why


@once
async def test_secrets_and_registry_auths_reach_the_node_and_nobody_else() -> None:
    async with joined("node-1") as (api, (agent,), _):
        await api.http.put("/secrets/word", json={"value": "hush"})
        auth = await api.made("/containerregistryauth", name="r", username="u", password="p")
        reference = "pre-{{ RUNPOD_SECRET_word }}"
        made = await api.made(
            "/pods", imageName=IMAGE, env={"A": reference}, containerRegistryAuthId=auth["id"]
        )
        assert made["env"] == {"A": reference}
        assert made["containerRegistryAuthId"] == auth["id"]
        spec = await heard(agent, made["id"])
        assert (spec.env, spec.hidden) == ({"A": "pre-hush"}, ("hush",))
        assert spec.registry == RegistryAuth("u", "p")
        assert f"pod {made['id']}" in await refused(
            api, f"/containerregistryauth/{auth['id']}", method="DELETE"
        )


@once
async def test_the_machine_is_told_when_it_is_asked_for() -> None:
    async with joined("node-1", facts=FACTS | {"public_ip": "10.1.1.1"}) as (api, _, _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        assert "machine" not in await told(api, pod)
        api.management.pods.price = lambda pod: 740_000_000
        found = await told(api, pod, includeMachine=True)
        gpu = {"id": "NVIDIA GeForce RTX 4090", "count": 1, "displayName": "RTX 4090"}
        assert found["machine"] == {
            "costPerHr": 0.74,
            "currentPricePerGpu": 0.74,
            "cpuCount": 16,
            "cpuTypeId": "a processor",
            "dataCenterId": "EU-RO-1",
            "gpuDisplayName": "RTX 4090",
            "gpuType": gpu,
            "gpuTypeId": "NVIDIA GeForce RTX 4090",
            "supportPublicIp": True,
        }
        assert (found["costPerHr"], found["adjustedCostPerHr"]) == ("0.74", 0.74)


@once
async def test_workers_are_listed_as_pods_when_they_are_asked_for() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE, name="a pod"))["id"]
        template = (await api.made("/templates", name="t", imageName="worker:1"))["id"]
        endpoint = (await api.made("/endpoints", name="e", templateId=template, workersMin=1))["id"]
        (worker,) = await agent.staffed()
        everything = {"includeWorkers": True}
        for query, wanted in (
            ({}, [pod, worker]),
            ({"endpointId": endpoint}, [worker]),
            ({"templateId": template}, [worker]),
            ({"imageName": "worker:1"}, [worker]),
            ({"id": worker}, [worker]),
            ({"gpuTypeId": "NVIDIA GeForce RTX 4090"}, [pod, worker]),
            ({"computeType": "CPU"}, []),
            ({"desiredStatus": "RUNNING"}, [pod, worker]),
            ({"desiredStatus": "EXITED"}, []),
            ({"dataCenterId": "EU-RO-1"}, [pod, worker]),
            ({"dataCenterId": "US-TX-1"}, []),
            ({"networkVolumeId": "v"}, []),
            ({"cpuFlavorId": "cpu3c"}, []),
            ({"name": "a pod"}, [pod]),
        ):
            listed = (await api.http.get("/pods", params=everything | query)).json()
            assert [one["id"] for one in listed] == wanted, query
            without = (await api.http.get("/pods", params=query)).json()
            assert [one["id"] for one in without] == [one for one in wanted if one == pod]
        assert (await told(api, worker, includeWorkers=True))["endpointId"] == endpoint
        assert await refused(api, f"/pods/{worker}", 404, "GET")
        assert await refused(api, "/pods/none?includeWorkers=true", 404, "GET")


@once
async def test_lists_are_filtered_by_every_parameter() -> None:
    async with joined("node-1") as (api, _, _):
        volume = (await api.made("/networkvolumes", name="v", size=5, dataCenterId="EU-RO-1"))["id"]
        template = (await api.made("/templates", name="t", imageName="of-template:1"))["id"]
        gpu = (await api.made("/pods", imageName=IMAGE, name="gpu"))["id"]
        cpu = (
            await api.made(
                "/pods",
                templateId=template,
                computeType="CPU",
                cpuFlavorIds=["cpu3g"],
                networkVolumeId=volume,
            )
        )["id"]
        stopped = (await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED"))["id"]
        for query, wanted in (
            ({}, [gpu, cpu, stopped]),
            ({"computeType": "GPU"}, [gpu, stopped]),
            ({"computeType": "CPU"}, [cpu]),
            ({"cpuFlavorId": ["cpu3c", "cpu3g"]}, [cpu]),
            ({"cpuFlavorId": "cpu3c"}, []),
            ({"dataCenterId": ["EU-RO-1", "US-TX-1"]}, [gpu, cpu]),
            ({"dataCenterId": "US-TX-1"}, []),
            ({"desiredStatus": "RUNNING"}, [gpu, cpu]),
            ({"desiredStatus": "EXITED"}, [stopped]),
            ({"desiredStatus": "TERMINATED"}, []),
            ({"endpointId": "echo"}, []),
            ({"gpuTypeId": ["NVIDIA GeForce RTX 4090"]}, [gpu]),
            ({"gpuTypeId": "NVIDIA H200"}, []),
            ({"id": gpu}, [gpu]),
            ({"imageName": IMAGE}, [gpu, stopped]),
            ({"name": "gpu"}, [gpu]),
            ({"networkVolumeId": volume}, [cpu]),
            ({"templateId": template}, [cpu]),
            ({"includeSavingsPlans": True, "includeWorkers": True}, [gpu, cpu, stopped]),
        ):
            answer = await api.http.get("/pods", params=query)
            assert answer.status_code == 200, answer.text
            assert {pod["id"] for pod in answer.json()} == set(wanted), query
        for query in ({"computeType": "TPU"}, {"desiredStatus": "x"}, {"id": "X!"}, {"includeMachine": "2"}):
            answer = await api.http.get("/pods", params=query)
            assert answer.status_code == 400
            assert next(iter(query)) in answer.json()["error"]
