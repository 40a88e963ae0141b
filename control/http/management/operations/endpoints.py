"""/v1/endpoints: what takes jobs at /v2/{endpointId}."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from stoker.control.http.calls.shapes import Health
from stoker.control.http.management.operations.avoided import AvoidedResponse, avoided_response
from stoker.control.http.management.operations.caller import By, Managed, ThePlane
from stoker.control.http.management.operations.pod_answers import PodResponse, env_response, worker_responses
from stoker.control.http.management.operations.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    After,
    Changes,
    Cuda,
    Limit,
    Name,
    QuotaBody,
    RequestBody,
    ResponseBody,
    id_in_path,
    page_of,
    rfc3339,
)
from stoker.control.http.management.operations.templates import TemplateResponse, template_response
from stoker.control.jobs import records
from stoker.control.jobs.records import Record
from stoker.control.plane import Plane
from stoker.control.resources import ManagedResources, endpoint_fields
from stoker.control.resources.endpoint_fields import INT
from stoker.control.rules.limits import (
    DEFAULT_EXECUTION_TIMEOUT_MS,
    DEFAULT_TTL_MS,
    EXECUTION_TIMEOUT_MS,
    TTL_MS,
)
from stoker.control.rules.types import LOAD_BALANCER, Endpoint, Template
from stoker.control.scheduling.avoidance import Avoided

router = APIRouter(prefix="/endpoints", tags=["endpoints"])

_Name = Annotated[str, Field(min_length=1, max_length=191)]
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
ScalerValue = Annotated[int, Field(ge=1, le=INT, description=_SCALER)]
IdleTimeout = Annotated[int, Field(ge=1, le=3600, description="Seconds.")]
GpuTypes = Annotated[
    list[_Name],
    Field(
        description="In order of priority: published names, or those of nodes' GPUs.",
        examples=[["NVIDIA A40"]],
    ),
]
DataCenters = Annotated[
    list[_Name],
    Field(
        description="Published names, or those that nodes are labelled with. All: anywhere.",
        examples=[["EU-RO-1"]],
    ),
]
Flavors = Annotated[list[_Name], Field(description="Of a CPU endpoint.", examples=[["cpu3c"]])]
Instances = Annotated[
    list[Annotated[str, Field(pattern=r"^cpu[35][cgm]-[1-9][0-9]{0,2}-[1-9][0-9]{0,3}$")]],
    Field(description="Of a CPU endpoint: flavour, virtual CPUs, GB.", examples=[["cpu3c-8-16"]]),
]
GpuCount = Annotated[int, Field(ge=1, le=INT)]
Vcpus = Annotated[int, Field(ge=1, le=INT, description="Of a CPU endpoint.")]
Share = Annotated[float, Field(gt=0, le=1, description="The part of a GPU's memory that a worker takes.")]
Labels = Annotated[dict[_Label, str], Field(description="What a node must be labelled with.")]
Ttl = Annotated[int, Field(ge=TTL_MS[0], le=TTL_MS[1])]
Attempts = Annotated[int, Field(ge=1, le=10)]
Retries = Annotated[int, Field(ge=0, le=10)]
KeepCases = Annotated[
    bool, Field(description="Keeps what a failed job needs to run again elsewhere: `stoker replay`.")
]


class _Common(RequestBody):
    """The fields that a new endpoint and a change may both leave out. null unsets a field that may be
    null."""

    allowedCudaVersions: list[Cuda] = []
    cpuFlavorIds: Flavors | None = None
    dataCenterIds: DataCenters = []
    flashboot: Annotated[
        bool | None, Field(description="Stored and returned; workers start fast anyway.")
    ] = None
    gpuCount: GpuCount = 1
    gpuMemoryMb: Annotated[int | None, Field(ge=1, le=1 << 24, description="Of each GPU, at least.")] = None
    gpuMemoryShare: Share = 1.0
    gpuTypeIds: GpuTypes = []
    idleTimeout: IdleTimeout = 5
    instanceIds: Instances | None = None
    keepCases: KeepCases = False
    maxAttempts: Attempts = 3
    minCudaVersion: Cuda | None = None
    networkVolumeId: str | None = None
    networkVolumeIds: list[str] | None = None
    nodeLabels: Labels = {}
    quota: QuotaBody | None = None
    retryHandlerErrors: Retries = 0
    scalerType: Scaler = "QUEUE_DELAY"
    scalerValue: ScalerValue = 4
    temporary: Annotated[
        bool, Field(description="Deleted, with a template of its name, 24 hours after its last use.")
    ] = False
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

    templateId: Annotated[str, Field(examples=["30zmvf89kd"])]
    name: Annotated[Name | None, Field(description="Left out or empty: the template's, or else its id.")] = (
        None
    )
    type: Annotated[
        Literal["QUEUE", "LOAD_BALANCER"],
        Field(
            description="LOAD_BALANCER: requests go straight to the HTTP servers of its workers. It is"
            " scaled by REQUEST_COUNT."
        ),
    ] = "QUEUE"
    computeType: Annotated[
        Literal["GPU", "CPU"] | None,
        Field(description="Left out: a GPU where any node has one, and a CPU otherwise.", examples=["GPU"]),
    ] = None
    executionTimeoutMs: ExecutionTimeout = DEFAULT_EXECUTION_TIMEOUT_MS
    workersMax: Count = 3


class EndpointUpdateInput(Changes, _Common):
    """Changes of an endpoint. What is left out stays. executionTimeoutMs, flashboot, idleTimeout, keepCases,
    name, quota, scalerType, scalerValue, temporary, workersMax and workersMin are changed in place; anything
    else makes a new version, which is rolled out."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"workersMax": 5, "idleTimeout": 60}]})

    templateId: str = ""
    name: Name = ""
    executionTimeoutMs: ExecutionTimeout = 0
    workersMax: Count = 0


class EndpointResponse(ResponseBody):
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
    template: TemplateResponse | None = None
    workers: Annotated[
        list[PodResponse] | None, Field(description="As pods. `env` holds references to secrets only.")
    ] = None
    health: Annotated[Health | None, Field(description="With includeHealth: as `/health` answers.")] = None
    avoidedNodes: Annotated[
        list[AvoidedResponse] | None,
        Field(description="Where its workers did not start. Absent while every node may have them."),
    ] = None
    computeType: Annotated[
        Literal["GPU", "CPU"],
        Field(description="If none was requested: what its workers run on, or would on these nodes."),
    ]
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
    keepCases: bool
    maxAttempts: int
    minCudaVersion: str | None = None
    networkVolumeId: str | None = None
    networkVolumeIds: list[str]
    nodeLabels: dict[str, str]
    quota: QuotaBody
    retryHandlerErrors: int
    scalerType: Scaler
    scalerValue: int
    temporary: bool
    ttlMs: int
    vcpuCount: int | None = None
    workersMax: int
    workersMin: int


def endpoint_response(
    endpoint: Endpoint,
    data_centers: tuple[str, ...],
    *,
    on_cpus: bool,
    template: Template | None = None,
    workers: Sequence[PodResponse] | None = None,
    avoided: Sequence[Avoided] = (),
) -> EndpointResponse:
    """Returns an endpoint as /v1 shows it. `data_centers` are all that exist: an endpoint that names none may
    use any."""
    run, needs, requested = endpoint.run, endpoint.run.needs, endpoint.requested
    volumes = [run.volume] if run.volume else []
    return EndpointResponse(
        id=endpoint.id,
        name=endpoint.name,
        type=endpoint.type,
        origin="api" if endpoint.origin == "api" else "file",
        hosted=endpoint.hosted,
        userId=endpoint.account,
        createdAt=rfc3339(endpoint.created_at) if endpoint.created_at else None,
        version=endpoint.version,
        templateId=endpoint.template or None,
        template=None if template is None else template_response(template),
        workers=None if workers is None else list(workers),
        avoidedNodes=[avoided_response(one) for one in avoided] or None,
        computeType="CPU" if on_cpus else "GPU",
        allowedCudaVersions=list(needs.cuda_versions),
        cpuFlavorIds=requested.get("cpuFlavorIds"),
        dataCenterIds=list(needs.data_centers or data_centers),
        env=env_response(endpoint),
        executionTimeoutMs=endpoint.execution_timeout_ms,
        flashboot=requested.get("flashboot"),
        gpuCount=needs.gpu_count,
        gpuMemoryMb=None if needs.gpu_memory_bytes is None else needs.gpu_memory_bytes >> 20,
        gpuMemoryShare=needs.share,
        gpuTypeIds=list(needs.gpu_types),
        idleTimeout=endpoint.idle_timeout_s,
        instanceIds=endpoint_fields.instances(requested) or None,
        keepCases=endpoint.keep_cases,
        maxAttempts=endpoint.max_attempts,
        minCudaVersion=needs.min_cuda or None,
        networkVolumeId=run.volume or None,
        networkVolumeIds=volumes,
        nodeLabels=dict(needs.labels),
        quota=QuotaBody(**endpoint.quota.fields()),
        retryHandlerErrors=endpoint.handler_retries,
        scalerType="QUEUE_DELAY" if endpoint.scaler_type == "QUEUE_DELAY" else "REQUEST_COUNT",
        scalerValue=endpoint.scaler_value,
        temporary=endpoint.temporary,
        ttlMs=endpoint.ttl_ms,
        vcpuCount=requested.get("vcpuCount") or needs.vcpus,
        workersMax=endpoint.workers_max,
        workersMin=endpoint.workers_min,
    )


EndpointId = Annotated[str, id_in_path("endpoint")]
_Flag = Annotated[bool, Query()]


async def counted(plane: Plane, endpoint: Endpoint) -> Record:
    """Returns the counts of an endpoint's jobs, or of a load-balancing endpoint's requests."""
    found = await plane.queries.health(endpoint)
    if endpoint.type == LOAD_BALANCER:
        found = plane.requests.counted(endpoint.id, found)
    return records.health(found)


async def _response(
    managed: ManagedResources,
    endpoint: Endpoint,
    *,
    template: bool = False,
    workers: bool = False,
    health: Plane | None = None,
) -> EndpointResponse:
    """Returns the answer, with the counts of `health`, a plane, where they are wanted."""
    made_from = await managed.templates.of(endpoint) if template else None
    answer = endpoint_response(
        endpoint,
        managed.catalog.data_centers(),
        on_cpus=managed.endpoints.on_cpus(endpoint),
        template=made_from,
        workers=worker_responses(managed, endpoint) if workers else None,
        avoided=managed.endpoints.avoided(endpoint),
    )
    if health is not None:
        answer.health = Health(**await counted(health, endpoint))  # type: ignore[typeddict-item]
    return answer


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_endpoint(by: By, managed: Managed, body: EndpointCreateInput) -> EndpointResponse:
    """Creates an endpoint, which takes jobs at once."""
    return await _response(
        managed, await managed.endpoints.create(by.account, body.model_dump(exclude_none=True), by)
    )


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_endpoints(
    by: By,
    managed: Managed,
    plane: ThePlane,
    includeTemplate: _Flag = False,
    includeWorkers: _Flag = False,
    includeHealth: _Flag = False,
    limit: Limit = None,
    after: After = None,
) -> list[EndpointResponse]:
    """Lists endpoints: those that were created, those of the configuration file, and hosted models. With
    `limit`, a page that has fewer is the last."""
    answers, health = [], plane if includeHealth else None
    for one in page_of(managed.endpoints.list(by.account), after, limit):
        answer = _response(managed, one, template=includeTemplate, workers=includeWorkers, health=health)
        answers.append(await answer)
    return answers


@router.get("/{endpointId}", responses=READS, response_model_exclude_none=True)
async def get_endpoint(
    by: By,
    managed: Managed,
    plane: ThePlane,
    endpointId: EndpointId,
    includeTemplate: _Flag = False,
    includeWorkers: _Flag = False,
    includeHealth: _Flag = False,
) -> EndpointResponse:
    """Returns an endpoint."""
    found = managed.endpoints.get(by.account, endpointId)
    health = plane if includeHealth else None
    return await _response(managed, found, template=includeTemplate, workers=includeWorkers, health=health)


@router.patch("/{endpointId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{endpointId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_endpoint(
    by: By, managed: Managed, endpointId: EndpointId, body: EndpointUpdateInput
) -> EndpointResponse:
    """Changes an endpoint."""
    changes = body.model_dump(exclude_unset=True)
    return await _response(managed, await managed.endpoints.update(by.account, endpointId, changes, by))


@router.delete("/{endpointId}", **DELETES)
async def delete_endpoint(by: By, managed: Managed, endpointId: EndpointId) -> None:
    """Deletes an endpoint. Its jobs are cancelled, its workers stop, and its address exists no more."""
    await managed.endpoints.delete(by.account, endpointId)
