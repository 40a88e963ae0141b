"""The client's `manage` against the whole API: each method once."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from stoker.client import ApiError, AsyncClient, Client, Unauthorized
from stoker.client.management import Management
from tests.control.http.management.managed import Managed
from tests.control.scripted_agent import CPU

IMAGE = "ghcr.io/example/worker:1.2"
FACTS = {"containers": "docker 28.0.1", "vcpus": "16"}


def client(api: Managed, key: str | None = None) -> AsyncClient:
    transport = httpx2.ASGITransport(api.app)
    return AsyncClient("https://stoker", key or api.world.key, transport=transport, resends=0)


async def is_made_changed_and_deleted(
    resource: Any, fields: dict[str, Any], changes: dict[str, Any], **listed: Any
) -> None:
    made = await resource.create(fields)
    assert (await resource.get(made["id"]))["name"] == made["name"]
    if changes:
        assert (await resource.update(made["id"], changes)).items() >= changes.items()
    assert made["id"] in {one["id"] for one in await resource.list(**listed)}
    assert await resource.delete(made["id"]) is None
    assert made["id"] not in {one["id"] for one in await resource.list(**listed)}


async def test_what_is_made_is_changed_and_deleted(api: Managed) -> None:
    async with client(api) as stoker:
        manage: Management = stoker.manage
        image = await manage.templates.create({"name": "t", "imageName": IMAGE, "isServerless": True})
        await is_made_changed_and_deleted(
            manage.endpoints,
            {"templateId": image["id"], "name": "e"},
            {"workersMax": 5},
            includeTemplate=True,
        )
        e = await manage.endpoints.create({"templateId": image["id"], "workersMin": 0})
        assert await manage.endpoints.workers(e["id"], status="IDLE", limit=5) == []
        assert (await manage.endpoints.statistics(e["id"]))["jobs"] == 0
        await is_made_changed_and_deleted(
            manage.templates, {"name": "u", "imageName": IMAGE}, {"readme": "words"}
        )
        volume = {"name": "v", "size": 10, "dataCenterId": "EU-RO-1"}
        await is_made_changed_and_deleted(manage.volumes, volume, {"size": 20})
        login = {"name": "r", "username": "robot", "password": "hunter2"}
        await is_made_changed_and_deleted(manage.registries, login, {})
        await is_made_changed_and_deleted(manage.keys, {"name": "k"}, {"name": "l"}, kind="key")


async def test_pods_and_nodes_are_acted_on(api: Managed) -> None:
    api.run()
    async with client(api) as stoker, asyncio.TaskGroup() as tasks:
        agent = api.world.agent(node="node-1")
        await agent.connect(tasks, devices=(CPU,), facts=FACTS)
        (node,) = await stoker.manage.nodes.list()
        assert (await stoker.manage.nodes.drain(node["id"]))["drained"] is True
        assert (await stoker.manage.nodes.resume(node["id"]))["drained"] is False
        assert (await stoker.manage.nodes.get(node["id"]))["name"] == "node-1"

        pods = stoker.manage.pods
        pod = (await pods.create({"imageName": IMAGE, "computeType": "CPU"}))["id"]
        wishes = [
            (await act(pod))["desiredStatus"] for act in (pods.stop, pods.start, pods.restart, pods.reset)
        ]
        assert wishes == ["EXITED", "RUNNING", "RUNNING", "RUNNING"]
        assert (await pods.update(pod, {"name": "p"}))["name"] == "p"
        assert await pods.delete(pod) is None
        agent.stream.end("the test is over")


async def test_secrets_bills_and_the_audit_log(api: Managed) -> None:
    async with client(api) as stoker:
        await stoker.manage.secrets.put("token", "hunter2")
        assert [one["name"] for one in await stoker.manage.secrets.list()] == ["token"]
        await stoker.manage.secrets.delete("token")
        assert [line["method"] for line in await stoker.manage.audit(limit=2)] == ["DELETE", "PUT"]
        for kind in ("endpoints", "pods", "networkvolumes"):
            assert await stoker.manage.bills(kind, bucketSize="hour") == []


async def test_a_refusal_is_the_message_of_the_api(api: Managed) -> None:
    async with client(api) as stoker:
        with pytest.raises(ApiError, match="nonsense is not a known field") as refused:
            await stoker.manage.templates.create({"name": "t", "imageName": IMAGE, "nonsense": 1})
        assert refused.value.status == 400
    async with client(api, "sk_no_such") as stoker:
        with pytest.raises(Unauthorized, match="invalid api key"):
            await stoker.manage.pods.list()


def test_what_is_safe_to_send_twice_is_sent_again() -> None:
    requests: list[str] = []

    def service(request: httpx2.Request) -> httpx2.Response:
        requests.append(f"{request.method} {request.url.raw_path.decode()}")
        return httpx2.Response(503, headers={"Retry-After": "1"}, json={"error": "full"})

    with Client(
        "https://stoker/v2", "sk-1", transport=httpx2.MockTransport(service), resends=1, sleep=lambda _: None
    ) as stoker:
        pods = stoker.manage.pods
        calls = [
            lambda: pods.list(desiredStatus="RUNNING", gpuTypeId=["a", "b"]),
            lambda: pods.update("a/b", {}),
            lambda: stoker.manage.secrets.put("s", "v"),
            lambda: pods.create({}),
            lambda: pods.stop("p"),
            lambda: pods.delete("p"),
        ]
        for call in calls:
            with pytest.raises(ApiError, match="full"):
                call()
    assert requests == [
        *["GET /v1/pods?desiredStatus=RUNNING&gpuTypeId=a&gpuTypeId=b"] * 2,
        *["PATCH /v1/pods/a%2Fb"] * 2,
        *["PUT /v1/secrets/s"] * 2,
        "POST /v1/pods",
        "POST /v1/pods/p/stop",
        "DELETE /v1/pods/p",
    ]
