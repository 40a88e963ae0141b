"""Endpoints in the second shape: made, changed, deleted, and the same at /v1."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stoker.control.errors import NotFound
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.http.management.v2.second_shape import call, get, make
from tests.control.plane_world import endpoint

IMAGE = "ghcr.io/example/worker:1.2"
BODY: dict[str, Any] = {
    "name": "e",
    "type": "QUEUE",
    "image": IMAGE,
    "gpu": {"pools": ["AMPERE_24", "AMPERE_48"]},
    "scaling": {"type": "QUEUE_DELAY", "queueDelay": 4},
}


async def v1(api: Managed, path: str) -> Any:
    answer = await api.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def versions(api: Managed, made: dict[str, Any]) -> int:
    found: int = (await v1(api, f"/endpoints/{made['id']}"))["version"]
    return found


async def test_an_endpoint_is_made_with_an_image_and_is_called(api: Managed) -> None:
    made = await make(
        api,
        "/serverless",
        **BODY | {"gpu": {"pools": ["AMPERE_24"], "excludedTypes": ["NVIDIA L4"], "count": 2}},
        args="python -u 'my handler.py'",
        disk=20,
        env={"A": "1"},
        workers={"min": 0, "max": 2, "idleTimeout": 7},
        timeout=30_000,
        flashboot="PRIORITY_FLASHBOOT",
        dataCenterIds=["EU-RO-1"],
    )
    base = f"http://stoker/v2/{made['id']}"
    assert made == {
        "id": made["id"],
        "name": "e",
        "type": "QUEUE",
        "image": IMAGE,
        "args": "python -u 'my handler.py'",
        "disk": 20,
        "ports": [],
        "env": {"A": "1"},
        "registry": None,
        "requestUrls": {
            "run": f"{base}/run",
            "runSync": f"{base}/runsync",
            "status": f"{base}/status",
            "stream": f"{base}/stream",
            "cancel": f"{base}/cancel",
            "retry": f"{base}/retry",
            "purgeQueue": f"{base}/purge-queue",
            "health": f"{base}/health",
        },
        "gpu": {
            "pools": ["AMPERE_24"],
            "excludedTypes": ["NVIDIA L4"],
            "count": 2,
            "allowedCudaVersions": [],
            "minCudaVersion": None,
        },
        "workers": {"min": 0, "max": 2, "idleTimeout": 7},
        "scaling": {"type": "QUEUE_DELAY", "queueDelay": 4},
        "dataCenterIds": ["EU-RO-1"],
        "networkVolumes": [],
        "timeout": 30_000,
        "flashboot": "PRIORITY_FLASHBOOT",
        "createdAt": made["createdAt"],
    }
    there = await v1(api, f"/endpoints/{made['id']}?includeTemplate=true")
    assert there["gpuTypeIds"] == ["NVIDIA RTX A5000", "NVIDIA GeForce RTX 3090"]
    assert there["template"]["dockerStartCmd"] == ["python", "-u", "my handler.py"]
    assert (there["flashboot"], there["scalerValue"], there["computeType"]) == (True, 4, "GPU")
    listed = await get(api, "/serverless")
    assert made in listed["endpoints"]
    assert (await api.http.post(f"{V2}/{made['id']}/run", json={"input": {}})).status_code == 200


async def test_its_template_is_its_own_and_goes_with_it(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY)
    template = (await v1(api, f"/endpoints/{made['id']}"))["templateId"]
    assert (await get(api, "/templates"))["templates"] == []
    changed = await call(api, "PATCH", f"/serverless/{made['id']}", 200, image="other:2", env={"B": "2"})
    assert (changed["image"], changed["env"]) == ("other:2", {"B": "2"})
    assert (await v1(api, f"/endpoints/{made['id']}"))["templateId"] == template
    assert await versions(api, made) == 2
    await call(api, "DELETE", f"/serverless/{made['id']}", 204)
    await call(api, "GET", f"/serverless/{made['id']}", 404)
    await call(api, "GET", f"/templates/{template}", 404)


async def test_a_template_is_copied_once(api: Managed) -> None:
    of = await make(api, "/templates", name="t", image=IMAGE, env={"A": "1", "B": "1"}, serverless=True)
    body = {name: value for name, value in BODY.items() if name != "image"}
    made = await make(api, "/serverless", **body, templateId=of["id"], env={"B": "2"}, disk=9)
    assert (made["image"], made["env"], made["disk"]) == (IMAGE, {"A": "1", "B": "2"}, 9)
    await call(api, "PATCH", f"/templates/{of['id']}", 200, image="other:2")
    assert (await get(api, f"/serverless/{made['id']}"))["image"] == IMAGE
    changed = await call(api, "PATCH", f"/serverless/{made['id']}", 200, templateId=of["id"])
    assert (changed["image"], changed["env"]) == ("other:2", {"A": "1", "B": "1"})
    await call(api, "DELETE", f"/templates/{of['id']}", 204)
    await call(api, "DELETE", f"/serverless/{made['id']}", 204)


async def test_an_endpoint_of_v1_keeps_its_template_until_v2_changes_its_container(api: Managed) -> None:
    of = await api.made("/templates", name="t", imageName=IMAGE, isServerless=True)
    made = await api.made("/endpoints", name="e", templateId=of["id"], gpuTypeIds=["NVIDIA L4", "NVIDIA A40"])
    record = await get(api, f"/serverless/{made['id']}")
    assert record["gpu"]["pools"] == ["AMPERE_24", "AMPERE_48"]
    names = ("name", "scaling", "workers", "dataCenterIds", "networkVolumes", "timeout", "flashboot")
    same = {name: record[name] for name in names}
    gpu = {**record["gpu"], "minCudaVersion": ""}
    assert await call(api, "PATCH", f"/serverless/{made['id']}", 200, **same, gpu=gpu) == record
    after = await v1(api, f"/endpoints/{made['id']}")
    assert {name: after[name] for name in made} == made
    await call(api, "PATCH", f"/serverless/{made['id']}", 200, disk=7)
    own = (await v1(api, f"/endpoints/{made['id']}"))["templateId"]
    assert own != of["id"]
    assert (await get(api, f"/templates/{of['id']}"))["disk"] == 50
    await api.http.patch(f"/endpoints/{made['id']}", json={"templateId": of["id"]})
    await call(api, "GET", f"/templates/{own}", 404)
    await call(api, "DELETE", f"/serverless/{made['id']}", 204)
    await get(api, f"/templates/{of['id']}")


async def test_an_own_template_that_another_endpoint_uses_stays(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY)
    template = (await v1(api, f"/endpoints/{made['id']}"))["templateId"]
    await api.made("/endpoints", name="other", templateId=template)
    await call(api, "DELETE", f"/serverless/{made['id']}", 204)
    assert (await get(api, f"/templates/{template}"))["image"] == IMAGE


async def test_a_part_of_a_second_is_kept_until_v1_changes_it(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY | {"scaling": {"type": "QUEUE_DELAY", "queueDelay": 0.5}})
    assert made["scaling"]["queueDelay"] == 0.5
    assert (await v1(api, f"/endpoints/{made['id']}"))["scalerValue"] == 1
    await api.http.patch(f"/endpoints/{made['id']}", json={"scalerValue": 3})
    assert (await get(api, f"/serverless/{made['id']}"))["scaling"]["queueDelay"] == 3
    whole = {"scaling": {"type": "QUEUE_DELAY", "queueDelay": 1}}
    assert (await call(api, "PATCH", f"/serverless/{made['id']}", 200, **whole))["scaling"]["queueDelay"] == 1
    assert await versions(api, made) == 1
    requests = {"scaling": {"type": "REQUEST_COUNT", "requestCount": 2}}
    counted = await call(api, "PATCH", f"/serverless/{made['id']}", 200, **requests)
    assert counted["workers"] == {"min": 0, "max": 3}
    assert counted["scaling"] == {"type": "REQUEST_COUNT", "requestCount": 2}


async def test_an_endpoint_on_cpus(api: Managed) -> None:
    body = {name: value for name, value in BODY.items() if name != "gpu"}
    made = await make(api, "/serverless", **body, cpu=[{"id": "cpu3c", "vcpuCount": 4}])
    assert made["cpu"] == [{"id": "cpu3c", "vcpuCount": 4}]
    assert "gpu" not in made
    assert (await v1(api, f"/endpoints/{made['id']}"))["instanceIds"] == ["cpu3c-4-8"]
    cpu = {"cpu": [{"id": "cpu5c", "vcpuCount": 2}]}
    assert (await call(api, "PATCH", f"/serverless/{made['id']}", 200, **cpu))["cpu"] == cpu["cpu"]
    why = await call(api, "PATCH", f"/serverless/{made['id']}", 400, gpu={"count": 1})
    assert "runs on CPUs" in why


async def test_two_changes_at_once_are_both_made(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY, env={"A": "1"})
    changes = ({"image": f"{IMAGE}-b"}, {"env": {"B": "2"}})
    await asyncio.gather(
        *(call(api, "PATCH", f"/serverless/{made['id']}", 200, **change) for change in changes)
    )
    found = await get(api, f"/serverless/{made['id']}")
    assert (found["image"], found["env"]) == (f"{IMAGE}-b", {"B": "2"})


async def test_the_order_of_pools_may_be_changed(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY)
    turned = BODY["gpu"]["pools"][::-1]
    changed = await call(api, "PATCH", f"/serverless/{made['id']}", 200, gpu={"pools": turned})
    assert changed["gpu"]["pools"] == turned


async def test_all_pools_are_any_gpu(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY)
    every = (await get(api, f"/serverless/{made['id']}"))["gpu"]["pools"]
    assert every == ["AMPERE_24", "AMPERE_48"]
    any_gpu = await api.made("/templates", name="t", imageName=IMAGE, isServerless=True)
    one = await api.made("/endpoints", name="any", templateId=any_gpu["id"], computeType="GPU")
    pools = (await get(api, f"/serverless/{one['id']}"))["gpu"]["pools"]
    assert len(pools) == 11
    await call(api, "PATCH", f"/serverless/{made['id']}", 200, gpu={"pools": pools})
    assert (await v1(api, f"/endpoints/{made['id']}"))["gpuTypeIds"] == []


async def test_what_the_apps_client_of_the_sdk_sends_is_taken(api: Managed) -> None:
    made = await make(
        api,
        "/serverless",
        image=IMAGE,
        disk=64,
        args="",
        env={"KEY": "v"},
        name="live-app",
        timeout=0,
        networkVolumes=[],
        type="QUEUE",
        gpu={"pools": ["ADA_24"], "excludedTypes": [], "count": 1},
        workers={"min": 0, "max": 3, "idleTimeout": 60},
        scaling={"type": "QUEUE_DELAY", "queueDelay": 4},
    )
    assert made["timeout"] == 600_000


LB = {"type": "LOAD_BALANCER"}


@pytest.mark.parametrize(
    ("status", "changes", "why"),
    [
        (422, {"type": "QB"}, "type must be one of"),
        (422, {"scaling": {"type": "QUEUE_DELAY"}}, "queueDelay is required"),
        (422, {"scaling": {"type": "QUEUE_DELAY", "queueDelay": 0.4}}, "queueDelay"),
        (422, {"gpu": {"pools": []}}, "gpu.pools"),
        (422, {"gpu": None, "cpu": [{"id": "cpu3c", "vcpuCount": 1024}]}, "vcpuCount"),
        (422, {"gpu": None, "cpu": [{"id": "cpu3c", "vcpuCount": 3}]}, "must be a power of two; got 3"),
        (422, {"dataCenterIds": ["x" * 192]}, "dataCenterIds"),
        (422, {"workersMax": 3}, "workersMax is not a known field"),
        (
            422,
            {"scaling": {"type": "REQUEST_COUNT", "requestCount": 1}, "workers": {"idleTimeout": 5}},
            "workers.idleTimeout is not for",
        ),
        (400, LB, "must be REQUEST_COUNT"),
        (400, {"gpu": None}, "either gpu or cpu; got neither"),
        (400, {"cpu": [{"id": "cpu3c", "vcpuCount": 2}]}, "either gpu or cpu; got both"),
        (400, {"gpu": {"pools": ["ADA"]}}, "gpu.pools must hold names out of"),
        (400, {"image": None}, "image is required"),
        (400, {"workers": {"min": 3, "max": 2}}, "workers.min"),
        (400, {"networkVolumes": ["none"]}, "networkVolumes must name a network volume"),
        (400, {"registry": "none"}, "registry must be the id of a registry auth"),
        (400, {"timeout": 17}, "timeout"),
        (404, {"image": None, "templateId": "none"}, "no template 'none'"),
    ],
)
async def test_what_cannot_be_made_is_refused(
    api: Managed, status: int, changes: dict[str, Any], why: str
) -> None:
    body = {name: value for name, value in (BODY | changes).items() if value is not None}
    assert why in await call(api, "POST", "/serverless", status, **body)
    with pytest.raises(NotFound):
        api.management.endpoints.get("default", "e")
    assert await v1(api, "/templates?includeEndpointBoundTemplates=true") == []


async def test_a_template_for_pods_is_a_422(api: Managed) -> None:
    template = await make(api, "/templates", name="t", image=IMAGE)
    body = {name: value for name, value in BODY.items() if name != "image"}
    why = await call(api, "POST", "/serverless", 422, **body, templateId=template["id"])
    assert "must be of a template for an endpoint" in why


async def test_a_load_balancing_endpoint_has_a_base() -> None:
    async with managed() as api:
        scaling = {"type": "REQUEST_COUNT", "requestCount": 3}
        made = await make(
            api, "/serverless", **BODY | LB | {"scaling": scaling, "workers": {"idleTimeout": 9}}
        )
        assert made["requestUrls"]["base"] == f"http://stoker/v2/{made['id']}"
        assert made["workers"]["idleTimeout"] == 9


async def test_an_endpoint_of_the_file_is_read_and_not_changed() -> None:
    async with managed(endpoint("declared", workers_max=0)) as api:
        record = await get(api, "/serverless/declared")
        assert (record["image"], record["env"]) == ("/h/echo.py:handler", {})
        for body in ({"image": "i:1"}, {"workers": {"max": 2}}):
            assert "only the file can change it" in await call(
                api, "PATCH", "/serverless/declared", 400, **body
            )
        assert "only the file can delete it" in await call(api, "DELETE", "/serverless/declared", 400)


async def test_workers_and_releases(api: Managed) -> None:
    made = await make(api, "/serverless", **BODY)
    assert await get(api, f"/serverless/{made['id']}/workers") == {
        "workers": [],
        "summary": {
            "running": 0,
            "idle": 0,
            "initializing": 0,
            "throttled": 0,
            "unhealthy": 0,
            "total": 0,
        },
        "endpointVersion": 1,
    }
    assert (await get(api, f"/serverless/{made['id']}/releases"))["rollout"]["inProgress"] is False
    assert "builds is not served" in await call(api, "GET", f"/serverless/{made['id']}/builds", 501)
