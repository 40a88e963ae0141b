"""What exists is billed by the minute, on virtual time: through an outage, growth and deletion. And what a
node tells of its workers and pods is billed once, however often it tells it."""

from __future__ import annotations

import asyncio
from typing import Any

from stoker.control.config.settings import PlaneSettings
from stoker.control.rules.billing import PriceList
from stoker.wire.messages import Device, Usage
from tests.control.http.management.managed import Managed, managed
from tests.control.plane_world import endpoint, story

GPU = Device("GPU-0", "gpu", "NVIDIA GeForce RTX 4090", 0, memory_total=24 << 30)
FACTS = {"containers": "docker 28.0.1", "containers_cdi": "yes", "data_center": "EU-RO-1"}
PRICES = PriceList(device_second=1_000_000, disk_gb_hour=3_600_000, volume_gb_hour=7_200_000)
SETTINGS = PlaneSettings(price_list=PRICES)
SECONDS_OF_DISK, SECONDS_OF_VOLUME = 1_000, 2_000  # nano-USD for each GB


async def billed(api: Managed, kind: str, **query: str) -> list[dict[str, Any]]:
    answer = await api.http.get(f"/billing/{kind}", params=query)
    assert answer.status_code == 200, answer.text
    records: list[dict[str, Any]] = answer.json()
    return records


async def nano(api: Managed, kind: str) -> int:
    return sum(round(one["amount"] * 1e9) for one in await billed(api, kind))


@story
async def test_a_volume_and_a_stopped_pod_pay_for_their_space() -> None:
    async with managed(endpoint(workers_max=0), settings=SETTINGS) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent()
        await agent.connect(tasks, devices=(GPU,), facts=FACTS)
        volume = await api.made("/networkvolumes", name="data", size=100, dataCenterId="EU-RO-1")
        requested = {"imageName": "acme/x:1", "containerDiskInGb": 40, "volumeInGb": 10}
        pod = await api.made("/pods", name="p", desiredStatus="EXITED", **requested)
        await asyncio.sleep(70.0)
        api.world.commits.full = True
        await asyncio.sleep(130.0)
        api.world.commits.full = False
        grown = await api.http.patch(f"/networkvolumes/{volume['id']}", json={"size": 150})
        assert grown.status_code == 200, grown.text
        assert await nano(api, "networkvolumes") == 100 * 200 * SECONDS_OF_VOLUME
        changed = await api.http.patch(f"/pods/{pod['id']}", json={"volumeInGb": 60})
        assert changed.status_code == 200, changed.text
        assert await nano(api, "pods") == 50 * 200 * SECONDS_OF_DISK
        await asyncio.sleep(20.0)
        for path in (f"/networkvolumes/{volume['id']}", f"/pods/{pod['id']}"):
            assert (await api.http.delete(path)).status_code == 204
        await asyncio.sleep(125.0)
        volumes = 100 * 200 + 150 * 20
        assert await nano(api, "networkvolumes") == volumes * SECONDS_OF_VOLUME
        assert await nano(api, "pods") == (50 * 200 + 100 * 20) * SECONDS_OF_DISK
        assert [one["diskSpaceBilledGb"] for one in await billed(api, "pods", bucketSize="year")] == [100]
        agent.stream.end("the test is over")


@story
async def test_what_is_reported_again_is_billed_once() -> None:
    async with managed(endpoint(workers_min=1), settings=SETTINGS) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent()
        await agent.connect(tasks, devices=(GPU,), facts=FACTS)
        (worker,) = await agent.ready_workers()
        now = int(api.world.now() * 1000)
        span = Usage(worker, "b1", 1, "worker", "running", now, now + 2_000, "echo", 1, ("GPU-0",))
        await agent.report(span, span)
        await asyncio.sleep(1.0)
        await agent.leaves()
        again = api.world.agent()
        await again.connect(tasks, devices=(GPU,), facts=FACTS)
        await again.report(span)
        await asyncio.sleep(1.0)
        (record,) = await billed(api, "endpoints", grouping="podId")
        assert (record["podId"], record["timeBilledMs"], record["amount"]) == (worker, 2_000, 0.002)
        again.stream.end("the test is over")
