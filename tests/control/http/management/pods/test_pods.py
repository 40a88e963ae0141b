"""Pods over HTTP: where they run, and what each operation leads to."""

from __future__ import annotations

from typing import Any

from stoker.control.config.settings import PlaneSettings
from stoker.control.resources.catalog import DATA_CENTERS
from stoker.wire.messages import PodPort, RegistryAuth
from tests.control.http.management.managed import Managed
from tests.control.http.management.pods.pod_world import (
    CPU,
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
from tests.control.plane_world import story

# ---- placement -----------------------------------------------------------------------------------


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
        assert "reports no data center" in why
        await api.made("/pods", imageName=IMAGE, dataCenterIds=list(DATA_CENTERS))


@once
async def test_a_registry_of_the_configuration_file_is_used_by_its_id() -> None:
    settings = PlaneSettings(registries={"mine": RegistryAuth("u", "p")})
    async with joined("node-1", settings=settings) as (api, (agent,), _):
        made = await api.made("/pods", imageName=IMAGE, containerRegistryAuthId="mine")
        assert (await sent_spec(agent, made["id"])).registry == RegistryAuth("u", "p")


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

        spec = await sent_spec(agent, first["id"])
        await agent.report_pod(spec, "running")
        await agent.listen(0.1)
        stopped = await does(api, first["id"], "stop")
        assert state(stopped) == ("EXITED", "RUNNING")
        assert stopped["reason"] == "it is being stopped"
        assert "throttled" in await refused(api, "/pods", imageName=IMAGE)

        await agent.report_pod(await sent_spec(agent, first["id"]), "exited", exit_code=143)
        await agent.listen(0.1)
        assert state(await get_pod(api, first["id"])) == ("EXITED", "EXITED")
        third = await api.made("/pods", imageName=IMAGE)
        assert (await sent_spec(agent, third["id"])).devices == ("GPU-0",)

        why = await refused(api, f"/pods/{first['id']}/start")
        assert "throttled" in why
        assert state(await get_pod(api, first["id"])) == ("EXITED", "EXITED")


@story
async def test_a_stopped_pod_starts_on_its_own_node_and_devices() -> None:
    async with joined("node-1", "node-2") as (api, agents, _):
        by_name = {agent.node: agent for agent in agents}
        pods = [(await api.made("/pods", imageName=IMAGE))["id"] for _ in range(4)]
        where = {pod: by_name[(await get_pod(api, pod))["machineId"]] for pod in pods}
        last = pods[3]
        before = await sent_spec(where[last], last)
        await does(api, last, "stop")
        await does(api, last, "start")
        after = await sent_spec(where[last], last)
        assert (after.devices, after.version, after.restarts) == (before.devices, 1, 1)
        assert (await get_pod(api, last))["machineId"] == where[last].node


@once
async def test_other_devices_make_the_container_anew() -> None:
    async with joined("node-1") as (api, (agent,), _):
        first = (await api.made("/pods", imageName=IMAGE))["id"]
        await does(api, first, "stop")
        second = (await api.made("/pods", imageName=IMAGE))["id"]
        assert (await sent_spec(agent, second)).devices == ("GPU-0",)
        await does(api, first, "start")
        spec = await sent_spec(agent, first)
        assert (spec.devices, spec.version, spec.restarts) == (("GPU-1",), 2, 1)


@once
async def test_a_stopped_pod_of_a_node_that_is_gone_cannot_start() -> None:
    async with joined("node-1", "node-2") as (api, (one, two), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        node = one if (await get_pod(api, pod))["machineId"] == "node-1" else two
        await does(api, pod, "stop")
        await node.leaves()
        assert f"node {node.node}, which has it, is not connected" in await refused(api, f"/pods/{pod}/start")


@story
async def test_nothing_stays_held_when_the_store_is_full() -> None:
    async with joined("node-1") as (api, (agent,), _):
        api.world.commits.full = True
        await refused(api, "/pods", 503, imageName=IMAGE)
        api.world.commits.full = False
        assert api.plane.cluster.pods == {}
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await does(api, pod, "stop")
        api.world.commits.full = True
        await refused(api, f"/pods/{pod}/start", 503)
        api.world.commits.full = False
        assert api.plane.cluster.pods == {}
        assert (await sent_spec(agent, pod)).wish == "EXITED"


# ---- actions -------------------------------------------------------------------------------------


@story
async def test_stop_start_restart_and_reset_lead_where_they_say() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        steps = []
        for action in ("start", "stop", "stop", "start", "restart", "reset"):
            await does(api, pod, action)
            spec = await sent_spec(agent, pod)
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
async def test_a_deleted_pod_is_gone_from_lists_at_once_and_from_its_node_when_that_reports_it() -> None:
    async with joined("node-1") as (api, (agent,), _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        await agent.report_pod(await sent_spec(agent, pod), "running")
        await agent.listen(0.1)
        answer = await api.http.delete(f"/pods/{pod}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert await refused(api, f"/pods/{pod}", 404, "GET")
        assert (await api.http.get("/pods")).json() == []
        (going,) = (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json()
        assert state(going) == ("TERMINATED", "TERMINATED")

        spec = await sent_spec(agent, pod)
        assert spec.wish == "TERMINATED"
        await agent.report_pod(spec, "gone")
        await agent.listen(0.1)
        assert (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json() == []
        assert api.plane.cluster.pods == {}
        api.plane.scaling.desired.send("node-1")
        await agent.listen(0.1)
        assert agent.pods == {}


@once
async def test_what_is_not_there_cannot_be_changed() -> None:
    async with joined("node-1") as (api, _, _):
        for action in ("start", "stop", "restart", "reset", "update"):
            assert "no pod 'none'" in await refused(api, "/pods/none/" + action, 404, **_body(action))
        assert "no pod 'none'" in await refused(api, "/pods/none", 404, "DELETE")
        assert "no pod 'none'" in await refused(api, "/pods/none", 404, "PATCH", name="x")
        assert "no pod 'none'" in await refused(api, "/pods/none", 404, "GET")
        for action in ("start", "stop", "restart", "reset", "update"):
            assert "NO_ID" in await refused(api, "/pods/NO_ID/" + action, 404, **_body(action))
        for method in ("GET", "DELETE"):
            assert "NO_ID" in await refused(api, "/pods/NO_ID", 404, method=method)


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
        assert (await sent_spec(agent, pod)).wish == "EXITED"


# ---- updates -------------------------------------------------------------------------------------


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
        spec = await sent_spec(agent, pod)
        assert (spec.version, spec.image, as_requested(spec).env) == (11, "other:1", {"A": "b"})
        assert (spec.entrypoint, spec.command) == (("/x",), ("y",))
        assert (spec.disk_bytes, spec.volume_bytes, spec.volume_path) == (None, 30_000_000_000, "/data")
        assert spec.ports == (PodPort(80, "http"),)
        assert (await get_pod(api, pod))["name"] == "other"


@once
async def test_an_update_of_what_cannot_change_changes_nothing() -> None:
    async with joined("node-1") as (api, _, _):
        pod = (await api.made("/pods", imageName=IMAGE))["id"]
        for field, value in (("gpuCount", 2), ("networkVolumeId", "v"), ("templateId", "t"), ("x", 1)):
            answer = await api.http.patch(f"/pods/{pod}", json={field: value})
            assert (answer.status_code, answer.headers["stoker-ignored"]) == (200, field)
        why = await refused(api, f"/pods/{pod}", method="PATCH", containerRegistryAuthId="none")
        assert "containerRegistryAuthId" in why
        assert (await get_pod(api, pod))["version"] == 1
