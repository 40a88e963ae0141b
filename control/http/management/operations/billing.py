"""/v1/billing: the costs of endpoints, pods and network volumes, in buckets of time.

Bills are stored by the hour: a range begins with the hour of `startTime`, and includes the hours that begin
before `endTime`. Buckets are in UTC, and empty buckets are left out. Amounts are sums of whole billionths of
a dollar, divided once: exact up to a million dollars.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from stoker.control.errors import BadRequest
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import LISTS, ResponseBody
from stoker.control.rules.billing import NANO, BillRecord, BucketSize
from stoker.control.store import BillQuery

router = APIRouter(prefix="/billing", tags=["billing"])

HOUR_S = 3_600
RANGE_H = 30 * 24

_Text = Annotated[str, Field(max_length=1024)]
_EXAMPLE: dict[str, Any] = {"amount": 100.5, "diskSpaceBilledGb": 50, "time": "2023-01-01T00:00:00Z"}


class BillRange(BaseModel):
    """A stretch of time, and the size of its buckets."""

    bucketSize: BucketSize = "day"
    startTime: Annotated[
        AwareDatetime | None,
        Field(description="Rounded down to its hour; 30 days before endTime without it."),
    ] = None
    endTime: Annotated[AwareDatetime | None, Field(description="Now, without it.")] = None

    def hours(self, now: float) -> tuple[int, int]:
        """Returns the first hour, and the first hour after the range."""
        ended = now if self.endTime is None else self.endTime.timestamp()
        end = int(-(-ended // HOUR_S))
        if self.startTime is None:
            return (end - RANGE_H) // 24 * 24, end
        if self.startTime.timestamp() > ended:
            until = "now" if self.endTime is None else f"endTime {self.endTime.isoformat()}"
            raise BadRequest(f"startTime must not lie after {until}; got {self.startTime.isoformat()}")
        return int(self.startTime.timestamp() // HOUR_S), end


class PodBills(BillRange):
    gpuTypeId: Annotated[_Text | None, Field(examples=["NVIDIA GeForce RTX 4090"])] = None
    podId: Annotated[_Text | None, Field(examples=["xedezhzb9la3ye"])] = None
    grouping: Literal["podId", "gpuTypeId"] = "gpuTypeId"


class EndpointBills(BillRange):
    dataCenterId: Annotated[list[_Text] | None, Field(description="All, without it.")] = None
    endpointId: Annotated[_Text | None, Field(examples=["jpnw0v75y3qoql"])] = None
    gpuTypeId: list[_Text] | None = None
    imageName: Annotated[_Text | None, Field(examples=["runpod/pytorch:2.1.0"])] = None
    templateId: Annotated[_Text | None, Field(examples=["30zmvf89kd"])] = None
    grouping: Literal["endpointId", "podId", "gpuTypeId"] = "endpointId"


class VolumeBills(BillRange):
    pass


class BillingRecord(ResponseBody):
    """The cost of a bucket of time. Of endpointId, podId and gpuTypeId, a record has the field that was
    grouped by."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [_EXAMPLE | {"endpointId": "jpnw0v75y3qoql", "timeBilledMs": 3600000}]}
    )

    amount: Annotated[float, Field(description="In USD.")]
    diskSpaceBilledGb: Annotated[int, Field(description="The most there was at once in the bucket.")]
    endpointId: str | None = None
    gpuTypeId: Annotated[
        str | None,
        Field(description="`CPU` of a processor; absent where no device is known to be behind it."),
    ] = None
    podId: Annotated[str | None, Field(description="Of an endpoint the worker's id.")] = None
    time: Annotated[str, Field(description="When the bucket begins.", examples=["2023-01-01T00:00:00Z"])]
    timeBilledMs: int


class NetworkVolumeBillingRecord(ResponseBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                _EXAMPLE | {"highPerformanceStorageAmount": 0, "highPerformanceStorageDiskSpaceBilledGb": 0}
            ]
        }
    )

    amount: Annotated[float, Field(description="In USD.")]
    diskSpaceBilledGb: Annotated[int, Field(description="The most there was at once in the bucket.")]
    highPerformanceStorageAmount: Annotated[float, Field(description="There is no such storage here.")] = 0
    highPerformanceStorageDiskSpaceBilledGb: int = 0
    time: Annotated[str, Field(description="When the bucket begins.", examples=["2023-01-01T00:00:00Z"])]


@router.get("/endpoints", responses=LISTS, response_model_exclude_none=True)
async def endpoint_billing(
    by: By, managed: Managed, query: Annotated[EndpointBills, Query()]
) -> list[BillingRecord]:
    """Lists what endpoints have cost: their workers' device time; for a hosted endpoint, what its jobs
    made."""
    columns = {"endpointId": "resource", "podId": "worker", "gpuTypeId": "gpu_type"}
    bill_query = BillQuery(
        by.account,
        "endpoint",
        query.hours(managed.clock()),
        by=columns[query.grouping],
        resource=query.endpointId,
        gpu_types=_several(query.gpuTypeId),
        data_centers=_several(query.dataCenterId),
        image=query.imageName,
        template=query.templateId,
    )
    return [_record(one, query.grouping) for one in await managed.billing.read(bill_query, query.bucketSize)]


@router.get("/pods", responses=LISTS, response_model_exclude_none=True)
async def pod_billing(by: By, managed: Managed, query: Annotated[PodBills, Query()]) -> list[BillingRecord]:
    """Lists what pods have cost: their devices' time while they ran, and their disks while they existed."""
    bill_query = BillQuery(
        by.account,
        "pod",
        query.hours(managed.clock()),
        by={"podId": "resource", "gpuTypeId": "gpu_type"}[query.grouping],
        resource=query.podId,
        gpu_types=_several([query.gpuTypeId] if query.gpuTypeId is not None else None),
    )
    return [_record(one, query.grouping) for one in await managed.billing.read(bill_query, query.bucketSize)]


@router.get("/networkvolumes", responses=LISTS)
async def network_volume_billing(
    by: By, managed: Managed, query: Annotated[VolumeBills, Query()]
) -> list[NetworkVolumeBillingRecord]:
    """Lists what network volumes have cost: their size while they existed."""
    bill_query = BillQuery(by.account, "volume", query.hours(managed.clock()))
    return [
        NetworkVolumeBillingRecord(
            amount=one.nano_usd / NANO, diskSpaceBilledGb=one.disk_gb, time=hour_time(one.hour)
        )
        for one in await managed.billing.read(bill_query, query.bucketSize)
    ]


def _several(names: list[str] | None) -> tuple[str, ...] | None:
    return tuple(names) if names else None


def _record(one: BillRecord, grouping: str) -> BillingRecord:
    return BillingRecord(
        amount=one.nano_usd / NANO,
        diskSpaceBilledGb=one.disk_gb,
        time=hour_time(one.hour),
        timeBilledMs=one.billed_ms,
        **{grouping: one.name or None},
    )


def hour_time(hour: int) -> str:
    """Returns the beginning of an hour since the epoch, such as 2026-11-22T08:00:00Z."""
    return datetime.fromtimestamp(hour * HOUR_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
