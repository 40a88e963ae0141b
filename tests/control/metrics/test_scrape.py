"""A scrape of a plane whose jobs end, fail and wait again; and who may scrape."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.billing import PriceList
from stoker.control.rules.types import Cost, EndpointVersion
from stoker.wire.messages import (
    DeviceSample,
    Outcome,
    Price,
    Released,
    Span,
    StartStage,
    Uploading,
    Usage,
    WorkerState,
)
from tests.control.http.management.managed import Managed
from tests.control.plane_world import World, endpoint, one, story, world
from tests.control.scripted_agent import CPU, ScriptedAgent


async def scraped(w: World) -> dict[tuple[str, ...], float]:
    """Each sample by its name and the values of its labels in the order of their names."""
    families = text_string_to_metric_families((await w.plane.scrapes.text()).decode())
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


async def ready(agent: ScriptedAgent, *stages: StartStage) -> None:
    """Waits for a worker, and reports that it is ready after these stages."""
    while not agent.specs:
        await agent.receive()
    (spec,) = agent.specs.values()
    await agent.report(WorkerState(spec.worker, spec.endpoint, spec.version, "ready", cold_start=stages))


@story
async def test_what_happened_is_counted() -> None:
    async with world(endpoint(handler_retries=1)) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, samples=[DeviceSample(CPU.uuid, utilisation=40)])
        await w.plane.commands.submit(w.echo, one(), sync=False)
        await ready(agent, StartStage("setup", 1500))
        first = await agent.assigned()
        await agent.report(
            Outcome(first.job, first.attempt, first.worker, "failed", error="no", retryable=True)
        )
        again = await agent.assigned()
        await agent.completes(again, ms=250)
        await w.plane.queries.wait_until(w.echo, again.job, asyncio.get_running_loop().time() + 60)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        await agent.assigned()
        found = await scraped(w)
        assert found["stoker_jobs_claimed_total", "echo"] == 3
        assert found["stoker_jobs_requeued_total", "failed", "echo"] == 1
        assert found["stoker_jobs_ended_total", "echo", "completed"] == 1
        assert found["stoker_job_execution_seconds_sum", "echo"] == 0.25
        assert found["stoker_job_delay_seconds_count", "echo"] == 1
        assert found["stoker_worker_start_seconds_sum", "echo", "setup"] == 1.5
        assert found["stoker_jobs_in_progress", "echo"] == 1
        assert found["stoker_workers", "", "echo", "busy"] == 1
        assert found["stoker_device_utilisation_percent", CPU.uuid, CPU.name, "node-1"] == 40


@story
async def test_what_is_billed_is_counted_once() -> None:
    """Time of a worker, reported twice and then grown; and what a hosted endpoint's job made."""
    prices = PlaneSettings(price_list=PriceList(device_second=3_000_000))
    run = EndpointVersion("/h/echo.py:handler", prices=(Price("image_pixel", 20),))
    async with world(endpoint(), endpoint("hosted", hosted=True, run=run), settings=prices) as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks, devices=[CPU, replace(CPU, uuid="CPU-1")])
        await w.plane.commands.submit(w.echo, one(), sync=False)
        await ready(agent)
        (spec,) = agent.specs.values()
        began = int(w.now() * 1000)
        used = Usage(spec.worker, "b", 1, "worker", "running", began, began + 2_000, "echo", 1, spec.devices)
        await agent.report(used, used, replace(used, ended_ms=began + 3_000))
        await w.plane.commands.submit(w.plane.endpoints.find("default", "hosted"), one(), sync=False)
        while len(agent.specs) < 2:
            await agent.receive()
        (other,) = (one for one in agent.specs.values() if one.endpoint == "hosted")
        await agent.report(WorkerState(other.worker, "hosted", 1, "ready"))
        job = await agent.assigned()
        while job.worker != other.worker:
            job = await agent.assigned()
        made = Outcome(
            job.job,
            job.attempt,
            job.worker,
            "completed",
            b"{}",
            spans=(Span("output", "image_pixel", 1_000, 20_000),),
        )
        await agent.report(made, made)
        await agent.listen(1)
        found = await scraped(w)
        assert found["stoker_cost_usd_total", "echo", "endpoint"] == pytest.approx(0.009)
        assert found["stoker_cost_usd_total", "hosted", "endpoint"] == pytest.approx(0.00002)


@story
async def test_an_upload_that_is_delayed_is_counted() -> None:
    async with world() as (w, tasks):
        agent = w.agent()
        await agent.connect(tasks)
        await w.plane.commands.submit(w.echo, one(), sync=False)
        await ready(agent)
        job = await agent.assigned()
        await agent.report(Released(job.job, job.attempt), Uploading(job.job, job.attempt, ""))
        await agent.listen(1)
        assert ("stoker_upload_failures_total", "platform") not in await scraped(w)
        await agent.report(Uploading(job.job, job.attempt, "the store is down"))
        await agent.report(Uploading("another", 1, "it is not this node's"))
        await agent.listen(1)
        assert (await scraped(w))["stoker_upload_failures_total", "platform"] == 1


@story
async def test_a_database_that_takes_no_commit_hides_nothing_else() -> None:
    async with world() as (w, _):
        assert ("stoker_database_write_seconds",) in await scraped(w)
        w.commits.full = True
        found = await scraped(w)
        assert ("stoker_database_write_seconds",) not in found
        assert found["stoker_sessions",] == 0


@story
async def test_an_endpoint_that_is_deleted_takes_its_series_along() -> None:
    async with world(endpoint(), endpoint("other")) as (w, _):
        w.plane.counters.claimed("echo")
        w.plane.counters.claimed("gone")
        w.plane.counters.billed([Cost("endpoint", "gone", 1), Cost("pod", "p1", 2), Cost("pod", "p2", 3)])
        found = await scraped(w)
        assert ("stoker_jobs_claimed_total", "echo") in found
        assert ("stoker_jobs_claimed_total", "gone") not in found
        assert ("stoker_cost_usd_total", "gone", "endpoint") not in found
        assert found["stoker_cost_usd_total", "", "pod"] == pytest.approx(5e-9)
        assert found["stoker_jobs_waiting", "other", "normal"] == 0


async def test_who_may_scrape_and_that_nothing_secret_is_in_it(api: Managed) -> None:
    await api.http.put("/secrets/hf", json={"value": "hf_swordfish"})
    answer = await api.http.get("http://stoker/metrics")
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/plain")
    assert "stoker_build_info{version=" in answer.text
    assert "swordfish" not in answer.text
    for access in (
        {"scope": "restricted", "endpoints": {"*": "write"}},
        {"scope": "restricted", "management": "none"},
    ):
        made = await api.made("/keys", name="narrow", access=access)
        headers = {"Authorization": f"Bearer {made['key']}"}
        refused = await api.http.get("http://stoker/metrics", headers=headers)
        assert (refused.status_code, "may not read in management" in refused.text) == (401, True)
    reader = await api.made("/keys", name="prometheus", access={"scope": "read"})
    headers = {"Authorization": f"Bearer {reader['key']}"}
    assert (await api.http.get("http://stoker/metrics", headers=headers)).status_code == 200
    unknown = await api.http.get("http://stoker/metrics", headers={"Authorization": "Bearer sk_no"})
    assert unknown.status_code == 401
