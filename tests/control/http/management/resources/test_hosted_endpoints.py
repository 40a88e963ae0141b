"""Hosted endpoints, of which callers change the workers, also across restarts of control."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.quotas import Quota
from stoker.control.rules.types import AS_MANY_AS_FIT, Endpoint, EndpointVersion
from tests.control.http.management.managed import Managed, managed

HOSTED = Endpoint(
    id="text-to-image",
    account="default",
    name="Text to image",
    version=1,
    run=EndpointVersion(handler="models:Handler"),
    hosted=True,
    workers_max=AS_MANY_AS_FIT,
)


@pytest.fixture
async def api() -> AsyncIterator[Managed]:
    settings = PlaneSettings(set_by_file={"text-to-image": frozenset({"idleTimeout"})})
    async with managed(HOSTED, settings=settings) as made:
        yield made


async def changed(api: Managed, **fields: object) -> dict[str, object]:
    answer = await api.http.patch("/endpoints/text-to-image", json=fields)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def refused(api: Managed, **fields: object) -> str:
    answer = await api.http.patch("/endpoints/text-to-image", json=fields)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["message"])


async def test_callers_change_the_workers_of_a_hosted_endpoint(api: Managed) -> None:
    body = await changed(api, workersMax=4, workersMin=2, scalerType="QUEUE_DELAY", scalerValue=9)
    assert (body["workersMin"], body["workersMax"], body["version"]) == (2, 4, 1)
    stored = api.plane.endpoints.by_id["text-to-image"]
    assert (stored.workers_min, stored.workers_max, stored.scaler_value) == (2, 4, 9)
    assert (await changed(api, executionTimeoutMs=0))["executionTimeoutMs"] == 600_000


async def test_callers_set_and_lift_its_quota(api: Managed) -> None:
    assert (await changed(api, quota={"gpuSecondsPerDay": 60}))["quota"] == {"gpuSecondsPerDay": 60}
    await api.again(HOSTED)
    assert api.plane.endpoints.by_id["text-to-image"].quota == Quota(gpu_seconds_per_day=60)
    assert (await changed(api, quota=None))["quota"] == {}


async def test_what_is_not_for_callers_is_refused_with_where_it_is_decided(api: Managed) -> None:
    assert "gpuCount is decided by STOKER_PIPELINE" in await refused(api, gpuCount=2)
    assert "[hosted.text-to-image] of the configuration file sets idleTimeout" in await refused(
        api, idleTimeout=9
    )
    assert "workersMin must be at most workersMax; got 3 and 2" in await refused(
        api, workersMin=3, workersMax=2
    )
    deleted = await api.http.delete("/endpoints/text-to-image")
    assert (deleted.status_code, "is a hosted model" in deleted.json()["message"]) == (400, True)
    assert (await changed(api, workersMax=2))["workersMin"] == 0, "what was refused is not stored"


async def test_a_change_outlives_control_until_the_file_sets_the_field(api: Managed) -> None:
    await changed(api, workersMin=3, workersMax=4)
    await api.again(HOSTED)
    body = (await api.http.get("/endpoints/text-to-image")).json()
    assert (body["workersMin"], body["workersMax"], body["version"]) == (3, 4, 1)
    by_file = {"text-to-image": frozenset({"workersMax"})}
    api.world.settings = replace(api.world.settings, set_by_file=by_file)
    await api.again(replace(HOSTED, workers_max=1))
    body = (await api.http.get("/endpoints/text-to-image")).json()
    assert (body["workersMin"], body["workersMax"]) == (1, 1), "the minimum follows the file's maximum"
