"""The configuration file read again while control runs: what it declares then serves, and no job is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.control import store
from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import Unavailable, UncertainCommit
from stoker.control.rules.billing import PriceList
from stoker.control.rules.needs import Needs
from stoker.control.rules.quotas import Quota
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.wire.messages import LockedWeights, Price, RegistryAuth, WeightsFile, WorkerLimits
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.http.management.resources.test_endpoint_stories import open_jobs, run
from tests.control.plane_world import endpoint, story
from tests.control.working_agent import WorkingAgent

NEW_CODE = EndpointVersion("/h/new.py:handler")
INVALID = EndpointVersion("/h/echo.py:handler", schema={"type": "no type"})


@asynccontextmanager
async def at_work(*declared: Endpoint, job_s: float = 1.0) -> AsyncIterator[tuple[Managed, WorkingAgent]]:
    """The plane runs, with one node whose processor takes any number of workers."""
    async with managed(*declared) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = WorkingAgent(api.plane, api.world.token, cold_s=2.0, job_s=job_s)
        await agent.works(tasks)
        yield api, agent
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()


async def reload(api: Managed, *declared: Endpoint, **changes: object) -> str:
    """Reads the file again, which declares these now; returns what of them has changed."""
    settings = replace(api.world.settings, **changes)  # type: ignore[arg-type]
    return str(await api.plane.reload(declared, settings))


@story
async def test_endpoints_come_change_and_go_and_no_job_is_lost() -> None:
    kept = [endpoint(name, workers_min=1) for name in ("stays", "changes", "goes")]
    async with at_work(*kept, job_s=20.0) as (api, agent):
        held = {name: asyncio.create_task(run(api, {"id": name})) for name in ("stays", "changes", "goes")}
        await asyncio.sleep(5.0)
        waits = asyncio.create_task(run(api, {"id": "changes"}))
        changed = replace(kept[1], run=NEW_CODE)
        assert await reload(api, kept[0], changed, endpoint("comes")) == (
            "comes (new), changes (changed), goes (deleted)"
        )
        gone = await held["goes"]
        assert (gone["status"], gone["reason"]) == ("CANCELLED", "the endpoint was deleted")
        assert (await api.http.get(f"{V2}/goes/health")).status_code == 404
        ended = [await job for job in (held["stays"], held["changes"], waits)]
        ended.append(await run(api, {"id": "comes"}))
        assert [job["status"] for job in ended] == ["COMPLETED"] * 4
        assert agent.ran == {1: 4, 2: 1}, "what ran went on, and what waited ran the new code"
        await asyncio.sleep(30.0)
        assert "goes" not in {spec.endpoint for spec in agent.held.values()}
        assert {spec.version for spec in agent.held.values() if spec.endpoint == "changes"} == {2}
        assert open_jobs(api) == 0


@story
async def test_what_makes_no_version_applies_at_once_and_a_second_look_changes_nothing() -> None:
    async with managed(endpoint("echo", workers_max=1)) as api:
        now = endpoint("echo", workers_max=4, execution_timeout_ms=9_000)
        assert await reload(api, now) == "echo (changed)"
        found = api.plane.endpoints.by_id["echo"]
        assert (found.version, found.workers_max, found.execution_timeout_ms) == (1, 4, 9_000)
        assert await reload(api, now) == ""
        await api.again(now)
        assert api.plane.endpoints.by_id["echo"] == found


RICH = EndpointVersion(
    handler="/h/echo.py:handler",
    env={"MODE": "fast"},
    schema={"type": "object", "properties": {"n": {"type": "number", "enum": [1, 2.5]}}},
    prices=(Price("device_ms", 5),),
    preload=("json",),
    command=("run", "it"),
    registry=RegistryAuth("me", "my-password-of-nobody"),
    limits=WorkerLimits(1 << 30, 0.5, 8, 64),
    needs=Needs(gpu_types=("NVIDIA A40",), share=0.25, cuda_versions=("12.1",), labels={"zone": "a"}),
    weights=(LockedWeights("w", "here", "1", (WeightsFile("f", 3, "0" * 64),)),),
)


@story
async def test_an_endpoint_with_every_kind_of_field_is_found_unchanged() -> None:
    declared = endpoint("echo", run=RICH, quota=Quota(gpu_seconds_per_day=60), keep_cases=True)
    async with managed(declared) as api:
        await api.again(declared)
        assert await reload(api, declared) == ""
        assert api.plane.endpoints.by_id["echo"].version == 1


@story
async def test_endpoints_of_callers_stay_as_they_are() -> None:
    """Also where the file of locks is another by now: that needs a restart."""
    locked, now = ({"w": (LockedWeights("w", "here", commit, ()),)} for commit in ("1", "2"))
    async with managed(settings=PlaneSettings(weights=locked)) as api:
        fields = {"name": "t", "imageName": "an/image:1", "isServerless": True, "weights": ["w"]}
        template = await api.made("/templates", **fields)
        made = await api.made("/endpoints", templateId=template["id"], workersMax=7)
        before = api.plane.endpoints.by_id[made["id"]]
        assert before.run.weights
        assert await reload(api, endpoint("new"), weights=now) == "new (new), echo (deleted)"
        assert api.plane.endpoints.by_id[made["id"]] == before


@story
async def test_a_hosted_endpoint_keeps_callers_changes_until_the_file_sets_the_field() -> None:
    hosted = endpoint("art", hosted=True, workers_max=9)
    async with managed(hosted) as api:
        path = "/endpoints/art"
        assert (await api.http.patch(path, json={"workersMax": 4, "idleTimeout": 60})).status_code == 200
        assert await reload(api, hosted) == ""
        by_file = {"art": frozenset({"workersMax"})}
        assert await reload(api, replace(hosted, workers_max=2), set_by_file=by_file) == "art (changed)"
        found = (await api.http.get(path)).json()
        assert (found["workersMax"], found["idleTimeout"]) == (2, 60)
        refused = await api.http.patch(path, json={"workersMax": 5})
        assert (refused.status_code, "of the configuration file sets" in refused.text) == (400, True)


@story
async def test_an_endpoint_that_comes_back_has_none_of_the_jobs_that_it_had() -> None:
    async with managed(endpoint("echo")) as api:
        await run(api, {"id": "echo"}, "run")
        assert await reload(api) == "echo (deleted)"
        assert open_jobs(api) == 0
        assert await reload(api, endpoint("echo", run=NEW_CODE)) == "echo (new)"
        assert api.plane.endpoints.by_id["echo"].version == 2
        await run(api, {"id": "echo"}, "run")
        assert open_jobs(api) == 1


@story
async def test_what_cannot_be_stored_or_is_wrong_changes_nothing() -> None:
    async with managed(endpoint("echo"), endpoint("other")) as api:
        before = api.plane.endpoints.by_id
        settings = replace(api.world.settings)
        wanted = endpoint("echo", workers_max=3), endpoint("new")
        with pytest.raises(ValueError, match="the input schema is not valid"):
            await reload(api, *wanted, endpoint("odd", run=INVALID), retention_s=60.0)
        api.world.commits.full = True
        with pytest.raises(Unavailable):
            await reload(api, *wanted, retention_s=60.0)
        api.world.commits.full = False
        assert (api.plane.endpoints.by_id, api.world.settings) == (before, settings)
        assert await reload(api, *wanted) == "new (new), echo (changed), other (deleted)"


@story
async def test_after_an_uncertain_commit_memory_is_as_the_store_and_another_look_ends_it() -> None:
    async with managed(endpoint("echo"), endpoint("other")) as api:
        api.run()
        api.world.commits.uncertain = 1
        with pytest.raises(UncertainCommit):
            await reload(api, endpoint("new"))
        await asyncio.sleep(1.0)
        assert api.plane.endpoints.by_id.keys() == {"new"}
        assert await reload(api, endpoint("new")) == ""


@story
async def test_jobs_of_a_deleted_endpoint_end_once_they_can_and_at_the_next_start() -> None:
    async with at_work(endpoint("echo", workers_max=0)) as (api, _):
        for _n in range(2):
            await run(api, {"id": "echo"}, "run")
        cancelled = api.management.endpoints.cancel_jobs

        async def full(name: str) -> None:
            api.management.endpoints.cancel_jobs = cancelled  # type: ignore[method-assign]
            raise Unavailable("the disk is full")

        api.management.endpoints.cancel_jobs = full  # type: ignore[method-assign]
        assert await reload(api) == "echo (deleted)"
        assert open_jobs(api) == 2
        await asyncio.sleep(2.0)
        assert open_jobs(api) == 0
    async with managed(endpoint("echo")) as api:
        await run(api, {"id": "echo"}, "run")
        remove = api.world.commits.commit
        await remove(lambda conn: store.remove_endpoint(conn, "echo", 0.0, for_good=True))
        await api.again(endpoint("other"))
        assert open_jobs(api) == 0


@story
async def test_settings_of_the_file_apply_at_once() -> None:
    async with managed(endpoint("echo")) as api:
        registries = {"hub": RegistryAuth("me", "my-password-of-nobody")}
        await reload(
            api,
            endpoint("echo"),
            aliases={"say": "echo"},
            registries=registries,
            functions=True,
            local_roots=("/",),
            retention_s=60.0,
            prices=(Price("device_ms", 5),),
            price_list=PriceList(device_second=5_000),
        )
        assert api.plane.endpoints.find("default", "say").id == "echo"
        assert (await api.http.get("/containerregistryauth")).json() == [{"id": "hub", "name": "hub"}]
        assert api.management.billing.device_hour("any") == 5_000 * 3_600
        job = await run(api, {"id": "say"}, "run")
        kept = api.world.store.writer.run("SELECT retention_s FROM jobs WHERE id = :id", {"id": job["id"]})
        assert kept.fetchone()[0] == 60.0
        here = f"local:{Path(__file__)}:handler"
        template = await api.made("/templates", name="t", imageName=here, isServerless=True)
        made = await api.made("/endpoints", templateId=template["id"])
        assert api.plane.endpoints.by_id[made["id"]].run.prices == (Price("device_ms", 5),)
        await reload(api, endpoint("echo"), aliases={})
        assert api.plane.endpoints.named("say") is None
