"""/v2/pods: containers that callers order themselves, and what may be done with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AfterValidator, ConfigDict, Field
from starlette.responses import Response

from stoker.control.errors import BadRequest, Conflict, Forbidden
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import Cuda, Port
from stoker.control.http.management.operations.templates import MountPath
from stoker.control.http.management.v2.account import ssh_env
from stoker.control.http.management.v2.container import changed_mount, container_fields, mount_fields
from stoker.control.http.management.v2.pod_records import PodAction, PodList, PodRecord, actions, pod_record
from stoker.control.http.management.v2.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Args,
    Body,
    Disk,
    Env,
    Image,
    Name,
    Page,
    PersistentMount,
    Registry,
    Text,
    Unquoted,
    id_in_path,
    paged,
    refusals,
)
from stoker.control.http.management.v2.templates import template_fields
from stoker.control.resources.endpoint_fields import INT
from stoker.control.resources.pods.pod_fields import ENV_MOST
from stoker.control.resources.pods.pod_views import PodFilter, PodView
from stoker.control.rules.pods import Action

router = APIRouter(prefix="/pods", tags=["pods"])

_PodEnv = Annotated[Env, Field(max_length=ENV_MOST)]
_ACCEPTED = "Accepted: it decides nothing here."
Count = Annotated[int, Field(ge=1, le=INT)]


def _power_of_two(count: int) -> int:
    if count & (count - 1):
        raise ValueError(f"vcpuCount must be a power of two; got {count}")
    return count


Vcpus = Annotated[int, Field(ge=2, le=512, description="A power of two."), AfterValidator(_power_of_two)]
Flavor = Literal["cpu3c", "cpu3g", "cpu3m", "cpu5c", "cpu5g", "cpu5m"]


class Cpu(Body):
    id: Flavor
    vcpuCount: Vcpus


class CudaBounds(Body):
    allowedCudaVersions: list[Cuda] = []
    minCudaVersion: Annotated[str, Field(pattern=r"^([0-9]{1,3}\.[0-9]{1,3})?$", examples=["12.8"])] = ""


class Gpu(CudaBounds):
    id: Annotated[
        Text, Field(min_length=1, description="A name of /v2/catalog/gpus.", examples=["NVIDIA A40"])
    ]
    count: Count = 1
    minRamPerGpu: Annotated[int, Field(ge=1, le=INT, description=_ACCEPTED)] = 8
    minVcpuCountPerGpu: Annotated[int, Field(ge=1, le=INT, description=_ACCEPTED)] = 2


class NetworkMount(Body):
    volumeId: str
    path: MountPath


class Mounts(Body):
    """A mount: `persistent` or `network`, which holds one."""

    persistent: PersistentMount | None = None
    network: Annotated[list[NetworkMount] | None, Field(min_length=0)] = None


class _Container(Body):
    args: Args = ""
    disk: Disk = 50
    env: _PodEnv = {}
    globalNetworking: Annotated[bool, Field(description=_ACCEPTED)] = False
    mounts: Mounts = Mounts()
    ports: list[Port] = []
    registry: Registry = None
    templateId: Annotated[str, Field(description="Its fields are copied once; those of the body win.")] = ""


class PodCreate(_Container):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "box",
                    "image": "ghcr.io/example/notebook:1.2",
                    "gpu": {"id": "NVIDIA A40", "count": 1},
                    "disk": 20,
                    "ports": ["8888/http", "22/tcp"],
                    "env": {"MODE": "fast"},
                    "mounts": {"persistent": {"size": 20, "path": "/workspace"}},
                    "startSsh": True,
                }
            ]
        }
    )

    name: Name
    image: Annotated[Image | None, Field(description="It, or a templateId, is needed.")] = None
    gpu: Gpu | None = None
    cpu: Cpu | None = None
    cloud: Annotated[Literal["SECURE", "COMMUNITY"], Field(description=_ACCEPTED)] = "SECURE"
    dataCenterIds: Annotated[
        list[Text], Field(description="The pod runs in one of them; empty: anywhere.")
    ] = []
    startSsh: Annotated[bool, Field(description="The account's SSH keys are in its variable PUBLIC_KEY.")] = (
        False
    )
    startJupyter: Annotated[bool, Field(description=_ACCEPTED)] = False


class PodChange(_Container):
    """Changes of a pod. What is left out stays. A change of more than name and locked remakes the container;
    a persistent mount keeps what it has."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "box", "locked": True}]})

    name: Name = ""
    image: Image = ""
    locked: Annotated[bool, Field(description="A locked pod is neither stopped, restarted nor deleted.")] = (
        False
    )


class ActionBody(Body):
    model_config = ConfigDict(json_schema_extra={"examples": [{"action": "stop"}]})

    action: PodAction


PodId = Annotated[str, id_in_path("pod"), Unquoted]
_ACTIONS: dict[PodAction, Action] = {
    "start": "start",
    "stop": "stop",
    "restart": "restart",
    "terminate": "delete",
}


def wanted_pod(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a new pod's fields, as the resources take them. Raises BadRequest."""
    if (given.get("gpu") is None) == (given.get("cpu") is None):
        raise BadRequest(
            "a pod has either gpu or cpu; got " + ("neither" if given.get("gpu") is None else "both")
        )
    fields = {"name": given["name"], **container_fields(given)}
    for name in ("dataCenterIds", "globalNetworking", "startJupyter", "startSsh", "templateId"):
        if given.get(name):
            fields[name] = given[name]
    if "cloud" in given:
        fields["cloudType"] = given["cloud"]
    if "mounts" in given or not given.get("templateId"):
        fields |= mount_fields(given.get("mounts") or {})
    if not given.get("templateId"):
        fields.setdefault("ports", [])
    return fields | (_gpu(given["gpu"]) if given.get("gpu") else _cpu(given["cpu"], fields))


def check_cuda(gpu: Mapping[str, Any]) -> None:
    """Raises BadRequest if the versions of CUDA are bounded twice."""
    if gpu.get("allowedCudaVersions") and gpu.get("minCudaVersion"):
        raise BadRequest("gpu has either allowedCudaVersions or minCudaVersion; got both")


def _gpu(gpu: Mapping[str, Any]) -> dict[str, Any]:
    check_cuda(gpu)
    fields = {"computeType": "GPU", "gpuTypeIds": [gpu["id"]], "gpuCount": gpu.get("count", 1)}
    names = {
        "allowedCudaVersions": "allowedCudaVersions",
        "minCudaVersion": "minCudaVersion",
        "minRamPerGpu": "minRAMPerGPU",
        "minVcpuCountPerGpu": "minVCPUPerGPU",
    }
    return fields | {theirs: gpu[name] for name, theirs in names.items() if gpu.get(name)}


def _cpu(cpu: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    if fields.get("volumeInGb"):
        raise BadRequest(
            "mounts.persistent is for pods with a gpu: a pod on a cpu has mounts.network, or none"
        )
    return {"computeType": "CPU", "cpuFlavorIds": [cpu["id"]], "vcpuCount": cpu["vcpuCount"]}


@router.get("", responses=LISTS, response_model_exclude_unset=True)
async def list_pods(by: By, managed: Managed, query: Page) -> PodList:
    """Lists pods, the oldest first."""
    found = await managed.pods.list(by.account, PodFilter())
    part, pagination = paged(found, lambda one: one.pod.id, query)
    now = managed.clock()
    return PodList(pods=[pod_record(one, now) for one in part], pagination=pagination)


@router.post("", **CREATES, response_model_exclude_unset=True)
async def create_pod(by: By, managed: Managed, body: PodCreate) -> PodRecord:
    """Creates a pod, and starts it."""
    fields = wanted_pod(body.model_dump(exclude_unset=True))
    if body.templateId:
        await template_fields(managed, by.account, body.templateId, serverless=False)
    if body.startSsh:
        fields["env"] = {**ssh_env(managed, by.account), **fields.get("env", {})}
    return pod_record(await managed.pods.create(by.account, fields), managed.clock())


@router.get("/{podId}", responses=READS, response_model_exclude_unset=True)
async def get_pod(by: By, managed: Managed, podId: PodId) -> PodRecord:
    """Returns a pod."""
    return pod_record(await managed.pods.get(by.account, podId), managed.clock())


@router.patch("/{podId}", responses=CHANGES | refusals(409), response_model_exclude_unset=True)
async def update_pod(by: By, managed: Managed, podId: PodId, body: PodChange) -> PodRecord:
    """Changes a pod, and makes its container again where the change needs that."""
    given, before = body.model_dump(exclude_unset=True), await managed.pods.get(by.account, podId)
    copied: dict[str, Any] = {}
    if template := given.get("templateId"):
        of = await template_fields(managed, by.account, template, serverless=False)
        copied = {name: of[name] for name in _COPIED if name in of} | {"templateId": template}
    fields = container_fields(given)
    if "env" in given or copied:
        fields["env"] = {**copied.pop("env", {}), **given.get("env", {})}
    if "mounts" in given:
        had = pod_record(before, 0.0).mounts
        fields |= changed_mount(had, given["mounts"])
    fields |= {name: given[name] for name in ("globalNetworking", "locked", "name") if name in given}
    return pod_record(await managed.pods.update(by.account, podId, copied | fields), managed.clock())


_COPIED = (
    "containerDiskInGb",
    "containerRegistryAuthId",
    "dockerEntrypoint",
    "dockerStartCmd",
    "env",
    "imageName",
    "ports",
)
"""What a template's change of a pod copies: not its volume, whose kind and size are the pod's own."""


@router.post(
    "/{podId}/action",
    responses=refusals(400, 404, 409, 422) | {204: {"description": "Terminated."}},
    response_model_exclude_unset=True,
    response_model=PodRecord,
)
async def act_on_pod(by: By, managed: Managed, podId: PodId, body: ActionBody) -> PodRecord | Response:
    """Starts, stops, restarts or terminates a pod. `actions` of its record lists what may be done now."""
    if by.access.scope == "pod" and body.action != "stop":
        raise Forbidden(f"this key is of pod {by.access.pod}: it may read and stop that, no more")
    _check_allowed(await managed.pods.get(by.account, podId), body.action)
    after = await managed.pods.act(by.account, podId, _ACTIONS[body.action])
    return Response(status_code=204) if body.action == "terminate" else pod_record(after, managed.clock())


@router.delete("/{podId}", **(DELETES | {"responses": refusals(404, 409)}))
async def delete_pod(by: By, managed: Managed, podId: PodId) -> None:
    """Terminates a pod, with its container and its own volume."""
    _check_allowed(await managed.pods.get(by.account, podId), "terminate")
    await managed.pods.act(by.account, podId, "delete")


def _check_allowed(found: PodView, action: PodAction) -> None:
    """Raises Conflict if the pod's state does not allow this."""
    may, pod = actions(found), found.pod
    if action in may or (action == "terminate" and found.state.status == "TERMINATED"):
        return
    if pod.body.locked:
        raise Conflict(f"pod {pod.id} is locked: set locked to false before you {action} it")
    raise Conflict(
        f"pod {pod.id} is {found.state.status}; it may {', '.join(may) or 'do nothing'}, not {action}"
    )
