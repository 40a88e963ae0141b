"""Endpoints and their workers as management v2 answers them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from stoker.control.config.endpoints import called
from stoker.control.http.management.operations.pod_answers import env_response
from stoker.control.http.management.operations.shapes import rfc3339
from stoker.control.http.management.v2.container import container_record
from stoker.control.http.management.v2.endpoint_bodies import EndpointType, FlashBoot
from stoker.control.http.management.v2.gpu_pools import pools_of
from stoker.control.http.management.v2.pod_records import Container
from stoker.control.http.management.v2.shapes import Pagination, Record
from stoker.control.resources import endpoint_fields
from stoker.control.resources.endpoint_workers import EndpointWorker
from stoker.control.rules.types import LOAD_BALANCER, Endpoint, Template
from stoker.control.rules.volumes import GB


class GpuRecord(Record):
    pools: list[str]
    excludedTypes: list[str]
    count: int
    allowedCudaVersions: list[str]
    minCudaVersion: str | None


class CpuRecord(Record):
    id: Annotated[str | None, Field(description="Null: no flavour was asked for.")]
    vcpuCount: int


class WorkersRecord(Record):
    min: int
    max: int
    idleTimeout: int | None = None


class ScalingRecord(Record):
    type: Literal["QUEUE_DELAY", "REQUEST_COUNT"]
    queueDelay: float | None = None
    requestCount: int | None = None


class EndpointRecord(Container):
    id: str
    name: str
    type: EndpointType
    requestUrls: dict[str, str]
    gpu: GpuRecord | None = None
    cpu: list[CpuRecord] | None = None
    workers: WorkersRecord
    scaling: ScalingRecord
    dataCenterIds: list[str]
    networkVolumes: list[str]
    timeout: Annotated[int, Field(description="Milliseconds.")]
    flashboot: FlashBoot
    createdAt: str


class EndpointList(Record):
    endpoints: list[EndpointRecord]
    pagination: Pagination


def endpoint_record(
    endpoint: Endpoint,
    template: Template | None,
    data_centers: tuple[str, ...],
    base: str,
    *,
    on_cpus: bool,
) -> EndpointRecord:
    """Returns an endpoint as management v2 shows it. `data_centers` are all that exist: an endpoint that
    names none may use any. `base` is the address of control as the caller knows it."""
    run, requested = endpoint.run, endpoint.requested
    flashboot = "PRIORITY_FLASHBOOT" if requested.get("priorityFlashboot") else "FLASHBOOT"
    return EndpointRecord(
        **_container(endpoint, template),
        id=endpoint.id,
        name=endpoint.name,
        type="LOAD_BALANCER" if endpoint.type == LOAD_BALANCER else "QUEUE",
        requestUrls=_urls(endpoint, f"{base}/v2/{called(endpoint.id)}"),
        workers=_workers(endpoint),
        scaling=_scaling(endpoint),
        dataCenterIds=list(run.needs.data_centers or data_centers),
        networkVolumes=[run.volume] if run.volume else [],
        timeout=endpoint.execution_timeout_ms,
        flashboot=flashboot if requested.get("flashboot") else "OFF",  # type: ignore[arg-type]
        createdAt=rfc3339(endpoint.created_at),
        **({"cpu": _cpus(endpoint)} if on_cpus else {"gpu": _gpu(endpoint)}),
    )


def _container(endpoint: Endpoint, template: Template | None) -> dict[str, Any]:
    """Returns the container's fields by the template. An endpoint of the configuration file has none, and its
    environment may be secret."""
    run = endpoint.run
    if template is None:
        return container_record(
            image=run.image or run.handler,
            command=run.command,
            disk_gb=None if run.disk_bytes is None else run.disk_bytes // GB,
            ports=(),
            env=env_response(endpoint),
            registry=None,
        )
    return container_record(
        image=template.fields["imageName"],
        command=template.fields["dockerStartCmd"],
        disk_gb=template.fields["containerDiskInGb"],
        ports=template.fields["ports"],
        env=env_response(endpoint),
        registry=template.fields.get("containerRegistryAuthId"),
    )


def _urls(endpoint: Endpoint, base: str) -> dict[str, str]:
    if endpoint.type == LOAD_BALANCER:
        return {"base": base, "health": f"{base}/ping"}
    names = {"runSync": "runsync", "purgeQueue": "purge-queue"}
    jobs = ("run", "runSync", "status", "stream", "cancel", "retry", "purgeQueue", "health")
    return {name: f"{base}/{names.get(name, name)}" for name in jobs}


def _workers(endpoint: Endpoint) -> WorkersRecord:
    known: dict[str, int] = {"min": endpoint.workers_min, "max": endpoint.workers_max}
    if endpoint.type == LOAD_BALANCER or endpoint.scaler_type == "QUEUE_DELAY":
        known["idleTimeout"] = endpoint.idle_timeout_s
    return WorkersRecord(**known)


def _scaling(endpoint: Endpoint) -> ScalingRecord:
    """Returns the scaling. The delay that was asked for counts as long as /v1 has not changed it."""
    whole = endpoint.scaler_value
    if endpoint.scaler_type != "QUEUE_DELAY":
        return ScalingRecord(type="REQUEST_COUNT", requestCount=whole)
    asked: float = endpoint.requested.get("queueDelay") or whole
    return ScalingRecord(type="QUEUE_DELAY", queueDelay=asked if whole - 1 < asked < whole else whole)


def _gpu(endpoint: Endpoint) -> GpuRecord:
    needs = endpoint.run.needs
    pools, excluded = pools_of(needs.gpu_types)
    return GpuRecord(
        pools=pools,
        excludedTypes=excluded,
        count=needs.gpu_count,
        allowedCudaVersions=list(needs.cuda_versions),
        minCudaVersion=needs.min_cuda or None,
    )


def _cpus(endpoint: Endpoint) -> list[CpuRecord]:
    named = [one.split("-") for one in endpoint_fields.instances(endpoint.requested)]
    found = [CpuRecord(id=flavor, vcpuCount=int(count)) for flavor, count, _ in named]
    return found or [CpuRecord(id=None, vcpuCount=endpoint.run.needs.vcpus or 1)]


# ---- workers ------------------------------------------------------------------------------------

_STATES = ("running", "idle", "initializing", "throttled", "unhealthy")


class WorkerRecord(Record):
    id: str
    status: Literal["RUNNING", "IDLE", "INITIALIZING", "THROTTLED", "UNHEALTHY"]
    reason: Annotated[str, Field(description="Why it has this status.")]
    isStale: Annotated[bool, Field(description="It runs an older version than the endpoint's.")]
    version: int | None
    image: str | None
    gpuCount: int
    gpuTypeId: str | None
    dataCenterId: str | None
    startedAt: str | None
    uptimeSeconds: int | None


class WorkerCounts(Record):
    running: int
    idle: int
    initializing: int
    throttled: int
    unhealthy: int
    total: int


class WorkerList(Record):
    workers: list[WorkerRecord]
    summary: WorkerCounts
    endpointVersion: int


class Rollout(Record):
    inProgress: bool
    workersOnLatest: int
    workersTotal: int
    percentOnLatest: float


class Releases(Record):
    """The version that is rolled out now; earlier ones are not listed."""

    endpointVersion: int
    rollout: Rollout
    releases: list[dict[str, int]]


def worker_record(worker: EndpointWorker, endpoint: Endpoint, data_center: str, now: float) -> WorkerRecord:
    return WorkerRecord(
        id=worker.id,
        status=worker.status,  # type: ignore[arg-type]
        reason=worker.reason,
        isStale=worker.stale,
        version=worker.version,
        image=endpoint.run.image or None,
        gpuCount=len(worker.gpus),
        gpuTypeId=worker.gpus[0] if worker.gpus else None,
        dataCenterId=data_center or None,
        startedAt=rfc3339(worker.since) if worker.since else None,
        uptimeSeconds=max(int(now - worker.since), 0) if worker.since else None,
    )


def counted(workers: list[WorkerRecord]) -> WorkerCounts:
    counts = {state: sum(one.status == state.upper() for one in workers) for state in _STATES}
    return WorkerCounts(**counts, total=len(workers))


def rollout(workers: list[WorkerRecord]) -> Rollout:
    """Returns how far the newest version has come; without workers there is nothing to replace."""
    latest, total = sum(not one.isStale for one in workers), len(workers)
    return Rollout(
        inProgress=latest < total,
        workersOnLatest=latest,
        workersTotal=total,
        percentOnLatest=100 * latest / total if total else 100.0,
    )
