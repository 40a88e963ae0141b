"""Nodes over HTTP: listed with what holds their devices, drained, resumed, and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import EndpointVersion
from stoker.control.scheduling.avoidance import Version
from stoker.control.scheduling.placed import PlacedPod
from stoker.wire.messages import Beat, Device, DeviceSample, DirectGateway, FromAgent, HeldWorker, WorkerState
from stoker.wire.messages.weights import HELD, ROOM, SIZES
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.plane_world import endpoint, one, story
from tests.control.scripted_agent import ScriptedAgent

GPUS = (
    Device("GPU-0", "gpu", "NVIDIA H200", 0, memory_total=141 << 30, driver="570.1"),
    Device("MIG-1", "mig", "NVIDIA H200 MIG 1g.18gb", 1, parent="GPU-1", memory_total=16 << 30),
)
FACTS = {"data_center": "EU-RO-1", "label.tier": "gold", "cuda": "12.8"}


@asynccontextmanager
async def joined(*agents: str, **fields: object) -> AsyncIterator[tuple[Managed, list[ScriptedAgent]]]:
    """A plane at work, with an endpoint `echo` and these nodes connected."""
    async with managed(endpoint(**fields)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        made = [api.world.agent(node=node) for node in agents]
        for agent in made:
            await agent.connect(tasks, devices=GPUS[:1], facts=FACTS)
        yield api, made
        for agent in made:
            agent.stream.end("the test is over")


async def get_node(api: Managed, node: str) -> dict:
    answer = await api.http.get(f"/nodes/{node}")
    assert answer.status_code == 200, answer.text
    return answer.json()


async def reason(api: Managed, job: str) -> str:
    return (await api.http.get(f"{V2}/echo/status/{job}")).json().get("reason", "")


@story
async def test_a_node_shows_the_weights_that_it_holds_if_its_agent_keeps_some() -> None:
    async with joined("node-1") as (api, (agent,)):
        assert "weights" not in await get_node(api, "node-1")
        await agent.stream.send(FromAgent(beat=Beat(1, facts={HELD: "", SIZES: "", ROOM: "9"})))
        await agent.listen(1)
        assert (await get_node(api, "node-1"))["weights"] == []
        await agent.stream.send(
            FromAgent(beat=Beat(2, facts={HELD: "flux@c0ffee, ink@beef", SIZES: "24, 7"}))
        )
        await agent.listen(1)
        node = await get_node(api, "node-1")
        assert node["weights"] == [
            {"name": "flux", "digest": "c0ffee", "sizeInBytes": 24},
            {"name": "ink", "digest": "beef", "sizeInBytes": 7},
        ]
        assert node["facts"] == {"cuda": "12.8", ROOM: "9"}


@story
async def test_a_node_shows_its_devices_and_what_holds_them() -> None:
    async with joined("node-1", workers_min=1) as (api, (agent,)):
        await agent.ready_workers()
        await agent.beat(samples=[DeviceSample("GPU-0", memory_used=5, utilisation=7, power=99.5)])
        await asyncio.sleep(1)
        (node,) = (await api.http.get("/nodes")).json()
        assert node == await get_node(api, "node-1")
        (worker,) = agent.specs
        assert node.pop("lastSeenAt").startswith("1970-01-12T")
        assert node.pop("name")
        assert node == {
            **{"workers": 1, "jobs": 0, "pods": 0},
            "id": "node-1",
            "state": "connected",
            "drained": False,
            "credentialId": node["credentialId"],
            "revoked": False,
            "leaving": False,
            "dataCenterId": "EU-RO-1",
            "labels": {"tier": "gold"},
            "facts": {"cuda": "12.8"},
            "devices": [
                {
                    "id": "GPU-0",
                    "kind": "gpu",
                    "name": "NVIDIA H200",
                    "index": 0,
                    "memoryInBytes": 141 << 30,
                    "memoryUsedInBytes": 5,
                    "utilization": 7,
                    "power": 99.5,
                    "driver": "570.1",
                    "heldBy": [{"workerId": worker, "endpointId": "echo", "share": 1.0}],
                }
            ],
        }


@story
async def test_how_its_http_workers_are_reached_is_shown() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent(node="node-1")
        agent.peer, agent.tunnels = "ipv4:10.0.0.7:4711", True
        agent.direct = DirectGateway("", 8002, "a-token-of-the-agent", b"certificate")
        await agent.connect(tasks)
        assert (await get_node(api, "node-1"))["reached"] == {
            "way": "direct",
            "why": "its gateway port, 10.0.0.7:8002",
        }
        node = api.plane.cluster.nodes["node-1"]
        reach = replace(node.reach, tunnel_open=True)
        node.reach = reach.failed("direct", "Connection refused", api.world.now())
        assert (await get_node(api, "node-1"))["reached"] == {
            "way": "tunnel",
            "why": "direct failed: Connection refused",
        }
        agent.stream.end("the test is over")


@story
async def test_unhealthy_devices_slices_and_pods_are_shown() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent(node="node-1")
        ill = [DeviceSample("GPU-0", ill="Xid 79")]
        await agent.connect(tasks, devices=GPUS, samples=ill)
        api.plane.cluster.pods["pod-1"] = PlacedPod("pod-1", "node-1", ("MIG-1",))
        gpu, mig = (await get_node(api, "node-1"))["devices"]
        assert (gpu["ill"], gpu["heldBy"]) == ("Xid 79", [])
        assert (mig["kind"], mig["parentId"]) == ("mig", "GPU-1")
        assert mig["heldBy"] == [{"podId": "pod-1", "share": 1.0}]
        assert "ill" not in mig
        agent.stream.end("the test is over")


@story
async def test_a_drained_nodes_idle_worker_stops_and_others_start_elsewhere() -> None:
    async with joined("node-1", "node-2", workers_min=1) as (api, (first, second)):
        await first.ready_workers()
        answer = await api.http.post("/nodes/node-1/drain")
        assert (answer.status_code, answer.json()["drained"]) == (200, True)
        await second.ready_workers()
        await first.listen(2)
        assert first.specs == {}
        again = await api.http.post("/nodes/node-1/drain")
        assert again.json()["drained"], "asked twice is asked once"
        assert (await get_node(api, "node-2"))["drained"] is False


@story
async def test_a_node_whose_disk_is_full_takes_nothing_new_until_there_is_room() -> None:
    async with joined("node-1") as (api, (agent,)):
        full = {"disk_free": "100000000", "disk_total": "1000000000000", "agent_version": "0.2.0"}
        await agent.beat(1, facts=full)
        job = await api.plane.commands.submit(api.world.echo, one(), sync=False)
        await agent.listen(2)
        assert agent.specs == {}
        assert "has 0.10 GB of disk free, and takes nothing new" in await reason(api, job.id)
        node = await get_node(api, "node-1")
        assert (node["agentVersion"], node["diskFreeInBytes"], node["workers"]) == ("0.2.0", 10**8, 0)
        assert node["facts"].keys().isdisjoint(full)
        await agent.beat(2, facts={"disk_free": "900000000000"})
        await agent.ready_workers()
        await agent.completes(await agent.assigned())
        assert (await get_node(api, "node-1"))["workers"] == 1


@story
async def test_a_drained_nodes_busy_worker_finishes_its_job_and_gets_no_other() -> None:
    async with joined("node-1", workers_min=1) as (api, (agent,)):
        await agent.ready_workers()
        first = await api.plane.commands.submit(api.world.echo, one(), sync=False)
        assign = await agent.assigned()
        await api.http.post("/nodes/node-1/drain")
        await agent.listen(1)
        assert agent.specs == {}, "an agent lets a worker that is not named finish"
        second = await api.plane.commands.submit(api.world.echo, one(), sync=False)
        await agent.completes(assign)
        assert (await api.plane.queries.wait(api.world.echo, first.id, 10)).state is JobState.COMPLETED
        await agent.listen(5)
        assert await reason(api, second.id) == "no capacity: every connected node is drained"
        health = (await api.http.get(f"{V2}/echo/health")).json()
        assert health["workers"]["throttled"] == 1
        assert health["reason"] == "no capacity: every connected node is drained"
        assert agent.assigns == []
        await agent.report(WorkerState(assign.worker, "echo", 1, "gone"))
        await api.http.post("/nodes/node-1/resume")
        await agent.ready_workers()
        await agent.completes(await agent.assigned())
        assert (await api.plane.queries.wait(api.world.echo, second.id, 10)).state is JobState.COMPLETED
        assert "reason" not in (await api.http.get(f"{V2}/echo/health")).json()


@story
async def test_a_revoked_node_is_disconnected_and_reports_it() -> None:
    async with joined("node-1") as (api, (agent,)):
        answer = await api.http.post("/nodes/node-1/revoke")
        assert (answer.status_code, answer.json()["revoked"]) == (200, True)
        assert "its credential was revoked" in await agent.cut_off()
        assert (await get_node(api, "node-1"))["state"] == "silent"
        again = await api.http.post("/nodes/node-1/revoke")
        assert (again.status_code, again.json()["revoked"]) == (200, True)


@story
async def test_a_node_stays_drained_over_its_own_return_and_over_a_restart_of_control() -> None:
    held = HeldWorker("w1", "echo", 1, "ready", ("GPU-0",))
    async with managed(endpoint(workers_min=1)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent(node="node-1")
        await agent.connect(tasks, devices=GPUS[:1])
        await api.http.post("/nodes/node-1/drain")
        agent.stream.end("cut")
        await asyncio.sleep(1)
        assert (await get_node(api, "node-1"))["state"] == "silent"
        await agent.connect(tasks, devices=GPUS[:1], workers=[held])
        await agent.listen(5)
        assert agent.specs == {}
        agent.stream.end("cut")
        await asyncio.sleep(1)
        await api.again(endpoint(workers_min=1))
        api.run()
        other = api.world.agent(node="node-1")
        await other.connect(tasks, devices=GPUS[:1], workers=[held])
        await other.listen(5)
        assert other.specs == {}
        assert (await get_node(api, "node-1"))["drained"] is True
        await other.report(WorkerState("w1", "echo", 1, "gone"))
        await api.http.post("/nodes/node-1/resume")
        await other.ready_workers()
        other.stream.end("the test is over")


@story
async def test_a_node_is_forgotten_only_when_it_is_gone() -> None:
    async with joined("node-1") as (api, (agent,)):
        await api.http.post("/nodes/node-1/drain")
        answer = await api.http.delete("/nodes/node-1")
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("node node-1 is connected: ")
        agent.stream.end("cut")
        await asyncio.sleep(1)
        answer = await api.http.delete("/nodes/node-1")
        assert answer.json()["error"].startswith("node node-1 is silent: ")
        await asyncio.sleep(70)
        node = await get_node(api, "node-1")
        assert (node["state"], node["drained"], node["devices"][0]["id"]) == ("gone", True, "GPU-0")
        gone = await api.http.delete("/nodes/node-1")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await api.http.get("/nodes")).json() == []
        assert "node-1" not in api.plane.cluster.drained, "if it comes back, it is a new one"


@story
async def test_pods_stay_on_a_drained_node_and_new_ones_go_elsewhere() -> None:
    engine = FACTS | {"containers": "docker 28.0.1", "containers_cdi": "yes"}
    async with managed(endpoint(workers_max=0)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        first, second = api.world.agent(node="node-1"), api.world.agent(node="node-2")
        await first.connect(tasks, devices=GPUS[:1], facts=engine)
        pod = await api.made("/pods", imageName="ghcr.io/example/notebook:1.2")
        assert pod["machineId"] == "node-1"
        await api.http.post("/nodes/node-1/drain")
        await first.listen(3)
        assert first.pods.keys() == {pod["id"]}
        answer = await api.http.post("/pods", json={"imageName": "ghcr.io/example/notebook:1.2"})
        assert answer.status_code == 400
        assert "every connected node is drained" in answer.json()["error"]
        await second.connect(tasks, devices=GPUS[:1], facts=engine)
        other = await api.made("/pods", imageName="ghcr.io/example/notebook:1.2")
        assert other["machineId"] == "node-2"
        first.stream.end("cut")
        await asyncio.sleep(70)
        answer = await api.http.delete("/nodes/node-1")
        assert answer.status_code == 400
        assert answer.json()["error"] == "node node-1 holds a job or a pod still: delete its pods first"
        assert (await api.http.delete(f"/pods/{pod['id']}")).status_code == 204
        assert (await api.http.delete("/nodes/node-1")).status_code == 204
        assert (await api.http.get("/pods", params={"desiredStatus": "TERMINATED"})).json() == []
        second.stream.end("the test is over")


@story
async def test_a_drained_node_is_not_one_that_leaves() -> None:
    async with joined("node-1") as (api, (agent,)):
        await agent.stream.send(FromAgent(draining=True))
        await asyncio.sleep(1)
        node = await get_node(api, "node-1")
        assert (node["leaving"], node["drained"]) == (True, False)
        job = await api.plane.commands.submit(api.world.echo, one(), sync=False)
        await asyncio.sleep(3)
        assert await reason(api, job.id) == "no capacity: every connected node is about to go"


@story
async def test_a_worker_that_is_too_many_is_throttled_with_its_reason() -> None:
    run = EndpointVersion("/h/echo.py:handler")
    async with joined("node-1", workers_min=2, workers_max=2, run=run) as (api, (agent,)):
        await agent.ready_workers()
        await asyncio.sleep(3)
        health = (await api.http.get(f"{V2}/echo/health")).json()
        assert health["workers"]["throttled"] == 1
        why = "throttled: no node has a free device: node node-1 has none free"
        assert health["reason"] == why
        shown = await api.http.get("/endpoints/echo", params={"includeWorkers": True})
        there, throttled = shown.json()["workers"]
        assert (there["status"], there["machineId"]) == ("IDLE", "node-1")
        assert (throttled["status"], throttled["reason"]) == ("THROTTLED", why)
        assert "machineId" not in throttled


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", "/drain"), ("POST", "/resume"), ("POST", "/revoke"), ("DELETE", "")],
)
async def test_a_node_that_there_is_not(api: Managed, method: str, path: str) -> None:
    unknown = await api.http.request(method, f"/nodes/nobody{path}")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "no node 'nobody'")
    bad = await api.http.request(method, f"/nodes/A%20B{path}")
    assert (bad.status_code, bad.json()["error"]) == (404, "no node 'A B'")
    keyless = await api.http.request(method, f"/nodes/nobody{path}", headers={"authorization": ""})
    assert keyless.status_code == 401


@story
async def test_an_endpoint_and_a_node_say_where_its_workers_did_not_start_and_why() -> None:
    """Also while other nodes have its workers, and no job waits."""
    async with joined("node-1", "node-2") as (api, _):
        assert "avoidedNodes" not in (await api.http.get("/endpoints/echo")).json()
        avoidance, version = api.plane.scaling.places.avoidance, Version("echo", 1)
        avoidance.note_failed(version, "node-1", "w1", "no module named einops", api.world.now())
        found = (await api.http.get("/endpoints/echo")).json()["avoidedNodes"]
        assert found == (await get_node(api, "node-1"))["avoidedFor"]
        [avoided] = found
        assert avoided["nodeId"] == "node-1"
        assert avoided["endpointId"] == "echo"
        assert avoided["reason"] == "no module named einops"
        assert "avoidedFor" not in await get_node(api, "node-2")
        avoidance.note_ready(version, "node-1")
        assert "avoidedNodes" not in (await api.http.get("/endpoints/echo")).json()
