"""/v1/pods: containers that callers order themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from stoker.control.errors import NotFound
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.pod_answers import PodResponse, pod_response, worker_response
from stoker.control.http.management.operations.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Changes,
    Cuda,
    Name,
    RequestBody,
    id_in_path,
    refusals,
)
from stoker.control.http.management.operations.templates import Command, Env, Gigabytes, MountPath, Ports
from stoker.control.resources import ManagedResources
from stoker.control.resources.endpoint_fields import INT
from stoker.control.resources.pods.pod_fields import DEFAULTS, ENV_MOST
from stoker.control.resources.pods.pod_views import PodFilter, PodView, worker_matches

router = APIRouter(prefix="/pods", tags=["pods"])

ACTS = refusals(400, 404)

_Priority = Literal["availability", "custom"]
_CpuFlavor = Literal["cpu3c", "cpu3g", "cpu3m", "cpu5c", "cpu5g", "cpu5m"]
_Text = Annotated[str, Field(max_length=255)]
_Country = Annotated[str, Field(examples=["NL"])]
_Least = Annotated[float, Field(ge=0)]
_Image = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        pattern=r"^[^\s]+$",
        description="A container image. It, or a templateId, is needed.",
        examples=["ghcr.io/example/notebook:1.2"],
    ),
]
_PodEnv = Annotated[Env, Field(max_length=ENV_MOST)]
_Disk = Annotated[Gigabytes | None, Field(description="null: no limit. Held to where the engine can.")]
_Volume = Annotated[Gigabytes | None, Field(description="The pod's own, kept over stops. null: no limit.")]
_ACCEPTED = "Accepted, and returned where the answer has it; it has no effect here."

_EXAMPLE: dict[str, Any] = {
    "name": "my pod",
    "imageName": "ghcr.io/example/notebook:1.2",
    "gpuTypeIds": ["NVIDIA GeForce RTX 4090"],
    "gpuCount": 1,
    "ports": ["8888/http", "22/tcp"],
    "env": {"MODE": "fast"},
    "volumeInGb": 20,
    "volumeMountPath": "/workspace",
}


class PodCreateInput(RequestBody):
    """A pod to create. What is left out is the template's, where there is a template, and the default
    else."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    allowedCudaVersions: list[Cuda] | None = None
    cloudType: Annotated[Literal["SECURE", "COMMUNITY"], Field(description=_ACCEPTED)] = DEFAULTS["cloudType"]
    computeType: Literal["GPU", "CPU"] = DEFAULTS["computeType"]
    containerDiskInGb: _Disk = DEFAULTS["containerDiskInGb"]
    containerRegistryAuthId: str | None = None
    countryCodes: Annotated[list[_Country] | None, Field(description=_ACCEPTED)] = None
    cpuFlavorIds: Annotated[list[_CpuFlavor] | None, Field(description=_ACCEPTED)] = None
    cpuFlavorPriority: Annotated[_Priority, Field(description=_ACCEPTED)] = DEFAULTS["cpuFlavorPriority"]
    dataCenterIds: Annotated[list[_Text] | None, Field(description="Published names, or nodes' labels.")] = (
        None
    )
    dataCenterPriority: Annotated[_Priority, Field(description=_ACCEPTED)] = DEFAULTS["dataCenterPriority"]
    desiredStatus: Annotated[
        Literal["RUNNING", "EXITED"], Field(description="EXITED: it is created and not started.")
    ] = DEFAULTS["desiredStatus"]
    dockerEntrypoint: Command = DEFAULTS["dockerEntrypoint"]
    dockerStartCmd: Command = DEFAULTS["dockerStartCmd"]
    env: _PodEnv = DEFAULTS["env"]
    globalNetworking: Annotated[bool, Field(description=_ACCEPTED)] = DEFAULTS["globalNetworking"]
    gpuCount: Annotated[int, Field(ge=1, le=INT)] = DEFAULTS["gpuCount"]
    gpuTypeIds: Annotated[
        list[_Text] | None, Field(description="The best first: published names, or what nodes have.")
    ] = None
    gpuTypePriority: Annotated[_Priority, Field(description=_ACCEPTED)] = DEFAULTS["gpuTypePriority"]
    imageName: _Image | None = None
    interruptible: Annotated[bool, Field(description=_ACCEPTED)] = DEFAULTS["interruptible"]
    locked: Annotated[
        bool, Field(description="A locked pod is neither stopped, restarted, reset nor deleted.")
    ] = DEFAULTS["locked"]
    minCudaVersion: Annotated[Cuda | None, Field(description="Of the node's driver, at least.")] = None
    minDiskBandwidthMBps: Annotated[_Least | None, Field(description=_ACCEPTED)] = None
    minDownloadMbps: Annotated[_Least | None, Field(description=_ACCEPTED)] = None
    minRAMPerGPU: Annotated[int, Field(ge=0, le=INT, description=_ACCEPTED)] = DEFAULTS["minRAMPerGPU"]
    minUploadMbps: Annotated[_Least | None, Field(description=_ACCEPTED)] = None
    minVCPUPerGPU: Annotated[int, Field(ge=0, le=INT, description=_ACCEPTED)] = DEFAULTS["minVCPUPerGPU"]
    name: Name = DEFAULTS["name"]
    networkVolumeId: str | None = None
    ports: Ports = DEFAULTS["ports"]
    supportPublicIp: Annotated[bool | None, Field(description=_ACCEPTED)] = None
    templateId: str | None = None
    vcpuCount: Annotated[int, Field(ge=1, le=INT, description="Of a pod on CPUs.")] = DEFAULTS["vcpuCount"]
    volumeInGb: _Volume = DEFAULTS["volumeInGb"]
    volumeMountPath: MountPath = DEFAULTS["volumeMountPath"]


class PodUpdateInput(Changes):
    """Changes of a pod. What is left out stays. A change of more than name and locked makes the container
    again; the pod's volume stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "my pod", "locked": True}]})

    containerDiskInGb: _Disk = None
    containerRegistryAuthId: str | None = None
    dockerEntrypoint: Command | None = None
    dockerStartCmd: Command | None = None
    env: _PodEnv | None = None
    globalNetworking: Annotated[bool | None, Field(description=_ACCEPTED)] = None
    imageName: _Image | None = None
    locked: bool | None = None
    name: Name | None = None
    ports: Ports | None = None
    volumeInGb: _Volume = None
    volumeMountPath: MountPath | None = None


class Include(BaseModel):
    """Parts that an answer includes besides the pod itself."""

    includeMachine: Annotated[bool, Field(description="The node, in `machine`.")] = False
    includeNetworkVolume: bool = False
    includeSavingsPlans: Annotated[bool, Field(description="There are none here.")] = False
    includeTemplate: bool = False
    includeWorkers: Annotated[bool, Field(description="Workers of endpoints, too.")] = False


class PodQuery(Include):
    """The pods that a list has; what is left out does not restrict the list."""

    computeType: Literal["GPU", "CPU"] | None = None
    cpuFlavorId: list[str] = []
    dataCenterId: list[_Text] = []
    desiredStatus: Annotated[
        Literal["RUNNING", "EXITED", "TERMINATED"] | None,
        Field(description="TERMINATED: deleted ones whose container is still being removed."),
    ] = None
    endpointId: str | None = None
    gpuTypeId: list[_Text] = []
    id: str | None = None
    imageName: Annotated[str | None, Field(max_length=1024)] = None
    name: Annotated[str | None, Field(max_length=191)] = None
    networkVolumeId: str | None = None
    templateId: str | None = None

    @property
    def filter(self) -> PodFilter:
        return PodFilter(
            id=self.id,
            name=self.name,
            image=self.imageName,
            compute=self.computeType,
            desired=self.desiredStatus,
            endpoint=self.endpointId,
            template=self.templateId,
            network_volume=self.networkVolumeId,
            gpu_types=self.gpuTypeId,
            cpu_flavors=self.cpuFlavorId,
            data_centers=self.dataCenterId,
        )


PodId = Annotated[str, id_in_path("pod")]


@router.post("", status_code=201, responses=CREATES, response_model_exclude_unset=True)
async def create_pod(by: By, managed: Managed, body: PodCreateInput) -> PodResponse:
    """Creates a pod, and starts it unless desiredStatus is EXITED."""
    return pod_response(await managed.pods.create(by.account, body.model_dump(exclude_unset=True)))


@router.get("", responses=LISTS, response_model_exclude_unset=True)
async def list_pods(by: By, managed: Managed, query: Annotated[PodQuery, Query()]) -> list[PodResponse]:
    """Lists pods; with includeWorkers, the workers of endpoints behind them."""
    found = await managed.pods.list(by.account, query.filter)
    workers = _workers(managed, by.account, query.filter) if query.includeWorkers else []
    return [*[await _response(managed, one, query) for one in found], *workers]


@router.get("/{podId}", responses=READS, response_model_exclude_unset=True)
async def get_pod(by: By, managed: Managed, podId: PodId, query: Annotated[Include, Query()]) -> PodResponse:
    """Returns a pod; with includeWorkers, the id may be that of an endpoint's worker."""
    workers = _workers(managed, by.account, PodFilter(id=podId)) if query.includeWorkers else []
    try:
        return await _response(managed, await managed.pods.get(by.account, podId), query)
    except NotFound:
        if workers:
            return workers[0]
        raise


def _workers(managed: ManagedResources, account: str, wanted: PodFilter) -> list[PodResponse]:
    """Returns the workers on nodes that match."""
    found = []
    for endpoint in managed.endpoints.list(account):
        for worker in managed.endpoints.workers(endpoint):
            node = managed.cluster.nodes.get(worker.node)
            if node and worker_matches(worker, endpoint, node.facts.get("data_center", ""), wanted):
                found.append(worker_response(managed, worker, endpoint))
    return found


async def _response(managed: ManagedResources, found: PodView, include: Include) -> PodResponse:
    whole = await managed.pods.include(
        found, template=include.includeTemplate, volume=include.includeNetworkVolume
    )
    return pod_response(whole, machine=include.includeMachine)


@router.patch("/{podId}", responses=CHANGES, response_model_exclude_unset=True)
@router.post("/{podId}/update", responses=CHANGES, response_model_exclude_unset=True)
async def update_pod(by: By, managed: Managed, podId: PodId, body: PodUpdateInput) -> PodResponse:
    """Changes a pod, and makes its container again where the change needs that."""
    return pod_response(await managed.pods.update(by.account, podId, body.model_dump(exclude_unset=True)))


@router.post("/{podId}/start", responses=ACTS, response_model_exclude_unset=True)
async def start_pod(by: By, managed: Managed, podId: PodId) -> PodResponse:
    """Starts a pod that is stopped, or whose container has ended."""
    return pod_response(await managed.pods.act(by.account, podId, "start"))


@router.post("/{podId}/stop", responses=ACTS, response_model_exclude_unset=True)
async def stop_pod(by: By, managed: Managed, podId: PodId) -> PodResponse:
    """Stops a pod. Its volume stays, and its devices are free for others."""
    return pod_response(await managed.pods.act(by.account, podId, "stop"))


@router.post("/{podId}/restart", responses=ACTS, response_model_exclude_unset=True)
async def restart_pod(by: By, managed: Managed, podId: PodId) -> PodResponse:
    """Starts the same container again."""
    return pod_response(await managed.pods.act(by.account, podId, "restart"))


@router.post("/{podId}/reset", responses=ACTS, response_model_exclude_unset=True)
async def reset_pod(by: By, managed: Managed, podId: PodId) -> PodResponse:
    """Makes the container again from its image. The pod's volume stays."""
    return pod_response(await managed.pods.act(by.account, podId, "reset"))


@router.delete("/{podId}", **DELETES)
async def delete_pod(by: By, managed: Managed, podId: PodId) -> None:
    """Deletes a pod with its container and its own volume."""
    await managed.pods.act(by.account, podId, "delete")
