"""Bodies of /v2/serverless, and what they mean as the fields that endpoints have at /v1.

scaling {QUEUE_DELAY, queueDelay}    scalerType, scalerValue in whole seconds, and queueDelay itself
gpu {pools, excludedTypes}           gpuTypeIds, see `gpu_pools`
cpu [{id, vcpuCount}]                instanceIds
flashboot PRIORITY_FLASHBOOT         flashboot, priorityFlashboot
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from stoker.control.errors import BadRequest, Unprocessable
from stoker.control.http.management.operations.endpoints import Count, ExecutionTimeout, GpuCount
from stoker.control.http.management.operations.shapes import Port
from stoker.control.http.management.v2.gpu_pools import types_of
from stoker.control.http.management.v2.pods import CudaBounds, Vcpus, check_cuda
from stoker.control.http.management.v2.shapes import (
    Args,
    Body,
    Disk,
    Env,
    Image,
    Name,
    Registry,
    Text,
)
from stoker.control.resources.endpoint_fields import FLAVOR_GB, INT
from stoker.control.rules.types import LOAD_BALANCER

FlashBoot = Literal["OFF", "FLASHBOOT", "PRIORITY_FLASHBOOT"]
EndpointType = Literal["QUEUE", "LOAD_BALANCER"]


class QueueDelay(Body):
    """More workers start when a job has waited for longer. A part of a second is rounded up."""

    type: Literal["QUEUE_DELAY"]
    queueDelay: Annotated[float, Field(ge=0.5, le=INT, description="Seconds.")]


class RequestCount(Body):
    """A worker for this many requests."""

    type: Literal["REQUEST_COUNT"]
    requestCount: Annotated[int, Field(ge=1, le=INT)]


Scaling = Annotated[QueueDelay | RequestCount, Field(discriminator="type")]


class EndpointGpu(CudaBounds):
    """GPUs of workers. `allowedCudaVersions: []` and `minCudaVersion: ""` ask for none in particular."""

    pools: Annotated[
        list[Text], Field(min_length=1, description="In order of priority.", examples=[["ADA_24"]])
    ]
    count: GpuCount = 1
    excludedTypes: Annotated[list[Text], Field(description="Types of these pools that are not used.")] = []


class ChangedGpu(EndpointGpu):
    pools: Annotated[list[Text], Field(min_length=1)] = []


class EndpointCpu(Body):
    id: Literal["cpu3c", "cpu3g", "cpu5c", "cpu5g"]
    vcpuCount: Vcpus


class WorkersBody(Body):
    min: Count = 0
    max: Count = 3
    idleTimeout: Annotated[
        int, Field(ge=1, le=3600, description="Seconds. Not for a queue that is scaled by REQUEST_COUNT.")
    ] = 5


class _Endpoint(Body):
    args: Args = ""
    disk: Disk = 50
    env: Env = {}
    ports: list[Port] = []
    registry: Registry = None
    templateId: Annotated[
        str, Field(description="Its fields are copied once; those of the body win, and env is merged.")
    ] = ""
    cpu: Annotated[list[EndpointCpu], Field(min_length=1)] = []
    workers: WorkersBody = WorkersBody()
    dataCenterIds: Annotated[list[Text], Field(description="Empty, or all: anywhere.")] = []
    networkVolumes: Annotated[list[Text], Field(description="At most one.")] = []
    timeout: ExecutionTimeout = 0
    flashboot: Annotated[FlashBoot, Field(description="Kept; workers start fast anyway.")] = "OFF"


class EndpointCreate(_Endpoint):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "my endpoint",
                    "type": "QUEUE",
                    "image": "ghcr.io/example/worker:1.2",
                    "gpu": {"pools": ["AMPERE_48", "ADA_24"], "count": 1},
                    "workers": {"min": 0, "max": 3, "idleTimeout": 5},
                    "scaling": {"type": "QUEUE_DELAY", "queueDelay": 4},
                    "env": {"MODE": "fast"},
                }
            ]
        }
    )

    name: Name
    type: EndpointType
    scaling: Scaling
    image: Annotated[Image | None, Field(description="It, or a templateId, is needed.")] = None
    gpu: EndpointGpu | None = None


class EndpointChange(_Endpoint):
    """Changes of an endpoint. What is left out stays. A change of more than name, scaling, workers, timeout
    and flashboot makes a new version, which is rolled out."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"workers": {"max": 5}, "image": "ghcr.io/example/worker:1.3"}]}
    )

    name: Name = ""
    scaling: Scaling | None = None
    image: Image = ""
    gpu: ChangedGpu | None = None


def endpoint_fields(given: Mapping[str, Any], known_types: Collection[str]) -> dict[str, Any]:
    """Returns the fields of /v1 of those that a body has, but those of the container. Raises BadRequest."""
    fields: dict[str, Any] = {
        name: given[name] for name in ("name", "type", "dataCenterIds") if name in given
    }
    if given.get("scaling"):
        fields |= _scaling(given["scaling"])
    names = {"min": "workersMin", "max": "workersMax", "idleTimeout": "idleTimeout"}
    fields |= {names[name]: value for name, value in given.get("workers", {}).items()}
    if given.get("gpu") and given.get("cpu"):
        raise BadRequest("an endpoint has either gpu or cpu; got both")
    if given.get("gpu"):
        fields |= _gpu(given["gpu"], known_types)
    if given.get("cpu"):
        fields |= {"instanceIds": [_instance(one) for one in given["cpu"]]}
    if "networkVolumes" in given:
        fields["networkVolumeIds"] = given["networkVolumes"]
    if "timeout" in given:
        fields["executionTimeoutMs"] = given["timeout"]
    if "flashboot" in given:
        fields["flashboot"] = given["flashboot"] != "OFF"
        fields["priorityFlashboot"] = given["flashboot"] == "PRIORITY_FLASHBOOT"
    return fields


def check_together(given: Mapping[str, Any], kind: str, scaler: str) -> None:
    """Checks a body against the type (`kind`) and the scaler that the endpoint has with it. Raises BadRequest
    and Unprocessable."""
    if kind == LOAD_BALANCER and scaler == "QUEUE_DELAY":
        raise BadRequest("scaling.type of a LOAD_BALANCER must be REQUEST_COUNT; got QUEUE_DELAY")
    if kind != LOAD_BALANCER and scaler == "REQUEST_COUNT" and "idleTimeout" in given.get("workers", {}):
        raise Unprocessable("workers.idleTimeout is not for a queue that is scaled by REQUEST_COUNT")


def _scaling(scaling: Mapping[str, Any]) -> dict[str, Any]:
    if scaling["type"] == "REQUEST_COUNT":
        return {"scalerType": "REQUEST_COUNT", "scalerValue": scaling["requestCount"]}
    delay = scaling["queueDelay"]
    fields = {"scalerType": "QUEUE_DELAY", "scalerValue": ceil(delay)}
    return fields if delay == ceil(delay) else fields | {"queueDelay": delay}


def _gpu(gpu: Mapping[str, Any], known_types: Collection[str]) -> dict[str, Any]:
    check_cuda(gpu)
    fields: dict[str, Any] = {}
    if "pools" in gpu:
        fields["gpuTypeIds"] = types_of(gpu["pools"], gpu.get("excludedTypes", ()), known_types)
    elif "excludedTypes" in gpu:
        raise BadRequest("gpu.excludedTypes needs gpu.pools beside it")
    if "count" in gpu:
        fields["gpuCount"] = gpu["count"]
    if "allowedCudaVersions" in gpu:
        fields["allowedCudaVersions"] = gpu["allowedCudaVersions"]
    if "minCudaVersion" in gpu:
        fields["minCudaVersion"] = gpu["minCudaVersion"] or None
    return fields


def _instance(cpu: Mapping[str, Any]) -> str:
    count = cpu["vcpuCount"]
    return f"{cpu['id']}-{count}-{count * FLAVOR_GB[cpu['id'][-1]]}"
