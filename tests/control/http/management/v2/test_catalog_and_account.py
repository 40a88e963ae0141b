"""The catalog with what is there now, the account's SSH keys, and bills, in the second shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.config.settings import PlaneSettings
from stoker.control.http.management.v2.billing import bucket_end
from stoker.control.http.management.v2.catalog import level
from stoker.control.http.management.v2.gpu_pools import MEMORY_GB
from stoker.control.resources.catalog import DATA_CENTERS, GPU_TYPES
from stoker.control.rules.billing import PriceList, bucket_start
from tests.control.http.management.managed import Managed, managed
from tests.control.http.management.pods.pod_world import FACTS, IMAGE, joined, once, sent_spec
from tests.control.http.management.resources.test_billing import SETTINGS, START, bills
from tests.control.http.management.resources.test_billing import endpoint as billed
from tests.control.http.management.v2.second_shape import call, get, make

RTX = "NVIDIA GeForce RTX 4090"
ASKED = "include=AVAILABILITY&product=POD"


@once
async def test_a_gpu_type_with_its_price_and_what_is_free_of_it() -> None:
    prices = PlaneSettings(price_list=PriceList(gpu_second={RTX: 200_000_000 // 3600}))
    async with joined("node-1", facts=FACTS | {"cuda": "12.8"}, settings=prices) as (api, _, _):
        path = f"/catalog/gpus/{RTX.replace(' ', '%20')}"
        found = await get(api, f"{path}?{ASKED}&cloud=SECURE")
        price = 200_000_000 // 3600 * 3600 / 1e9
        assert found == {
            "id": RTX,
            "name": "RTX 4090",
            "pool": "ADA_24",
            "manufacturer": "NVIDIA",
            "memory": 24,
            "secure": True,
            "community": False,
            "price": {"secure": price, "community": None, "serverless": price},
            "maxCount": {"secure": 2, "community": 0},
            "availability": "MEDIUM",
            "dataCenters": [{"id": "EU-RO-1", "name": "EU-RO-1", "availability": "MEDIUM"}],
            "cudaVersions": [{"version": "12.8", "available": True}],
        }
        await make(api, "/pods", name="box", image=IMAGE, gpu={"id": RTX})
        assert (await get(api, f"{path}?{ASKED}"))["availability"] == "LOW"
        for filtered in ("count=2", "cudaVersions=12.4,12.6", "minCudaVersion=13.0", "cloud=COMMUNITY"):
            left = await get(api, f"{path}?{ASKED}&{filtered}")
            assert (left["availability"], left["dataCenters"]) == ("NONE", [])
        assert (await get(api, f"{path}?{ASKED}&minCudaVersion=12.8"))["availability"] == "LOW"


async def test_the_lists_have_what_is_published(api: Managed) -> None:
    gpus = (await get(api, "/catalog/gpus"))["gpus"]
    assert [one["id"] for one in gpus] == list(GPU_TYPES)
    assert all(one["memory"] for one in gpus)
    assert "availability" not in gpus[0]
    centers = (await get(api, "/catalog/datacenters"))["dataCenters"]
    assert [one["id"] for one in centers] == list(DATA_CENTERS)
    assert all(one["networkVolumeTypes"] == ["STANDARD"] for one in centers)
    assert await get(api, "/catalog/datacenters/EU-RO-1") == centers[0]
    cpus = (await get(api, "/catalog/cpus"))["cpus"]
    assert [one["id"] for one in cpus][:2] == ["cpu3c", "cpu3g"]
    for path in ("/catalog/gpus/GTX%201", "/catalog/cpus/cpu9z", "/catalog/datacenters/MOON-1"):
        await call(api, "GET", path, 404)
    assert "needs a product" in await call(api, "GET", "/catalog/gpus?include=AVAILABILITY", 400)
    assert "include must be" in await call(api, "GET", "/catalog/gpus?include=STOCK", 400)
    assert (await get(api, "/catalog/templates?source=official"))["templates"] == []


def test_every_published_type_has_a_memory() -> None:
    assert set(MEMORY_GB) == set(GPU_TYPES)


@once
async def test_a_cpu_flavor_that_fits() -> None:
    async with joined("node-1") as (api, _, _):
        found = await get(api, f"/catalog/cpus/cpu3c?{ASKED}&vcpuCount=4")
        assert (found["availability"], found["vcpu"], found["ramGbPerVcpu"]) == (
            "HIGH",
            {"min": 2, "max": 16},
            2,
        )
        assert found["dataCenters"][0]["id"] == "EU-RO-1"
        large = await get(api, f"/catalog/cpus/cpu3c?{ASKED}&vcpuCount=32")
        assert (large["availability"], large["dataCenters"]) == ("NONE", [])


@given(st.integers(0, 100), st.integers(0, 100))
def test_more_places_are_never_a_lower_level(few: int, more: int) -> None:
    levels = ["NONE", "LOW", "MEDIUM", "HIGH"]
    low, high = sorted((few, more))
    assert levels.index(level(low)) <= levels.index(level(high))
    assert (level(few) == "NONE") == (few == 0)


@once
async def test_ssh_keys_are_replaced_and_pods_get_them() -> None:
    async with joined("node-1") as (api, (agent,), _):
        assert await get(api, "/account/ssh-keys") == {"keys": []}
        gpu = {"id": RTX}
        without = await make(api, "/pods", name="a", image=IMAGE, gpu=gpu, startSsh=True)
        assert without["env"] == {}
        keys = ["ssh-ed25519 AAAAC3 me@example.com", "ssh-rsa AAAAB3 you@example.com"]
        assert await call(api, "PUT", "/account/ssh-keys", 200, keys=keys) == {"keys": keys}
        assert await get(api, "/account/ssh-keys") == {"keys": keys}
        pod = await make(api, "/pods", name="b", image=IMAGE, gpu=gpu, startSsh=True)
        assert (await sent_spec(agent, pod["id"])).env["PUBLIC_KEY"] == "\n".join(keys)
        await call(api, "PUT", "/account/ssh-keys", 422, keys=["a\nb"])
        assert await call(api, "PUT", "/account/ssh-keys", 200, keys=[]) == {"keys": []}
        assert await get(api, "/account/ssh-keys") == {"keys": []}
        await call(api, "PUT", "/account/ssh-keys", 200, keys=keys)
        refused = await api.http.put("/secrets/account_ssh_keys", json={"value": "ssh-rsa MINE"})
        assert (refused.status_code, "change them under /v2/account/ssh-keys" in refused.text) == (400, True)
        assert (await api.http.delete("/secrets/account_ssh_keys")).status_code == 400
        assert (await api.http.get("/secrets")).json() == []
        assert await get(api, "/account/ssh-keys") == {"keys": keys}
        assert "secrets are managed at /v1/secrets" in await call(api, "GET", "/account/secrets", 501)


RANGE = "startTime=2026-03-01T00:00:00Z&endTime=2026-05-01T00:00:00Z"


async def test_bills_are_those_of_v1() -> None:
    async with managed(billed("sing"), billed("draw"), settings=SETTINGS) as api:
        api.world.moved = START.timestamp() + 40 * 3600 - api.world.now()
        await api.world.commits.commit(bills)
        total = 0.0
        for kind, v1, name in (
            ("pods", "pods?grouping=podId&", "podId"),
            ("serverless", "endpoints?", "serverlessId"),
            ("network-volumes", "networkvolumes?", "networkVolumeId"),
        ):
            found = await get(api, f"/billing/{kind}?{RANGE}&bucketSize=month")
            there = (await api.http.get(f"/billing/{v1}{RANGE}&bucketSize=month")).json()
            assert [one["totalAmount"] for one in found["records"]] == [one["amount"] for one in there]
            assert [one["startTime"] for one in found["records"]] == [one["time"] for one in there]
            assert all(one[name] for one in found["records"])
            assert found["records"][0]["endTime"] == "2026-04-01T00:00:00Z"
            assert found["metadata"]["recordCount"] == len(there)
            total += found["metadata"]["totals"]["totalAmount"]
        every = await get(api, f"/billing?{RANGE}&bucketSize=year")
        assert round(every["metadata"]["totals"]["totalAmount"], 6) == round(total, 6)
        one = await get(api, f"/billing/serverless?{RANGE}&serverlessId=draw")
        assert {record["serverlessId"] for record in one["records"]} == {"draw"}
        assert one["metadata"]["uniqueServerlessCount"] == 1
        last = await get(api, "/billing/serverless?lastN=2")
        assert [record["startTime"] for record in last["records"]] == [
            "2026-03-31T00:00:00Z",
            "2026-04-01T00:00:00Z",
        ]
        for nothing in ("clusters", "endpoints"):
            assert (await get(api, f"/billing/{nothing}"))["records"] == []
        await call(api, "GET", "/billing/pods?bucketSize=minute", 422)
        both = await call(api, "GET", "/billing/pods?lastN=2&endTime=2026-05-01T00:00:00Z", 400)
        assert "lastN counts buckets back from now; got endTime beside it: leave one out" in str(both)
        await call(api, "GET", f"/billing/pods?{RANGE}&startTime=2027-01-01T00:00:00Z", 400)


@given(st.integers(0, 10**6), st.sampled_from(["hour", "day", "week", "month", "year"]))
def test_a_bucket_ends_where_the_next_begins(hour: int, size: str) -> None:
    begin = bucket_start(hour, size)  # type: ignore[arg-type]
    end = bucket_end(begin, size)  # type: ignore[arg-type]
    assert begin <= hour < end
    assert bucket_start(end, size) == end  # type: ignore[arg-type]
    assert bucket_start(end - 1, size) == begin  # type: ignore[arg-type]
