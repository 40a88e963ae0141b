"""Long lists page by page: endpoints, their workers, and nodes, filtered; and an endpoint's statistics."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.control.http.management.managed import Managed
from tests.control.http.management.resources.test_endpoint_stories import at_work, endpoint, run
from tests.control.http.management.resources.test_nodes import joined
from tests.control.plane_world import story


async def listed(api: Managed, path: str, **query: Any) -> list[str]:
    answer = await api.http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()]


async def pages(api: Managed, path: str, **query: Any) -> list[list[str]]:
    """All pages of a list, one after the other."""
    found: list[list[str]] = []
    while not found or len(found[-1]) == query["limit"]:
        after = {"after": found[-1][-1]} if found else {}
        found.append(await listed(api, path, **query, **after))
    return found


@story
async def test_nodes_are_listed_by_page_state_and_name() -> None:
    names = [f"node-{number}" for number in range(5)]
    async with joined(*names) as (api, agents):
        assert await pages(api, "/nodes", limit=2) == [names[:2], names[2:4], names[4:]]
        agents[1].stream.end("it broke")
        await asyncio.sleep(1)
        await api.http.post("/nodes/node-3/drain")
        assert await listed(api, "/nodes", state="silent") == ["node-1"]
        assert await pages(api, "/nodes", state="connected", limit=2) == [["node-0", "node-2"], names[3:], []]
        assert await listed(api, "/nodes", drained="true") == ["node-3"]
        assert await listed(api, "/nodes", search="E-4") == ["node-4"]
        assert await listed(api, "/nodes", search="%") == []
        answer = await api.http.get("/nodes", params={"after": "nobody"})
        assert answer.status_code == 400
        assert "after must be the id of a node" in answer.json()["message"]


@story
async def test_workers_of_an_endpoint_are_listed_by_page_status_and_node() -> None:
    async with at_work() as (api, _):
        made = await endpoint(api, workersMin=3)
        path = f"/endpoints/{made['id']}/workers"
        await asyncio.sleep(0.5)
        assert [len(page) for page in await pages(api, path, limit=2)] == [2, 1]
        assert len(await listed(api, path, status="INITIALIZING")) == 3
        await asyncio.sleep(5)
        [node] = api.plane.cluster.nodes
        assert len(await listed(api, path, status="IDLE", machineId=node)) == 3
        assert await listed(api, path, status="IDLE", machineId="another") == []
        answer = await api.http.get(path, params={"after": "nobody"})
        assert answer.status_code == 400
        assert "begin again" in answer.json()["message"]


@story
async def test_endpoints_are_listed_by_page_with_their_health() -> None:
    async with at_work() as (api, _):
        made = [(await endpoint(api, workersMin=1))["id"] for _ in range(3)]
        found = await pages(api, "/endpoints", limit=2)
        assert [len(page) for page in found] == [2, 2, 0]
        assert {*found[0], *found[1]} == {*made, "echo"}
        await asyncio.sleep(0.5)
        answer = await api.http.get("/endpoints", params={"includeHealth": "true"})
        starting = {one["id"]: one["health"]["workers"]["initializing"] for one in answer.json()}
        assert starting == {**dict.fromkeys(made, 1), "echo": 0}
        assert "health" not in (await api.http.get("/endpoints")).json()[0]


@story
async def test_statistics_tell_how_long_jobs_waited_and_ran_and_for_how_long_one_waits() -> None:
    async with at_work(cold_s=3.0, job_s=1.0) as (api, _):
        made = await endpoint(api, workersMax=1)
        path = f"/endpoints/{made['id']}/statistics"
        first = asyncio.create_task(run(api, made))
        await asyncio.sleep(2)
        waits = (await api.http.get(path)).json()
        assert 1900 <= waits["queueAgeMs"] <= 2000
        assert (waits["jobs"], "delayMs" in waits) == (0, False)
        assert waits["versions"] == [{"version": 1, "ready": 0, "others": 1}]
        await first
        found = (await api.http.get(path)).json()
        assert "queueAgeMs" not in found
        assert found["versions"] == [{"version": 1, "ready": 1, "others": 0}]
        assert (found["jobs"], found["failed"]) == (1, 0)
        assert 3000 <= found["delayMs"]["p95"] <= 3500
        assert 1000 <= found["executionMs"]["p50"] <= 1100
        only = {"scope": "restricted", "endpoints": {made["id"]: "read"}}
        key = (await api.made("/keys", name="reader", access=only))["key"]
        headers = {"Authorization": f"Bearer {key}"}
        assert (await api.http.get(path, headers=headers)).status_code == 200
        assert (await api.http.get(path.replace("statistics", "workers"), headers=headers)).status_code == 401
