"""Temporary endpoints go a day after their last use, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control import store
from stoker.control.resources import temporary as resources
from stoker.control.rules import temporary as rules
from stoker.control.rules.limits import REPLAY_LIFE_S, TEMPORARY_LIFE_S
from stoker.control.rules.temporary import Use, is_unused, last_use
from stoker.control.store import Conn
from stoker.control.store.resources import endpoint_uses
from stoker.wire.messages import Usage
from tests.control.http.management.managed import Managed
from tests.control.http.management.resources.test_endpoint_stories import at_work, run
from tests.control.plane_world import story

IMAGE = "ghcr.io/example/worker:1.2"
HOUR_S = 3.0
"""A day of these stories is short: their agent beats all the time."""

TIMES = st.floats(0, 1e7)


@pytest.fixture(autouse=True)
def _short_days(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "seed" in request.fixturenames:
        monkeypatch.setattr(rules, "TEMPORARY_LIFE_S", 24 * HOUR_S)
        monkeypatch.setattr(rules, "TEMPORARY_WARM_S", 0.5 * HOUR_S)
        monkeypatch.setattr(resources, "EVERY_S", 0.5)


async def temporary(api: Managed, name: str = "live-caption", **fields: Any) -> dict[str, Any]:
    template = await api.made("/templates", name=name, imageName=IMAGE, isServerless=True)
    return await api.made(
        "/endpoints", **{"name": name, "templateId": template["id"], "temporary": True, **fields}
    )


async def names(api: Managed) -> tuple[set[str], set[str]]:
    """Of all endpoints and of all templates."""
    shown = {"includeEndpointBoundTemplates": "true"}
    endpoints = (await api.http.get("/endpoints")).json()
    templates = (await api.http.get("/templates", params=shown)).json()
    return {one["name"] for one in endpoints} - {"echo"}, {one["name"] for one in templates}


async def later(api: Managed, hours: float) -> None:
    await asyncio.sleep(hours * HOUR_S)


@story
async def test_it_goes_with_its_template_a_day_after_it_was_made() -> None:
    async with at_work() as (api, _):
        made = await temporary(api)
        assert made["temporary"] is True
        await later(api, 23)
        assert await names(api) == ({"live-caption"}, {"live-caption"})
        await later(api, 2)
        assert await names(api) == (set(), set())
        assert (await api.http.get(f"/endpoints/{made['id']}")).status_code == 404


@story
async def test_others_stay_and_so_does_a_template_that_they_use() -> None:
    async with at_work() as (api, _):
        made = await temporary(api)
        await api.made("/endpoints", name="kept", templateId=made["templateId"])
        await later(api, 100)
        assert await names(api) == ({"kept"}, {"live-caption"})


@story
async def test_a_job_and_a_change_are_uses() -> None:
    async with at_work() as (api, agent):
        made = await temporary(api, computeType="CPU")
        await later(api, 23)
        assert (await run(api, made))["status"] == "COMPLETED"
        [spec] = agent.specs.values()
        now_ms = int(api.world.now() * 1000)
        times = (now_ms - 1000, now_ms)
        await agent.report(
            Usage(spec.worker, "b1", 1, "worker", "running", *times, made["id"], 1, ("CPU-0",))
        )
        await later(api, 23)
        await api.http.patch(f"/endpoints/{made['id']}", json={"idleTimeout": 7})
        await later(api, 23)
        assert await names(api) == ({"live-caption"}, {"live-caption"})
        await later(api, 2)
        assert await names(api) == (set(), set())


@story
async def test_a_job_that_waits_keeps_it_and_a_warm_worker_does_not() -> None:
    async with at_work() as (api, _):
        waits = await temporary(api, "waits", workersMax=0, ttlMs=604_800_000)
        await temporary(api, "warm", computeType="CPU", workersMin=1)
        await run(api, waits, "run")
        await later(api, 100)
        assert (await names(api))[0] == {"waits"}


@story
async def test_half_an_hour_after_its_use_it_keeps_no_idle_worker() -> None:
    """As where the server was killed that would have said so."""
    async with at_work() as (api, _):
        warm = await temporary(api, computeType="CPU", workersMin=1)
        template = await api.made("/templates", name="t", imageName=IMAGE, isServerless=True)
        kept = await api.made("/endpoints", name="kept", templateId=template["id"], workersMin=1)
        await later(api, 0.3)
        assert (await run(api, warm))["status"] == "COMPLETED"
        await later(api, 0.4)
        assert (await api.http.get(f"/endpoints/{warm['id']}")).json()["workersMin"] == 1
        await later(api, 0.5)
        assert (await api.http.get(f"/endpoints/{warm['id']}")).json()["workersMin"] == 0
        assert (await api.http.get(f"/endpoints/{kept['id']}")).json()["workersMin"] == 1


@story
async def test_a_job_that_comes_in_the_last_moment_keeps_it() -> None:
    async with at_work() as (api, _):
        made = await temporary(api, computeType="CPU", workersMax=0)
        look, looks = store.use_of, list[str]()

        def use_of(conn: Conn, endpoint: str) -> Use | None:
            """The first look is that of the pass, the second that of the transaction that would remove it."""
            looks.append(endpoint)
            return look(conn, endpoint) if len(looks) == 1 else Use(0.0, open=True)

        await later(api, 23.9)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "use_of", use_of)
            await later(api, 0.2)
        assert looks[:2] == [made["id"]] * 2
        assert (await names(api))[0] == {"live-caption"}


@story
async def test_a_request_is_a_use_of_a_load_balancing_endpoint() -> None:
    async with at_work() as (api, _):
        made = await temporary(api, type="LOAD_BALANCER", workersMax=0)
        await later(api, 23)
        with api.plane.requests.wait(made["id"]):
            await later(api, 30)
        await later(api, 23)
        assert (await names(api))[0] == {"live-caption"}
        await later(api, 8)
        assert (await names(api))[0] == set()


@story
async def test_one_that_cannot_be_looked_at_is_looked_at_again() -> None:
    async with at_work() as (api, _):
        await temporary(api)
        await later(api, 23.5)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endpoint_uses, "_USE", "SELECT nothing")
            await later(api, 1)
            assert (await names(api))[0] == {"live-caption"}
        await later(api, 1)
        assert (await names(api))[0] == set()


async def test_it_is_refused_as_anything_but_yes_or_no(api: Managed) -> None:
    template = await api.made("/templates", name="t", imageName=IMAGE, isServerless=True)
    answer = await api.http.post("/endpoints", json={"templateId": template["id"], "temporary": "24h"})
    assert answer.status_code == 400
    assert "temporary" in answer.json()["error"]


@given(TIMES, *[st.none() | TIMES] * 3, TIMES, st.sampled_from([TEMPORARY_LIFE_S, REPLAY_LIFE_S]))
def test_it_is_unused_its_life_after_the_latest_of_its_uses(
    changed: float,
    queued: float | None,
    worked: float | None,
    requested: float | None,
    now: float,
    life_s: float,
) -> None:
    use = Use(changed, False, queued, worked, requested)
    latest = max(at for at in (changed, queued, worked, requested) if at is not None)
    assert last_use(use, now) == latest
    assert is_unused(use, now, life_s) is (now >= latest + life_s) or abs(now - latest - life_s) < 1e-6
    assert not is_unused(Use(changed, True, queued, worked, requested), now, life_s)
