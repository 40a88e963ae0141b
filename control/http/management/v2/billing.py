"""/v2/billing: the costs of pods, endpoints and network volumes, in buckets of time, as at /v1/billing.

A bill here knows what something cost in all, and not what of it was its GPU, its processor or its disk: these
amounts are null. Hosted models are at `endpoints`, other endpoints at `serverless`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from stoker.control.errors import BadRequest
from stoker.control.http.management.operations.billing import HOUR_S, BillRange, hour_time
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.v2.shapes import Record, refusals
from stoker.control.resources import ManagedResources
from stoker.control.rules.billing import NANO, BillRecord, BucketSize, bucket_start
from stoker.control.store import BillQuery

router = APIRouter(prefix="/billing", tags=["billing"])

READS = refusals(400, 422)
_LONGEST_H = {"hour": 1, "day": 24, "week": 7 * 24, "month": 31 * 24, "year": 366 * 24}


class BillingQuery(BillRange):
    lastN: Annotated[
        int | None, Field(ge=1, le=10_000, description="So many buckets, the current one included; no times.")
    ] = None

    def range(self, now: float) -> tuple[int, int]:
        """Returns the first hour, and the first hour after the range. Raises BadRequest."""
        if self.lastN is None:
            return self.hours(now)
        if both := [name for name in ("startTime", "endTime") if getattr(self, name) is not None]:
            times = " and ".join(both)
            raise BadRequest(f"lastN counts buckets back from now; got {times} beside it: leave one out")
        last = int(now // HOUR_S)
        first = bucket_start(last, self.bucketSize)
        for _ in range(self.lastN - 1):
            first = bucket_start(first - 1, self.bucketSize)
        return first, last + 1


class PodBills(BillingQuery):
    podId: str | None = None


class ServerlessBills(BillingQuery):
    serverlessId: str | None = None


class VolumeBills(BillingQuery):
    networkVolumeId: str | None = None


class BillingRecord(Record):
    startTime: str
    endTime: str
    totalAmount: Annotated[float, Field(description="In US dollars.")]


class PodBill(BillingRecord):
    podId: str
    gpuAmount: float | None = None
    cpuAmount: float | None = None
    diskAmount: float | None = None


class ServerlessBill(BillingRecord):
    serverlessId: str
    gpuAmount: float | None = None
    cpuAmount: float | None = None
    diskAmount: float | None = None
    feeAmount: float | None = None


class ModelBill(BillingRecord):
    endpointId: str


class VolumeBill(BillingRecord):
    networkVolumeId: str
    standardAmount: float
    highPerformanceAmount: float


class Totals(Record):
    totalAmount: float


class Metadata(Record):
    query: dict[str, Any]
    recordCount: int
    totals: Totals
    uniquePodCount: int | None = None
    uniqueServerlessCount: int | None = None
    uniqueEndpointCount: int | None = None
    uniqueNetworkVolumeCount: int | None = None


class Bills(Record):
    records: list[PodBill] | list[ServerlessBill] | list[ModelBill] | list[VolumeBill] | list[BillingRecord]
    metadata: Metadata


def bucket_end(hour: int, size: BucketSize) -> int:
    """Returns the first hour after the bucket that begins with this one."""
    return bucket_start(hour + _LONGEST_H[size], size)


async def _read(
    managed: ManagedResources,
    account: str,
    kind: str,
    query: BillingQuery,
    *,
    by: str = "resource",
    resource: str | None = None,
) -> list[BillRecord]:
    hours = query.range(managed.clock())
    wanted = BillQuery(account, kind, hours, by=by, resource=resource)
    return await managed.billing.read(wanted, query.bucketSize)


def _common(one: BillRecord, size: BucketSize) -> dict[str, Any]:
    return {
        "startTime": hour_time(one.hour),
        "endTime": hour_time(bucket_end(one.hour, size)),
        "totalAmount": one.nano_usd / NANO,
    }


def _bills(
    query: BillingQuery,
    found: Sequence[BillRecord],
    record: Callable[[BillRecord, dict[str, Any]], BillingRecord],
    unique: str = "",
) -> Bills:
    metadata = Metadata(
        query=query.model_dump(mode="json", exclude_none=True),
        recordCount=len(found),
        totals=Totals(totalAmount=sum(one.nano_usd for one in found) / NANO),
        **({unique: len({one.name for one in found})} if unique else {}),
    )
    return Bills(records=[record(one, _common(one, query.bucketSize)) for one in found], metadata=metadata)


@router.get("", responses=READS, response_model_exclude_unset=True)
async def all_billing(by: By, managed: Managed, query: Annotated[BillingQuery, Query()]) -> Bills:
    """Lists what everything has cost together."""
    sums: dict[int, int] = {}
    for kind in ("pod", "endpoint", "volume"):
        for one in await _read(managed, by.account, kind, query, by=""):
            sums[one.hour] = sums.get(one.hour, 0) + one.nano_usd
    found = [BillRecord(hour, "", 0, 0, nano_usd) for hour, nano_usd in sorted(sums.items())]
    return _bills(query, found, lambda one, common: BillingRecord(**common))


@router.get("/pods", responses=READS, response_model_exclude_unset=True)
async def pod_billing(by: By, managed: Managed, query: Annotated[PodBills, Query()]) -> Bills:
    """Lists what each pod has cost: its devices' time while it ran, and its disks while they existed."""
    found = await _read(managed, by.account, "pod", query, resource=query.podId)
    return _bills(query, found, lambda one, common: PodBill(podId=one.name, **common), "uniquePodCount")


@router.get("/serverless", responses=READS, response_model_exclude_unset=True)
async def serverless_billing(by: By, managed: Managed, query: Annotated[ServerlessBills, Query()]) -> Bills:
    """Lists what each endpoint has cost, but hosted models: its workers' device time."""
    every = await _read(managed, by.account, "endpoint", query, resource=query.serverlessId)
    hosted = _hosted(managed, by.account)
    found = [one for one in every if one.name not in hosted]
    return _bills(
        query,
        found,
        lambda one, common: ServerlessBill(serverlessId=one.name, **common),
        "uniqueServerlessCount",
    )


@router.get("/endpoints", responses=READS, response_model_exclude_unset=True)
async def model_billing(by: By, managed: Managed, query: Annotated[BillingQuery, Query()]) -> Bills:
    """Lists what each hosted model has cost: what its jobs made."""
    every, hosted = await _read(managed, by.account, "endpoint", query), _hosted(managed, by.account)
    found = [one for one in every if one.name in hosted]
    return _bills(
        query, found, lambda one, common: ModelBill(endpointId=one.name, **common), "uniqueEndpointCount"
    )


@router.get("/network-volumes", responses=READS, response_model_exclude_unset=True)
async def volume_billing(by: By, managed: Managed, query: Annotated[VolumeBills, Query()]) -> Bills:
    """Lists what each network volume has cost: its size while it existed."""
    found = await _read(managed, by.account, "volume", query, resource=query.networkVolumeId)

    def record(one: BillRecord, common: dict[str, Any]) -> VolumeBill:
        amount = common["totalAmount"]
        return VolumeBill(networkVolumeId=one.name, standardAmount=amount, highPerformanceAmount=0, **common)

    return _bills(query, found, record, "uniqueNetworkVolumeCount")


@router.get("/clusters", responses=READS, response_model_exclude_unset=True)
async def cluster_billing(_: By, query: Annotated[BillingQuery, Query()]) -> Bills:
    """Lists what clusters have cost: nothing, since there are none."""
    return _bills(query, (), lambda one, common: BillingRecord(**common))


def _hosted(managed: ManagedResources, account: str) -> set[str]:
    return {one.id for one in managed.endpoints.list(account) if one.hosted}
