"""Endpoints made over REST, with a node that works: they serve, change under load, and leave nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from stoker.control import large_json, store
from stoker.wire.messages import Device, WorkerState
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.plane_world import story
from tests.control.working_agent import WorkingAgent

T = TypeVar("T")

IMAGE = "ghcr.io/example/worker:1.2"


@asynccontextmanager
async def at_work(*, cold_s: float = 2.0, job_s: float = 1.0) -> AsyncIterator[tuple[Managed, WorkingAgent]]:
    """The plane runs, with one node whose processor takes any number of workers."""
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = WorkingAgent(api.plane, api.world.token, cold_s=cold_s, job_s=job_s)
        await agent.works(tasks)
        yield api, agent
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()


async def template(api: Managed) -> str:
    """A new one, or the one that there is."""
    shown = {"includeEndpointBoundTemplates": "true"}
    for one in (await api.http.get("/templates", params=shown)).json():
        return str(one["id"])
    return str((await api.made("/templates", name="t", imageName=IMAGE, isServerless=True))["id"])


async def endpoint(api: Managed, **fields: Any) -> dict[str, Any]:
    return await api.made("/endpoints", **{"templateId": await template(api), "computeType": "CPU", **fields})


async def run(api: Managed, made: dict[str, Any], operation: str = "runsync") -> dict[str, Any]:
    answer = await api.http.post(f"{V2}/{made['id']}/{operation}", json={"input": {}})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def open_jobs(api: Managed) -> int:
    found = api.world.store.writer.run(
        "SELECT count(*) FROM jobs WHERE state IN ('IN_QUEUE', 'IN_PROGRESS')", {}
    )
    return int(found.fetchone()[0])


async def shown_workers(api: Managed, made: dict[str, Any]) -> list[dict[str, Any]]:
    answer = await api.http.get(f"/endpoints/{made['id']}", params={"includeWorkers": "true"})
    body: list[dict[str, Any]] = answer.json()["workers"]
    return body


@story
async def test_a_worker_that_does_not_start_shows_its_last_lines_until_it_does() -> None:
    async with at_work(cold_s=60.0) as (api, agent):
        made = await endpoint(api, workersMin=1)
        await asyncio.sleep(1.0)
        [spec] = agent.specs.values()
        lines, about = ("Traceback", "ImportError: no name"), (spec.worker, spec.endpoint, spec.version)
        assert "logs" not in (await shown_workers(api, made))[0]
        await agent.report(WorkerState(*about, "unhealthy", "crash loop: ImportError: no name", lines))
        await asyncio.sleep(0.1)
        (worker,) = await shown_workers(api, made)
        assert (worker["status"], worker["logs"]) == ("UNHEALTHY", list(lines))
        await agent.report(WorkerState(*about, "ready"))
        await asyncio.sleep(0.1)
        assert "logs" not in (await shown_workers(api, made))[0]


@story
async def test_it_serves_a_moment_after_it_was_made() -> None:
    async with at_work() as (api, _):
        made = await endpoint(api, workersMin=1)
        await asyncio.sleep(1.0)
        (worker,) = await shown_workers(api, made)
        assert (worker["status"], worker["desiredStatus"]) == ("INITIALIZING", "RUNNING")
        assert (worker["machineId"], worker["image"], worker["isStale"]) == ("node-1", IMAGE, False)
        assert (await run(api, made))["status"] == "COMPLETED"
        assert (await shown_workers(api, made))[0]["status"] == "IDLE"
        await run(api, made, "run")
        assert (await shown_workers(api, made))[0]["status"] == "RUNNING"


@story
async def test_where_no_kind_of_computer_was_requested_the_one_that_it_runs_on_is_reported() -> None:
    async with at_work() as (api, _), asyncio.TaskGroup() as tasks:
        made = await api.made("/endpoints", templateId=await template(api), workersMin=1)
        assert made["computeType"] == "CPU", "there is only a CPU"
        wants_a_gpu = await api.made("/endpoints", templateId=made["templateId"], gpuTypeIds=["NVIDIA A40"])
        assert wants_a_gpu["computeType"] == "GPU"
        await asyncio.sleep(5.0)
        gpus = api.world.agent(node="node-2")
        await gpus.connect(tasks, devices=[Device("GPU-0", "gpu", "NVIDIA A40")])
        found = {one["id"]: one["computeType"] for one in (await api.http.get("/endpoints")).json()}
        assert found == {made["id"]: "CPU", wants_a_gpu["id"]: "GPU", "echo": "GPU"}, "its worker stays"
        gpus.stream.end("the test is over")


@story
async def test_it_is_changed_under_load_and_no_job_fails() -> None:
    async with at_work() as (api, agent):
        made = await endpoint(api, workersMin=2, workersMax=4)
        await run(api, made)

        async def load() -> list[str]:
            return [(await run(api, made))["status"] for _ in range(30)]

        loads = [asyncio.create_task(load()) for _ in range(3)]
        await asyncio.sleep(5.0)
        changed = await api.http.patch(f"/templates/{made['templateId']}", json={"env": {"MODE": "fast"}})
        assert changed.status_code == 200
        ended = [status for statuses in await asyncio.gather(*loads) for status in statuses]
        assert ended == ["COMPLETED"] * 90
        assert set(agent.ran) == {1, 2}
        await asyncio.sleep(10.0)
        assert {(one["isStale"], one["version"]) for one in await shown_workers(api, made)} == {(False, 2)}


@story
async def test_it_is_deleted_under_load_and_nothing_is_left() -> None:
    async with at_work(job_s=20.0) as (api, agent):
        made = await endpoint(api, workersMin=1, workersMax=1)
        held = asyncio.create_task(run(api, made))
        await asyncio.sleep(5.0)
        await run(api, made, "run")
        assert (await api.http.delete(f"/endpoints/{made['id']}")).status_code == 204
        response = await held
        assert (response["status"], response["reason"]) == ("CANCELLED", "the endpoint was deleted")
        assert open_jobs(api) == 0
        assert (await api.http.get(f"{V2}/{made['id']}/health")).status_code == 404
        await asyncio.sleep(30.0)
        assert (agent.held, api.plane.cluster.of_endpoint(made["id"])) == ({}, [])
        assert (await api.http.delete(f"/templates/{made['templateId']}")).status_code == 204


async def in_two_turns(_name: str, work: Callable[[], T]) -> T:
    """In place of a thread, whose end is no fixed turn of the loop."""
    for _ in range(2):
        await asyncio.sleep(0)
    return work()


@story
async def test_a_job_that_comes_with_the_deletion_is_not_forgotten() -> None:
    async with at_work() as (api, _):
        large = {"input": {"text": "x" * 1_100_000}}  # put aside before it is stored, which takes a while
        statuses: set[str] = set()
        turns, stored = 0, False
        while not stored:  # until the deletion came after the answer
            made = await api.made("/endpoints", templateId=await template(api), workersMax=0)
            with patch.object(large_json, "run_in_thread", in_two_turns):
                coming = asyncio.create_task(api.http.post(f"{V2}/{made['id']}/run", json=large))
                for _ in range(turns):
                    await asyncio.sleep(0)
                turns, stored = turns + 1 + turns // 16, coming.done()
                assert (await api.http.delete(f"/endpoints/{made['id']}")).status_code == 204
                answer = await coming
            statuses.add(
                "accepted" if answer.status_code == 200 else answer.json()["error"].partition(": ")[2]
            )
            assert open_jobs(api) == 0
        assert statuses >= {"accepted", "it was deleted"}, (
            "it was deleted before the job was stored, and after"
        )


@story
async def test_a_deletion_that_a_crash_cut_short_is_finished_by_the_next_process() -> None:
    async with managed() as api:
        made = await endpoint(api)
        await run(api, made, "run")
        await api.world.commits.commit(lambda conn: store.remove_endpoint(conn, made["id"], 0.0))
        await api.again()
        assert open_jobs(api) == 0
        assert (await api.http.get(f"/endpoints/{made['id']}")).status_code == 404


@story
async def test_what_a_node_reported_may_be_named_also_when_it_is_away() -> None:
    names = {"gpuTypeIds": ["A new GPU"], "dataCenterIds": ["HERE-1"], "minCudaVersion": "14.1"}
    async with managed() as api, asyncio.TaskGroup() as tasks:
        made = await endpoint(api)
        path = f"/endpoints/{made['id']}"
        for field, value in names.items():
            assert (await api.http.patch(path, json={field: value})).status_code == 400
        agent = api.world.agent()
        gpu = Device(uuid="GPU-1", kind="gpu", name="A new GPU")
        await agent.connect(tasks, devices=[gpu], facts={"data_center": "HERE-1", "cuda": "14.1"})
        changed = await api.http.patch(path, json=names)
        assert {field: changed.json()[field] for field in names} == names
        await agent.leaves()
        await api.again()
        assert (await api.http.patch(path, json={"gpuCount": 2} | names)).status_code == 200


@story
async def test_http_workers_are_started_only_where_they_can_be_reached() -> None:
    async with at_work() as (api, agent):
        made = await endpoint(api, workersMin=1, type="LOAD_BALANCER")
        await asyncio.sleep(5.0)
        [worker] = await shown_workers(api, made)
        assert agent.held == {}
        assert "cannot be reached for requests" in json.dumps(worker)
