"""A deletion's answer has nothing in it: no body, and no type of one, which clients would try to read."""

from __future__ import annotations

import httpx2
import pytest

from tests.control.http.management.managed import Managed
from tests.control.http.management.pods.pod_world import joined, once

IMAGE = "ghcr.io/example/worker:1.2"
MADE = {
    "/templates": {"name": "t", "imageName": IMAGE},
    "/networkvolumes": {"name": "v", "size": 1, "dataCenterId": "EU-RO-1"},
    "/containerregistryauth": {"name": "r", "username": "u", "password": "p"},
    "/keys": {"name": "k"},
    "/pods": {"imageName": IMAGE, "desiredStatus": "EXITED"},
}


def check(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.content) == (204, b"")
    assert {"content-type", "content-length"}.isdisjoint(answer.headers)


@pytest.mark.parametrize("path", MADE)
async def test_of_what_was_made(api: Managed, path: str) -> None:
    made = await api.made(path, **MADE[path])
    check(await api.http.delete(f"{path}/{made['id']}"))


async def test_of_an_endpoint_and_of_a_secret(api: Managed) -> None:
    template = await api.made("/templates", **MADE["/templates"])
    made = await api.made("/endpoints", templateId=template["id"])
    check(await api.http.delete(f"/endpoints/{made['id']}"))
    await api.http.put("/secrets/s", json={"value": "x"})
    check(await api.http.delete("/secrets/s"))


@once
async def test_of_a_node() -> None:
    async with joined("node-1") as (api, (agent,), _):
        agent.stream.end("it is gone")
        await agent.serving
        api.world.moved += 3600
        check(await api.http.delete("/nodes/node-1"))


async def test_every_deletion_is_one_of_these(api: Managed) -> None:
    paths = (await api.http.get("/openapi.json")).json()["paths"]
    known = {path.rpartition("/")[0] for path, methods in paths.items() if "delete" in methods}
    assert known == {*MADE, "/endpoints", "/secrets", "/nodes"}
    for methods in paths.values():
        for operation in methods.values():
            assert "content" not in operation["responses"].get("204", {})
