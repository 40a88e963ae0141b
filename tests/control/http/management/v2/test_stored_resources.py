"""Templates, registries and network volumes in the second shape, and the same of them at /v1."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.http.management.managed import Managed
from tests.control.http.management.v2.second_shape import call, get, make

IMAGE = "ghcr.io/example/worker:1.2"


async def v1(api: Managed, path: str) -> Any:
    answer = await api.http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_template_is_made_changed_and_deleted(api: Managed) -> None:
    made = await make(
        api,
        "/templates",
        name="t",
        image=IMAGE,
        args="python 'my handler.py'",
        disk=5,
        env={"A": "1"},
        serverless=True,
        mounts={"persistent": {"size": 10, "path": "/data"}},
        startSsh=False,
    )
    assert made == {
        "id": made["id"],
        "name": "t",
        "image": IMAGE,
        "args": "python 'my handler.py'",
        "disk": 5,
        "ports": [],
        "env": {"A": "1"},
        "registry": None,
        "mounts": {"persistent": {"size": 10, "path": "/data"}},
        "serverless": True,
        "public": False,
        "category": "NVIDIA",
        "startSsh": False,
        "startJupyter": True,
        "allowedCudaVersions": [],
    }
    path = f"/templates/{made['id']}"
    there = await v1(api, path)
    assert there["dockerStartCmd"] == ["python", "my handler.py"]
    assert (there["isServerless"], there["volumeInGb"], there["ports"]) == (True, 10, [])
    changed = await call(api, "PATCH", path, 200, disk=7, mounts={})
    assert (changed["disk"], changed["mounts"], changed["startSsh"]) == (7, {}, False)
    await api.http.patch(path, json={"readme": "r"})
    assert await get(api, path) == changed
    listed = await get(api, "/templates")
    assert listed == {"templates": [changed], "pagination": {"hasNextPage": False, "nextCursor": None}}
    await call(api, "DELETE", path, 204)
    await call(api, "GET", path, 404)


async def test_a_change_by_v2_keeps_what_only_v1_has(api: Managed) -> None:
    made = await api.made(
        "/templates", name="t", imageName=IMAGE, handler="h.py:run", readme="r", concurrency=3
    )
    record = await get(api, f"/templates/{made['id']}")
    same = {name: value for name, value in record.items() if name != "id"}
    assert await call(api, "PATCH", f"/templates/{made['id']}", 200, **same) == record
    assert await v1(api, f"/templates/{made['id']}") == made


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (422, {"name": "t"}, "image is required"),
        (422, {"name": "t", "image": IMAGE, "volumeInGb": 3}, "volumeInGb is not a known field"),
        (
            400,
            {"name": "t", "image": IMAGE, "registry": "none"},
            "registry must be the id of a registry auth",
        ),
        (
            422,
            {"name": "t", "image": IMAGE, "mounts": {"network": []}},
            "mounts.network is not a known field",
        ),
    ],
)
async def test_templates_that_cannot_be(api: Managed, status: int, body: dict[str, Any], why: str) -> None:
    assert why in await call(api, "POST", "/templates", status, **body)


async def test_a_template_in_use_is_a_400(api: Managed) -> None:
    template = await make(api, "/templates", name="t", image=IMAGE, serverless=True)
    await api.made("/endpoints", name="e", templateId=template["id"])
    assert "is used by endpoint" in await call(api, "DELETE", f"/templates/{template['id']}", 400)
    assert (await get(api, "/templates"))["templates"] == []


async def test_registries(api: Managed) -> None:
    made = await make(api, "/registries", name="mine", username="u", password="p")
    assert made == {"id": made["id"], "name": "mine"}
    assert (await get(api, "/registries"))["registries"] == [made]
    assert await get(api, f"/registries/{made['id']}") == made
    assert await v1(api, "/containerregistryauth") == [made]
    template = await make(api, "/templates", name="t", image=IMAGE, registry=made["id"])
    assert "in use by" in await call(api, "DELETE", f"/registries/{made['id']}", 400)
    await call(api, "PATCH", f"/templates/{template['id']}", 200, registry=None)
    await call(api, "DELETE", f"/registries/{made['id']}", 204)
    await call(api, "DELETE", f"/registries/{made['id']}", 404)
    why = await call(api, "POST", "/registries", 422, name="mine", username="u", password="")
    assert "a secret" in why


async def test_network_volumes(api: Managed) -> None:
    made = await make(api, "/network-volumes", name="v", size=10, dataCenter="EU-RO-1", type="STANDARD")
    assert made == {"id": made["id"], "name": "v", "size": 10, "dataCenter": "EU-RO-1", "type": "STANDARD"}
    path = f"/network-volumes/{made['id']}"
    assert await get(api, path) == made
    assert await call(api, "PATCH", path, 200, size=20) == made | {"size": 20}
    assert "20" in await call(api, "PATCH", path, 400, size=10)
    empty = await api.http.patch(f"http://stoker/v2{path}", json={})
    assert empty.status_code == 422
    listed = await get(api, "/network-volumes")
    assert listed["networkVolumes"] == [made | {"size": 20}]
    assert listed["pagination"] == {"hasNextPage": False, "nextCursor": None}
    assert (await v1(api, "/networkvolumes"))[0]["dataCenterId"] == "EU-RO-1"
    await call(api, "DELETE", path, 204)
    await call(api, "DELETE", path, 404)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (
            400,
            {"name": "v", "size": 10, "dataCenter": "MOON-1"},
            "dataCenter must hold names out of: EU-RO-1",
        ),
        (400, {"name": "v", "size": 10, "dataCenter": "EU-RO-1", "type": "HIGH_PERFORMANCE"}, "be STANDARD"),
        (422, {"name": "v", "size": 9, "dataCenter": "EU-RO-1"}, "size"),
    ],
)
async def test_volumes_that_cannot_be(api: Managed, status: int, body: dict[str, Any], why: str) -> None:
    assert why in await call(api, "POST", "/network-volumes", status, **body)


async def test_there_are_no_global_volumes_and_none_can_be_made(api: Managed) -> None:
    assert await get(api, "/global-volumes") == {
        "globalVolumes": [],
        "pagination": {"hasNextPage": False, "nextCursor": None},
    }
    assert "/v2/network-volumes" in await call(api, "POST", "/global-volumes", 501, name="g")
