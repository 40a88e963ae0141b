"""Bills over HTTP: buckets, groupings, filters, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest

from stoker.control import store
from stoker.control.config.settings import PlaneSettings
from stoker.control.resources import billing
from stoker.control.rules.billing import HOUR_MS, PriceList, records
from stoker.control.rules.pods import Pod, PodBody
from stoker.control.rules.types import Endpoint, EndpointVersion
from stoker.control.rules.volumes import Volume
from stoker.control.store.resources.volumes import add_volume
from stoker.wire.messages import Device, Report, Usage
from tests.control.http.management.managed import Managed, managed

PRICES = PriceList(
    device_second=1_000_000, gpu_second={"NVIDIA H200": 3_000_001}, disk_gb_hour=7_200, volume_gb_hour=3_600
)
SETTINGS = PlaneSettings(price_list=PRICES)
START = datetime(2026, 3, 30, 22, tzinfo=UTC)  # a Monday, before the end of a month
START_MS = int(START.timestamp() * 1000)
RANGE = {"startTime": "2026-03-01T00:00:00Z", "endTime": "2026-05-01T00:00:00Z"}
DEVICES = (Device("g0", "gpu", "NVIDIA H200"), Device("g1", "gpu", "NVIDIA L4"), Device("c0", "cpu", "a CPU"))


def endpoint(name: str) -> Endpoint:
    run = EndpointVersion("", image=f"acme/{name}:1", kind="protocol")
    return Endpoint(name, "default", name, 1, run, template=f"of-{name}")


def span(owner: str, at_h: float, minutes: int, device: str, **fields: Any) -> Usage:
    began = START_MS + int(at_h * HOUR_MS)
    values = {"endpoint": "sing", "kind": "worker"} | fields
    return Usage(
        owner,
        "b1",
        int(at_h * 60) + 1,
        values["kind"],
        "running",
        began,
        began + minutes * 60_000,
        values["endpoint"],
        1,
        (device,),
    )


SPANS = (
    span("w1", 0, 60, "g0"),
    span("w1", 1, 90, "g0"),  # past midnight
    span("w2", 1.5, 30, "g1"),
    span("w3", 27, 60, "c0", endpoint="draw"),  # the first of April
    span("p1", 0, 120, "g1", kind="pod", endpoint=""),
)


@pytest.fixture
async def api() -> AsyncIterator[Managed]:
    async with managed(endpoint("sing"), endpoint("draw"), settings=SETTINGS) as made:
        made.world.moved = START.timestamp() + 40 * 3600 - made.world.now()
        await made.world.commits.commit(bills)
        yield made


def bills(conn: Any) -> None:
    now = START.timestamp() + 40 * 3600
    session = store.open_session(
        conn,
        node="n1",
        boot="b1",
        name="n1",
        devices=DEVICES,
        facts={"data_center": "EU-RO-1"},
        now=now,
        lease_s=60.0,
    )
    assert isinstance(session, int)
    body = PodBody("image:1", disk_gb=40, volume_gb=10)
    created = START.timestamp()
    store.add_pod(conn, Pod("p1", "default", "p1", body, gpu_type="NVIDIA L4", created_at=created))
    add_volume(conn, Volume("v1", "default", "data", "EU-RO-1", 100, created))
    reports = [Report(number, one) for number, one in enumerate(SPANS, 1)]
    store.apply_reports(conn, node="n1", session=session, reports=reports, now=now, prices=PRICES)
    store.bill_pods(conn, PRICES, created + 4 * 3600)
    store.bill_volumes(conn, PRICES, created + 4 * 3600)


async def get_bill(api: Managed, path: str, **params: Any) -> list[dict[str, Any]]:
    answer = await api.http.get(f"/billing/{path}", params=RANGE | params)
    assert answer.status_code == 200, answer.text
    body: list[dict[str, Any]] = answer.json()
    return body


def brief(records: list[dict[str, Any]], name: str) -> list[tuple[Any, ...]]:
    return [(one["time"], one.get(name), one["timeBilledMs"], one["amount"]) for one in records]


async def test_a_record_is_as_the_interface_defines(api: Managed) -> None:
    (first, *_) = await get_bill(api, "endpoints")
    assert first == {
        "amount": 23.400006,
        "diskSpaceBilledGb": 0,
        "endpointId": "sing",
        "time": "2026-03-30T00:00:00Z",
        "timeBilledMs": 9_000_000,
    } | {"amount": (7_200 * 3_000_001 + 1_800 * 1_000_000) / 1e9}


async def test_buckets_of_every_size_add_up(api: Managed) -> None:
    made = {
        size: await get_bill(api, "endpoints", bucketSize=size)
        for size in ("hour", "day", "week", "month", "year")
    }
    assert {size: [one["time"] for one in found] for size, found in made.items()} == {
        "hour": [f"2026-03-{day}:00:00Z" for day in ("30T22", "30T23", "31T00")] + ["2026-04-01T01:00:00Z"],
        "day": ["2026-03-30T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-01T00:00:00Z"],
        "week": ["2026-03-30T00:00:00Z"] * 2,
        "month": ["2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z"],
        "year": ["2026-01-01T00:00:00Z"] * 2,
    }
    for found in made.values():
        assert sum(one["timeBilledMs"] for one in found) == 240 * 60_000
        assert round(sum(one["amount"] for one in found) * 1e9) == 9_000 * 3_000_001 + 5_400 * 1_000_000


@pytest.mark.parametrize(
    ("grouping", "named"),
    [
        ("endpointId", ["sing", "draw"]),
        ("podId", ["w1", "w2", "w3"]),
        ("gpuTypeId", ["NVIDIA H200", "NVIDIA L4", "CPU"]),
    ],
)
async def test_endpoints_are_grouped(api: Managed, grouping: str, named: list[str]) -> None:
    found = await get_bill(api, "endpoints", bucketSize="month", grouping=grouping)
    assert sorted(one[grouping] for one in found) == sorted(named)
    others = {"endpointId", "podId", "gpuTypeId"} - {grouping}
    assert all(not others & one.keys() for one in found)
    assert sum(one["timeBilledMs"] for one in found) == 240 * 60_000


@pytest.mark.parametrize(
    ("requested", "minutes"),
    [
        ({"endpointId": "sing"}, 180),
        ({"endpointId": "none"}, 0),
        ({"gpuTypeId": "NVIDIA L4"}, 30),
        ({"gpuTypeId": ["NVIDIA L4", "CPU"]}, 90),
        ({"dataCenterId": "EU-RO-1"}, 240),
        ({"dataCenterId": ["US-TX-3"]}, 0),
        ({"imageName": "acme/draw:1"}, 60),
        ({"templateId": "of-sing"}, 180),
        ({"startTime": "2026-03-31T00:30:00Z"}, 90),
        ({"endTime": "2026-03-30T22:00:01Z"}, 60),
        ({"endTime": "2026-03-30T22:00:00Z"}, 0),
        ({"startTime": "2026-03-31T02:00:00+02:00", "endTime": "2026-03-31T01:00:00Z"}, 30),
    ],
)
async def test_endpoints_are_filtered(api: Managed, requested: dict[str, Any], minutes: int) -> None:
    found = await get_bill(api, "endpoints", **requested)
    assert sum(one["timeBilledMs"] for one in found) == minutes * 60_000


async def test_a_pod_pays_for_time_and_space(api: Managed) -> None:
    time, space = 7_200 * 1_000_000, 50 * 7_200 * 4
    by_type = await get_bill(api, "pods", bucketSize="month")
    assert by_type == [
        {
            "amount": (time + space) / 1e9,
            "diskSpaceBilledGb": 50,
            "gpuTypeId": "NVIDIA L4",
            "time": "2026-03-01T00:00:00Z",
            "timeBilledMs": 7_200_000,
        }
    ]
    by_pod = await get_bill(
        api, "pods", bucketSize="day", grouping="podId", podId="p1", gpuTypeId="NVIDIA L4"
    )
    assert brief(by_pod, "podId") == [
        ("2026-03-30T00:00:00Z", "p1", 7_200_000, (time + space // 2) / 1e9),
        ("2026-03-31T00:00:00Z", "p1", 0, space // 2 / 1e9),
    ]
    assert await get_bill(api, "pods", podId="p2") == await get_bill(api, "pods", gpuTypeId="CPU") == []


async def test_a_network_volume_pays_for_its_size(api: Managed) -> None:
    assert await get_bill(api, "networkvolumes", bucketSize="year") == [
        {
            "amount": 100 * 3_600 * 4 / 1e9,
            "diskSpaceBilledGb": 100,
            "highPerformanceStorageAmount": 0,
            "highPerformanceStorageDiskSpaceBilledGb": 0,
            "time": "2026-01-01T00:00:00Z",
        }
    ]


async def test_thirty_days_are_shown_where_no_time_is_requested(api: Managed) -> None:
    answer = await api.http.get("/billing/endpoints")
    assert sum(one["timeBilledMs"] for one in answer.json()) == 240 * 60_000
    api.world.moved += 30 * 86_400
    answer = await api.http.get("/billing/endpoints")
    assert [one["time"] for one in answer.json()] == ["2026-04-01T00:00:00Z"]


@pytest.mark.parametrize("kind", ["pods", "endpoints", "networkvolumes"])
@pytest.mark.parametrize(
    ("requested", "field"),
    [
        ({"bucketSize": "minute"}, "bucketSize"),
        ({"startTime": "yesterday"}, "startTime"),
        ({"endTime": "2026-01-01T00:00:00"}, "endTime"),
        ({"startTime": "2026-02-01T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"}, "startTime"),
        ({"startTime": "2126-02-01T00:00:00Z"}, "startTime"),
    ],
)
async def test_what_cannot_be_requested_is_named(
    api: Managed, kind: str, requested: dict[str, str], field: str
) -> None:
    answer = await api.http.get(f"/billing/{kind}", params=requested)
    assert answer.status_code == 400
    assert field in answer.json()["error"]


@pytest.mark.parametrize("kind", ["pods", "endpoints"])
async def test_a_grouping_is_one_of_those_that_there_are(api: Managed, kind: str) -> None:
    answer = await api.http.get(f"/billing/{kind}", params={"grouping": "nodeId"})
    assert (answer.status_code, "grouping" in answer.json()["error"]) == (400, True)


async def test_bills_are_summed_up_alongside_the_calls(api: Managed, monkeypatch: pytest.MonkeyPatch) -> None:
    reading: list[bool] = []

    class Reads:
        async def read(self, fn: Any) -> Any:
            def noted(conn: Any) -> Any:
                reading.append(True)
                try:
                    return fn(conn)
                finally:
                    reading.pop()

            return await api.world.commits.read(noted)

    def summed(rows: Any, spaces: Any, size: Any) -> Any:
        assert reading, "a million rows would hold up the loop"
        return records(rows, spaces, size)

    monkeypatch.setattr(api.management.billing, "_commits", Reads())
    monkeypatch.setattr(billing, "records", summed)
    assert await get_bill(api, "endpoints")


async def test_a_bill_is_for_who_may_see_it(api: Managed) -> None:
    transport = httpx2.ASGITransport(api.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://stoker/v1") as unauthenticated:
        for kind in ("pods", "endpoints", "networkvolumes"):
            assert (await unauthenticated.get(f"/billing/{kind}")).status_code == 401
