"""/v1/endpoints: what takes jobs at /v2/{endpointId}."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from stoker.control.api.management.caller import By, Managed
from stoker.control.api.management.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Asked,
    Id,
    Name,
    Told,
    id_in_path,
)
from stoker.control.api.management.templates import TemplateTold, template_told
from stoker.control.config_sections import DEFAULT_EXECUTION_TIMEOUT_MS, DEFAULT_TTL_MS
from stoker.control.management import Management, blueprint
from stoker.control.management.endpoints import Worker
from stoker.control.submissions import EXECUTION_TIMEOUT_MS, TTL_MS
from stoker.control.types import Endpoint, Template

router = APIRouter(prefix="/endpoints", tags=["endpoints"])

_Word = Annotated[str, Field(min_length=1, max_length=191)]
_Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
Count = Annotated[int, Field(ge=0, le=10_000)]
ExecutionTimeout = Annotated[
    int,
    Field(
        le=EXECUTION_TIMEOUT_MS[1],
        description=f"At least {EXECUTION_TIMEOUT_MS[0]}, or 0 for {DEFAULT_EXECUTION_TIMEOUT_MS}.",
        examples=[600_000],
        json_schema_extra={"anyOf": [{"const": 0}, {"minimum": EXECUTION_TIMEOUT_MS[0]}]},
    ),
]
_SCALER = "QUEUE_DELAY: seconds of waiting; REQUEST_COUNT: requests per worker."
Scaler = Literal["QUEUE_DELAY", "REQUEST_COUNT"]
ScalerValue = Annotated[int, Field(ge=1, le=1_000_000, description=_SCALER)]
IdleTimeout = Annotated[int, Field(ge=1, le=3600, description="Seconds.")]
GpuTypes = Annotated[
    list[_Word],
    Field(
        description="In order of priority: published names, or those of nodes' GPUs.",
        examples=[["NVIDIA A40"]],
    ),
]
Cuda = Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$", examples=["12.8"])]
DataCenters = Annotated[
    list[_Word],
    Field(
        description="Published names, or those that nodes are labelled with. All: anywhere.",
        examples=[["EU-RO-1"]],
    ),
]
Flavors = Annotated[list[_Word], Field(description="Of a CPU endpoint.", examples=[["cpu3c"]])]
Instances = Annotated[
    list[Annotated[str, Field(pattern=r"^cpu[35][cgm]-[1-9][0-9]{0,2}-[1-9][0-9]{0,3}$")]],
    Field(description="Of a CPU endpoint: flavour, virtual CPUs, GB.", examples=[["cpu3c-8-16"]]),
]
GpuCount = Annotated[int, Field(ge=1, le=64)]
Vcpus = Annotated[int, Field(ge=1, le=1024, description="Of a CPU endpoint.")]
Share = Annotated[float, Field(gt=0, le=1, description="The part of a GPU's memory that a worker takes.")]
Labels = Annotated[dict[_Label, str], Field(description="What a node must be labelled with.")]
Ttl = Annotated[int, Field(ge=TTL_MS[0], le=TTL_MS[1])]
Attempts = Annotated[int, Field(ge=1, le=10)]
Retries = Annotated[int, Field(ge=0, le=10)]


class _Common(Asked):
    """What a new endpoint and a change of one may both leave out. What may be null is unset by null."""

    allowedCudaVersions: list[Cuda] = []
    cpuFlavorIds: Flavors | None = None
    dataCenterIds: DataCenters = []
    flashboot: Annotated[bool | None, Field(description="Kept and told; workers start fast anyway.")] = None
    gpuCount: GpuCount = 1
    gpuMemoryMb: Annotated[int | None, Field(ge=1, le=1 << 24, description="Of each GPU, at least.")] = None
    gpuMemoryShare: Share = 1.0
    gpuTypeIds: GpuTypes = []
    idleTimeout: IdleTimeout = 5
    instanceIds: Instances | None = None
    maxAttempts: Attempts = 3
    minCudaVersion: Cuda | None = None
    networkVolumeId: Id | None = None
    networkVolumeIds: list[Id] | None = None
    nodeLabels: Labels = {}
    retryHandlerErrors: Retries = 0
    scalerType: Scaler = "QUEUE_DELAY"
    scalerValue: ScalerValue = 4
    ttlMs: Ttl = DEFAULT_TTL_MS
    vcpuCount: Vcpus | None = None
    workersMin: Count = 0


_EXAMPLE: dict[str, Any] = {
    "name": "my endpoint",
    "templateId": "30zmvf89kd",
    "gpuTypeIds": ["NVIDIA A40", "NVIDIA L4"],
    "gpuCount": 1,
    "workersMin": 0,
    "workersMax": 3,
    "idleTimeout": 5,
    "scalerType": "QUEUE_DELAY",
    "scalerValue": 4,
    "executionTimeoutMs": 600_000,
}


class EndpointCreateInput(_Common):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    templateId: Annotated[Id, Field(examples=["30zmvf89kd"])]
    name: Annotated[Name | None, Field(description="Left out: the template's.")] = None
    type: Annotated[
        Literal["QUEUE", "LOAD_BALANCER"],
        Field(description="LOAD_BALANCER is stored and told; it takes no requests yet."),
    ] = "QUEUE"
    computeType: Annotated[
        Literal["GPU", "CPU"] | None,
        Field(description="Left out: a GPU where any node has one, and a CPU otherwise.", examples=["GPU"]),
    ] = None
    executionTimeoutMs: ExecutionTimeout = DEFAULT_EXECUTION_TIMEOUT_MS
    workersMax: Count = 3


class EndpointUpdateInput(_Common):
    """What is left out stays. executionTimeoutMs, flashboot, idleTimeout, name, scalerType, scalerValue,
    workersMax and workersMin are changed in place; anything else makes a new version, which is rolled out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workersMax": 5, "idleTimeout": 60}]})

    templateId: Id = ""
    name: Name = ""
    executionTimeoutMs: ExecutionTimeout = 0
    workersMax: Count = 0


class WorkerGpu(Told):
    id: str
    displayName: str
    count: int


class WorkerTold(Told):
    """One worker, as a pod. `env` holds references to secrets, never what they stand for."""

    model_config = ConfigDict(title="Worker")

    id: str
    name: str
    endpointId: str
    templateId: str | None = None
    desiredStatus: Literal["RUNNING", "EXITED"]
    status: Literal["RUNNING", "IDLE", "INITIALIZING", "UNHEALTHY", "THROTTLED"] | None = None
    reason: Annotated[str | None, Field(description="Why it is not well, or has no place.")] = None
    isStale: Annotated[bool, Field(description="It runs an older version than the endpoint's.")]
    version: int
    image: str | None = None
    env: dict[str, str]
    gpu: WorkerGpu | None = None
    machineId: Annotated[str | None, Field(description="The node; a throttled worker has none.")] = None
    lastStartedAt: str | None = None
    logs: Annotated[
        list[str] | None, Field(description="The last lines of its last process, until another is ready.")
    ] = None


class EndpointTold(Told):
    model_config = ConfigDict(
        title="Endpoint", json_schema_extra={"examples": [{"id": "jpnw0v75y3qoql", "version": 1, **_EXAMPLE}]}
    )

    id: str
    name: str
    type: str
    origin: Annotated[Literal["api", "file"], Field(description="file: the configuration file declares it.")]
    hosted: bool
    userId: str
    createdAt: str | None = None
    version: int
    templateId: str | None = None
    template: TemplateTold | None = None
    workers: list[WorkerTold] | None = None
    computeType: Literal["GPU", "CPU"]
    allowedCudaVersions: list[str]
    cpuFlavorIds: list[str] | None = None
    dataCenterIds: list[str]
    env: dict[str, str]
    executionTimeoutMs: int
    flashboot: bool | None = None
    gpuCount: int
    gpuMemoryMb: int | None = None
    gpuMemoryShare: float
    gpuTypeIds: list[str]
    idleTimeout: int
    instanceIds: list[str] | None = None
    maxAttempts: int
    minCudaVersion: str | None = None
    networkVolumeId: str | None = None
    networkVolumeIds: list[str]
    nodeLabels: dict[str, str]
    retryHandlerErrors: int
    scalerType: Scaler
    scalerValue: int
    ttlMs: int
    vcpuCount: int | None = None
    workersMax: int
    workersMin: int


def endpoint_told(
    endpoint: Endpoint,
    data_centers: tuple[str, ...],
    template: Template | None = None,
    workers: Sequence[Worker] | None = None,
) -> EndpointTold:
    """`data_centers` are all that there are: an endpoint that names none is content with any."""
    run, needs, asked = endpoint.run, endpoint.run.needs, endpoint.asked
    volumes = [run.volume] if run.volume else []
    return EndpointTold(
        id=endpoint.id,
        name=endpoint.name,
        type=endpoint.type,
        origin="api" if endpoint.origin == "api" else "file",
        hosted=endpoint.hosted,
        userId=endpoint.account,
        createdAt=_time(endpoint.created_at),
        version=endpoint.version,
        templateId=endpoint.template or None,
        template=None if template is None else template_told(template),
        workers=None if workers is None else [worker_told(one, endpoint) for one in workers],
        computeType="CPU" if needs.compute == "CPU" else "GPU",
        allowedCudaVersions=list(needs.cuda_versions),
        cpuFlavorIds=asked.get("cpuFlavorIds"),
        dataCenterIds=list(needs.data_centers or data_centers),
        env=_env(endpoint),
        executionTimeoutMs=endpoint.execution_timeout_ms,
        flashboot=asked.get("flashboot"),
        gpuCount=needs.gpu_count,
        gpuMemoryMb=None if needs.gpu_memory_bytes is None else needs.gpu_memory_bytes >> 20,
        gpuMemoryShare=needs.share,
        gpuTypeIds=list(needs.gpu_types),
        idleTimeout=endpoint.idle_timeout_s,
        instanceIds=blueprint.instances(asked) or None,
        maxAttempts=endpoint.max_attempts,
        minCudaVersion=needs.min_cuda or None,
        networkVolumeId=run.volume or None,
        networkVolumeIds=volumes,
        nodeLabels=dict(needs.labels),
        retryHandlerErrors=endpoint.handler_retries,
        scalerType="QUEUE_DELAY" if endpoint.scaler_type == "QUEUE_DELAY" else "REQUEST_COUNT",
        scalerValue=endpoint.scaler_value,
        ttlMs=endpoint.ttl_ms,
        vcpuCount=asked.get("vcpuCount") or needs.vcpus,
        workersMax=endpoint.workers_max,
        workersMin=endpoint.workers_min,
    )


def _env(endpoint: Endpoint) -> dict[str, str]:
    """What the file says may be secret, and was never said over HTTP."""
    return dict(endpoint.run.env) if endpoint.origin == "api" else {}


def worker_told(worker: Worker, endpoint: Endpoint) -> WorkerTold:
    names = worker.gpus
    gpu = WorkerGpu(id=names[0], displayName=names[0], count=len(names)) if names else None
    exited = worker.status == "EXITED"
    return WorkerTold(
        id=worker.id,
        name=endpoint.name,
        endpointId=endpoint.id,
        templateId=endpoint.template or None,
        desiredStatus="EXITED" if exited else "RUNNING",
        status=None if exited else worker.status,  # type: ignore[arg-type]
        reason=worker.reason or None,
        isStale=worker.stale,
        version=worker.version,
        image=endpoint.run.image or None,
        env=_env(endpoint),
        gpu=gpu,
        machineId=worker.node or None,
        lastStartedAt=_time(worker.since),
        logs=list(worker.log) or None,
    )


def _time(at: float) -> str | None:
    """As 2026-11-22T08:00:00.000Z; nothing where it is not known."""
    if not at:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


EndpointId = Annotated[str, id_in_path("endpoint")]
_Flag = Annotated[bool, Query()]


async def _told(
    managed: Management, endpoint: Endpoint, *, template: bool = False, workers: bool = False
) -> EndpointTold:
    made_from = await managed.templates.of(endpoint) if template else None
    held = managed.endpoints.workers(endpoint) if workers else None
    return endpoint_told(endpoint, managed.catalog.data_centers(), made_from, held)


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_endpoint(by: By, managed: Managed, asked: EndpointCreateInput) -> EndpointTold:
    """Create an endpoint. It takes jobs at once."""
    return await _told(
        managed, await managed.endpoints.create(by.account, asked.model_dump(exclude_none=True))
    )


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_endpoints(
    by: By, managed: Managed, includeTemplate: _Flag = False, includeWorkers: _Flag = False
) -> list[EndpointTold]:
    """List endpoints: those that were created, those of the configuration file, and hosted models."""
    found = managed.endpoints.list(by.account)
    return [await _told(managed, one, template=includeTemplate, workers=includeWorkers) for one in found]


@router.get("/{endpointId}", responses=READS, response_model_exclude_none=True)
async def get_endpoint(
    by: By,
    managed: Managed,
    endpointId: EndpointId,
    includeTemplate: _Flag = False,
    includeWorkers: _Flag = False,
) -> EndpointTold:
    """Read one endpoint."""
    found = managed.endpoints.get(by.account, endpointId)
    return await _told(managed, found, template=includeTemplate, workers=includeWorkers)


@router.patch("/{endpointId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{endpointId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_endpoint(
    by: By, managed: Managed, endpointId: EndpointId, asked: EndpointUpdateInput
) -> EndpointTold:
    """Change an endpoint."""
    changes = asked.model_dump(exclude_unset=True)
    return await _told(managed, await managed.endpoints.update(by.account, endpointId, changes))


@router.delete("/{endpointId}", status_code=204, responses=DELETES)
async def delete_endpoint(by: By, managed: Managed, endpointId: EndpointId) -> None:
    """Delete an endpoint. Its jobs are cancelled, its workers stop, and its address is gone."""
    await managed.endpoints.delete(by.account, endpointId)
