"""The workers of endpoints are told as whole pods, wherever they are told."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.billing import PriceList
from stoker.wire.messages import StartStage, WorkerState
from tests.control.http.management.pods.pod_world import FACTS, joined, once

IMAGE = "worker:1"
PRICED = PlaneSettings(price_list=PriceList(gpu_second={"NVIDIA GeForce RTX 4090": 200_000}))


@once
async def test_a_worker_that_is_ready_shows_the_stages_of_its_start_if_its_node_says_them() -> None:
    async with joined("node-1", facts=FACTS) as (api, (agent,), _):
        template = await api.made("/templates", name="t", imageName=IMAGE)
        made = await api.made("/endpoints", name="e", templateId=template["id"], workersMin=1, workersMax=1)

        async def shown() -> Any:
            answer = await api.http.get(f"/endpoints/{made['id']}", params={"includeWorkers": True})
            return answer.json()["workers"][0].get("coldStartMs")

        (worker,) = await agent.ready_workers()
        assert await shown() is None
        stages = (StartStage("weights", 61_800), StartStage("process", 240), StartStage("read\0", 9_120))
        state = WorkerState(worker, made["id"], 1, "ready", cold_start=stages)
        await agent.report(state)
        await agent.listen(0.1)
        assert list((await shown()).items()) == [("weights", 61_800), ("process", 240), ("read\ufffd", 9_120)]
        await agent.report(replace(state, state="starting", cold_start=()))
        await agent.listen(0.1)
        assert await shown() is None


@once
async def test_a_worker_shows_what_it_runs_and_which_speed_ups_it_goes_without() -> None:
    async with joined("node-1", facts=FACTS) as (api, (agent,), _):
        template = await api.made("/templates", name="t", imageName=IMAGE)
        made = await api.made("/endpoints", name="e", templateId=template["id"], workersMin=1, workersMax=1)
        (worker,) = await agent.ready_workers()
        endpoint = f"/endpoints/{made['id']}?includeWorkers=true"
        assert "serves" not in (await api.http.get(endpoint)).json()["workers"][0]
        told = "flux-1-dev (12 B), without block-compile (there is no C compiler)"
        await agent.report(WorkerState(worker, made["id"], 1, "ready", serves=told))
        await agent.listen(0.1)
        assert (await api.http.get(endpoint)).json()["workers"][0]["serves"] == told
        (as_pod,) = (await api.http.get("/pods?includeWorkers=true")).json()
        assert as_pod["serves"] == told


@once
async def test_a_worker_has_what_a_pod_has() -> None:
    facts = FACTS | {"memory_bytes": "62500000000", "public_ip": "192.0.2.7"}
    async with joined("node-1", facts=facts, settings=PRICED) as (api, (agent,), _):
        template = await api.made("/templates", name="t", imageName=IMAGE, env={"A": "b"})
        made = await api.made("/endpoints", name="e", templateId=template["id"], workersMin=1, workersMax=1)
        (worker,) = await agent.ready_workers()
        endpoint = (await api.http.get(f"/endpoints/{made['id']}?includeWorkers=true")).json()
        (shown,) = endpoint["workers"]
        assert shown["id"] == worker
        assert (shown["endpointId"], shown["aiApiId"], shown["slsVersion"]) == (made["id"], made["id"], 1)
        assert (shown["image"], shown["env"], shown["containerDiskInGb"]) == (IMAGE, {"A": "b"}, 50)
        assert (shown["vcpuCount"], shown["memoryInGb"], shown["publicIp"]) == (16, 62, "192.0.2.7")
        assert (shown["costPerHr"], shown["adjustedCostPerHr"]) == (0.72, 0.72)
        assert shown["gpu"] == {
            "id": "NVIDIA GeForce RTX 4090",
            "count": 1,
            "displayName": "RTX 4090",
            "securePrice": 0.72,
        }
        whole = {"dockerStartCmd", "ports", "volumeMountPath", "interruptible", "locked", "savingsPlans"}
        assert whole <= shown.keys()
        listed = (await api.http.get("/pods", params={"includeWorkers": True})).json()
        assert [(one["id"], one["costPerHr"], one["gpu"]) for one in listed] == [(worker, 0.72, shown["gpu"])]
        assert shown.keys() - {"reason"} <= listed[0].keys()
        pod = await api.made("/pods", imageName="a/pod:1")
        assert pod["gpu"]["securePrice"] == 0.72
