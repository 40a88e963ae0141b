"""/v2/catalog: what there is to ask for: GPU types with their pools, CPU flavours, data centres, templates.

Published types are listed even while no node has one, since a node with it may come; `availability` says what
is there now: how often the count fits into the free devices of nodes.

    0 ──> NONE     1 ──> LOW     2 or 3 ──> MEDIUM     4 or more ──> HIGH
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from stoker.control.errors import BadRequest, NotFound
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.v2.gpu_pools import MEMORY_GB, pool_of
from stoker.control.http.management.v2.shapes import (
    LISTS,
    Page,
    Pagination,
    Record,
    Unquoted,
    id_in_path,
    paged,
    refusals,
)
from stoker.control.http.management.v2.templates import TemplateList, template_record
from stoker.control.resources import ManagedResources
from stoker.control.resources.catalog import CUDA, DATA_CENTER
from stoker.control.resources.endpoint_fields import FLAVOR_GB
from stoker.control.resources.templates import TemplateFilter
from stoker.control.rules.billing import NANO
from stoker.control.rules.placement import NodeRoom
from stoker.control.rules.volumes import GB

router = APIRouter(prefix="/catalog", tags=["catalog"])

Availability = Literal["NONE", "LOW", "MEDIUM", "HIGH"]
FLAVORS = {
    "cpu3c": "Compute-Optimized",
    "cpu3g": "General Purpose",
    "cpu3m": "Memory-Optimized",
    "cpu5c": "Compute-Optimized",
    "cpu5g": "General Purpose",
    "cpu5m": "Memory-Optimized",
}
READS = refusals(400, 404)


class GpuPrice(Record):
    """US dollars an hour of one; null where the operator has set no price."""

    secure: float | None
    community: float | None
    serverless: float | None


class GpuMost(Record):
    secure: Annotated[int, Field(description="The most on one connected node.")]
    community: int


class InDataCenter(Record):
    id: str
    name: str
    availability: Availability


class CudaThere(Record):
    version: str
    available: bool


class GpuType(Record):
    id: str
    name: str
    pool: str | None
    manufacturer: str
    memory: Annotated[int, Field(description="Of one, in GB.")]
    secure: bool
    community: bool
    price: GpuPrice
    maxCount: GpuMost
    availability: Availability | None = None
    dataCenters: list[InDataCenter] | None = None
    cudaVersions: list[CudaThere] | None = None


class GpuTypes(Record):
    gpus: list[GpuType]
    pagination: Pagination


class Vcpus(Record):
    min: int
    max: int


class CpuPrice(Record):
    """Null: a processor has a price here, and not its virtual CPUs."""

    securePerVcpu: float | None
    serverlessPerVcpu: float | None


class CpuFlavor(Record):
    id: str
    name: str
    group: str
    vcpu: Vcpus
    ramGbPerVcpu: int
    price: CpuPrice
    availability: Availability | None = None
    dataCenters: list[InDataCenter] | None = None


class CpuFlavors(Record):
    cpus: list[CpuFlavor]
    pagination: Pagination


class DataCenter(Record):
    id: str
    name: str
    region: str
    globalNetwork: bool
    networkVolumeTypes: list[str]
    compliance: list[str]


class DataCenters(Record):
    dataCenters: list[DataCenter]
    pagination: Pagination


class _Stock(BaseModel):
    """The query parameters about stock. `include=AVAILABILITY`, with a product, adds what is there now."""

    include: str = ""
    product: Literal["POD", "SERVERLESS", "CLUSTER"] | None = None

    @property
    def wanted(self) -> bool:
        names = [one for one in self.include.split(",") if one]
        if wrong := next((one for one in names if one != "AVAILABILITY"), None):
            raise BadRequest(f"include must be AVAILABILITY; got {wrong[:100]}")
        if names and self.product is None:
            raise BadRequest("include=AVAILABILITY needs a product: POD or SERVERLESS")
        return bool(names)


class GpuQuery(_Stock):
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    cloud: Literal["SECURE", "COMMUNITY"] | None = None
    cudaVersions: Annotated[str, Field(description="Of the nodes' drivers, with commas.")] = ""
    minCudaVersion: Annotated[str, Field(pattern=r"^([0-9]{1,3}\.[0-9]{1,3})?$")] = ""


class CpuQuery(_Stock):
    vcpuCount: Annotated[int, Field(ge=1, le=1024)] = 2


def level(places: int) -> Availability:
    """Returns the word for how often something fits."""
    if places < 2:
        return "LOW" if places else "NONE"
    return "HIGH" if places >= 4 else "MEDIUM"


def _free(room: NodeRoom, gpu_type: str | None) -> int:
    """Returns how many devices of a type a node has free; of processors for None."""
    return sum(
        not room.closed
        and not room.taken.get(one.uuid)
        and one.uuid not in room.unhealthy
        and (one.kind == "cpu" if gpu_type is None else one.kind != "cpu" and one.name == gpu_type)
        for one in room.devices
    )


def _in_data_centers(places: Sequence[tuple[NodeRoom, int]]) -> list[InDataCenter]:
    """Returns the data centres in which there is a place."""
    counts: dict[str, int] = {}
    for room, times in places:
        name = room.facts.get(DATA_CENTER, "")
        counts[name] = counts.get(name, 0) + times
    return [
        InDataCenter(id=name, name=name, availability=level(times))
        for name, times in sorted(counts.items())
        if name and times
    ]


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()


def _may_use(room: NodeRoom, query: GpuQuery) -> bool:
    there = room.facts.get(CUDA, "")
    allowed = [one for one in query.cudaVersions.split(",") if one]
    new_enough = not query.minCudaVersion or _version(there) >= _version(query.minCudaVersion)
    return (not allowed or there in allowed) and new_enough and query.cloud != "COMMUNITY"


def _gpu(managed: ManagedResources, gpu_type: str, query: GpuQuery, rooms: Sequence[NodeRoom]) -> GpuType:
    price = managed.billing.device_hour(gpu_type)
    dollars = None if price is None else price / NANO
    devices = [[one for one in room.devices if one.name == gpu_type] for room in rooms]
    known = [one.memory_total for found in devices for one in found if one.memory_total]
    record = GpuType(
        id=gpu_type,
        name=gpu_type.removeprefix("NVIDIA").strip().removeprefix("GeForce").strip(),
        pool=pool_of(gpu_type),
        manufacturer="AMD" if gpu_type.startswith("AMD") else "NVIDIA",
        memory=MEMORY_GB.get(gpu_type) or max(known, default=0) // GB,
        secure=True,
        community=False,
        price=GpuPrice(secure=dollars, community=None, serverless=dollars),
        maxCount=GpuMost(secure=max(map(len, devices), default=0), community=0),
    )
    if query.wanted:
        usable = [room for room in rooms if _may_use(room, query)]
        places = [(room, _free(room, gpu_type) // query.count) for room in usable]
        versions = {
            room.facts.get(CUDA, ""): bool(times) for room, times in sorted(places, key=lambda one: one[1])
        }
        record.availability = level(sum(times for _, times in places))
        record.dataCenters = _in_data_centers(places)
        record.cudaVersions = [
            CudaThere(version=one, available=there) for one, there in sorted(versions.items()) if one
        ]
    return record


def _cpu(managed: ManagedResources, flavor: str, query: CpuQuery) -> CpuFlavor:
    rooms = managed.cluster.rooms()
    vcpus = [int(float(room.facts.get("vcpus", 0))) for room in rooms]
    record = CpuFlavor(
        id=flavor,
        name=flavor,
        group=FLAVORS[flavor],
        vcpu=Vcpus(min=2, max=max([2, *vcpus])),
        ramGbPerVcpu=FLAVOR_GB[flavor[-1]],
        price=CpuPrice(securePerVcpu=None, serverlessPerVcpu=None),
    )
    if query.wanted:
        fits = zip(rooms, vcpus, strict=True)
        places = [(room, count // query.vcpuCount if _free(room, None) else 0) for room, count in fits]
        record.availability = level(sum(times for _, times in places))
        record.dataCenters = _in_data_centers(places)
    return record


def _data_center(name: str) -> DataCenter:
    return DataCenter(
        id=name,
        name=name,
        region=name.partition("-")[0],
        globalNetwork=False,
        networkVolumeTypes=["STANDARD"],
        compliance=[],
    )


@router.get("/gpus", responses=LISTS | refusals(400), response_model_exclude_unset=True)
async def list_gpu_types(
    _: By, managed: Managed, page: Page, query: Annotated[GpuQuery, Query()]
) -> GpuTypes:
    """Lists GPU types: those that are published, and those that nodes have."""
    rooms = managed.cluster.rooms()
    found, pagination = paged(managed.catalog.gpu_types(), str, page)
    return GpuTypes(gpus=[_gpu(managed, one, query, rooms) for one in found], pagination=pagination)


@router.get("/gpus/{gpuId}", responses=READS, response_model_exclude_unset=True)
async def get_gpu_type(
    _: By,
    managed: Managed,
    gpuId: Annotated[str, id_in_path("GPU type"), Unquoted],
    query: Annotated[GpuQuery, Query()],
) -> GpuType:
    """Returns a GPU type."""
    if gpuId not in managed.catalog.gpu_types():
        raise NotFound(f"no GPU type {gpuId!r}: /v2/catalog/gpus lists all")
    return _gpu(managed, gpuId, query, managed.cluster.rooms())


@router.get("/cpus", responses=LISTS | refusals(400), response_model_exclude_unset=True)
async def list_cpu_flavors(
    _: By, managed: Managed, page: Page, query: Annotated[CpuQuery, Query()]
) -> CpuFlavors:
    """Lists CPU flavours."""
    found, pagination = paged(list(FLAVORS), str, page)
    return CpuFlavors(cpus=[_cpu(managed, one, query) for one in found], pagination=pagination)


@router.get("/cpus/{cpuId}", responses=READS, response_model_exclude_unset=True)
async def get_cpu_flavor(
    _: By,
    managed: Managed,
    cpuId: Annotated[str, id_in_path("CPU flavour"), Unquoted],
    query: Annotated[CpuQuery, Query()],
) -> CpuFlavor:
    """Returns a CPU flavour."""
    if cpuId not in FLAVORS:
        raise NotFound(f"no CPU flavour {cpuId!r}; there are {', '.join(FLAVORS)}")
    return _cpu(managed, cpuId, query)


@router.get("/datacenters", responses=LISTS)
async def list_data_centers(_: By, managed: Managed, page: Page) -> DataCenters:
    """Lists data centres: those that are published, and those that nodes are labelled with."""
    found, pagination = paged(managed.catalog.data_centers(), str, page)
    return DataCenters(dataCenters=[_data_center(one) for one in found], pagination=pagination)


@router.get("/datacenters/{dataCenterId}", responses=READS)
async def get_data_center(
    _: By, managed: Managed, dataCenterId: Annotated[str, id_in_path("data centre"), Unquoted]
) -> DataCenter:
    """Returns a data centre."""
    if dataCenterId not in managed.catalog.data_centers():
        raise NotFound(f"no data centre {dataCenterId!r}: /v2/catalog/datacenters lists all")
    return _data_center(dataCenterId)


@router.get("/templates", responses=LISTS)
async def list_public_templates(
    by: By,
    managed: Managed,
    page: Page,
    source: Literal["official", "verified", "community"] = "community",
) -> TemplateList:
    """Lists the public templates of other accounts, which are all of the community."""
    every = await managed.templates.list(by.account, TemplateFilter(public=True))
    public = [one for one in every if one.account != by.account and source == "community"]
    found, pagination = paged(public, lambda one: one.id, page)
    return TemplateList(templates=[template_record(one) for one in found], pagination=pagination)
