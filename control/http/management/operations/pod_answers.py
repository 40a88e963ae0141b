"""Pods as the management API returns them. Unknown fields are left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.shapes import ResponseBody, rfc3339
from stoker.control.http.management.operations.templates import TemplateResponse, template_response
from stoker.control.http.management.operations.volumes import NetworkVolumeResponse, volume_response
from stoker.control.resources import ManagedResources
from stoker.control.resources.endpoint_workers import EndpointWorker
from stoker.control.resources.pods.pod_views import PodView
from stoker.control.rules.pods import Pod
from stoker.control.rules.types import Endpoint
from stoker.control.rules.volumes import GB
from stoker.control.scheduling.cluster_state import NodeState

_NANO = 1_000_000_000


class Gpu(ResponseBody):
    id: str
    count: int
    displayName: str
    securePrice: Annotated[
        float | None, Field(description="Of one, in US dollars an hour; absent where no price is set.")
    ] = None


class Machine(ResponseBody):
    """The node. `costPerHr` and `currentPricePerGpu` are in US dollars."""

    costPerHr: float | None = None
    cpuCount: int | None = None
    cpuTypeId: str | None = None
    currentPricePerGpu: float | None = None
    dataCenterId: str | None = None
    gpuDisplayName: str | None = None
    gpuType: Gpu | None = None
    gpuTypeId: str | None = None
    location: str | None = None
    supportPublicIp: bool | None = None


class SavingsPlan(ResponseBody):
    """There are none here."""

    id: str


PodStatus = Literal["PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"]
WorkerStatus = Literal["IDLE", "INITIALIZING", "UNHEALTHY", "THROTTLED", "RUNNING"]


class PodResponse(ResponseBody):
    model_config = ConfigDict(
        title="Pod",
        json_schema_extra={
            "examples": [
                {
                    "id": "xedezhzb9la3ye",
                    "name": "my pod",
                    "desiredStatus": "RUNNING",
                    "status": "RUNNING",
                    "image": "ghcr.io/example/notebook:1.2",
                    "ports": ["8888/http", "22/tcp"],
                    "portMappings": {"22": 10341},
                    "publicIp": "100.65.0.119",
                    "machineId": "s194cr8pls2z",
                }
            ]
        },
    )

    id: str
    name: str
    desiredStatus: Literal["RUNNING", "EXITED", "TERMINATED"]
    status: Annotated[
        PodStatus | WorkerStatus,
        Field(description="More than desiredStatus says. Of a worker of an endpoint: one of the last five."),
    ]
    reason: Annotated[str, Field(description="Why it has this status.")] = ""
    exitCode: Annotated[int | None, Field(description="Of a container that ended by itself.")] = None
    version: Annotated[int, Field(description="Which making of the container this is, from 1.")] = 1
    image: str
    env: Annotated[dict[str, str], Field(description="As it was requested: secrets are names here.")]
    dockerEntrypoint: list[str]
    dockerStartCmd: list[str]
    ports: list[str]
    portMappings: Annotated[
        dict[str, int] | None,
        Field(description="The node's ports that lead to the container's, by the latter."),
    ]
    publicIp: str | None
    interruptible: bool
    locked: bool
    containerDiskInGb: int | None
    containerRegistryAuthId: str | None = None
    volumeInGb: int | None
    volumeMountPath: str
    volumeEncrypted: bool
    networkVolumeId: str | None = None
    networkVolume: NetworkVolumeResponse | None = None
    templateId: str | None = None
    template: TemplateResponse | None = None
    endpointId: Annotated[str | None, Field(description="Of a worker: its endpoint.")] = None
    aiApiId: Annotated[str | None, Field(description="The same as endpointId.")] = None
    slsVersion: Annotated[int | None, Field(description="Of a worker: which version it runs.")] = None
    isStale: Annotated[
        bool | None, Field(description="Of a worker: it runs an older version than the endpoint's.")
    ] = None
    logs: Annotated[
        list[str] | None,
        Field(description="Of a worker that does not start: the last lines of its last try."),
    ] = None
    serves: Annotated[
        str | None,
        Field(
            description="Of a worker: what it says that it runs, and without which speed-ups, and why.",
            examples=["flux-1-dev (12 B), without block-compile (there is no C compiler)"],
        ),
    ] = None
    coldStartMs: Annotated[
        dict[str, int] | None,
        Field(
            description="Of a worker that is ready: the milliseconds of each stage of its start, in order.",
            examples=[{"weights": 61_800, "process": 240, "import": 40, "read": 9_120, "warm up": 3_410}],
        ),
    ] = None
    consumerUserId: str
    machineId: str | None = None
    machine: Machine | None = None
    gpu: Gpu | None = None
    cpuFlavorId: str | None = None
    vcpuCount: int | None = None
    memoryInGb: int | None = None
    costPerHr: Annotated[
        float | None, Field(description="In US dollars; absent where the operator has set no price.")
    ] = None
    adjustedCostPerHr: float | None = None
    savingsPlans: list[SavingsPlan]
    createdAt: str | None = None
    lastStartedAt: str | None = None
    lastStatusChange: str | None = None


def pod_response(view: PodView, *, machine: bool = False) -> PodResponse:
    pod, body = view.pod, view.pod.body
    fields: dict[str, Any] = {
        "id": pod.id,
        "name": pod.name,
        "desiredStatus": view.state.desired,
        "status": view.state.status,
        "version": pod.version,
        "image": body.image,
        "env": dict(body.env),
        "dockerEntrypoint": list(body.entrypoint),
        "dockerStartCmd": list(body.command),
        "ports": list(body.ports),
        "portMappings": _mappings(pod),
        "publicIp": view.node.facts.get("public_ip") if view.node else None,
        "interruptible": bool(body.asked.get("interruptible", False)),
        "locked": body.locked,
        "containerDiskInGb": body.disk_gb,
        "volumeInGb": body.volume_gb,
        "volumeMountPath": body.volume_path,
        "volumeEncrypted": False,
        "consumerUserId": pod.account,
        "savingsPlans": [],
        "createdAt": rfc3339(pod.created_at),
        "lastStatusChange": _change(pod),
    }
    if machine:
        fields["machine"] = _machine(view)
    return PodResponse(**fields, **_known(view))


def _known(view: PodView) -> dict[str, Any]:
    """Returns the optional fields that this pod has."""
    pod, body = view.pod, view.pod.body
    fields: dict[str, Any] = {
        "reason": view.state.reason,
        "containerRegistryAuthId": body.registry,
        "networkVolumeId": body.network_volume,
        "networkVolume": volume_response(view.volume) if view.volume else None,
        "templateId": body.template,
        "template": template_response(view.template) if view.template else None,
        "machineId": pod.node,
        "gpu": _gpu(pod.gpu_type, body.gpu_count, view.nano_usd),
        "cpuFlavorId": view.cpu_flavor,
        "vcpuCount": body.vcpus if body.compute == "CPU" else _vcpus(view.node),
        "memoryInGb": _memory_gb(view.node),
        "lastStartedAt": None if pod.started_at is None else rfc3339(pod.started_at),
        "costPerHr": _dollars(view.nano_usd),
        "adjustedCostPerHr": _dollars(view.nano_usd),
    }
    known = {name: value for name, value in fields.items() if value not in ("", None)}
    code = pod.now_seen.exit_code
    return known if code is None else known | {"exitCode": code}


def _mappings(pod: Pod) -> dict[str, int] | None:
    """Returns the public port of each port. If it is published for TCP and UDP, the first one counts."""
    found: dict[str, int] = {}
    for port in pod.now_seen.ports:
        found.setdefault(str(port.private), port.public)
    return found or None


def _gpu(gpu_type: str, count: int, nano_usd: int | None) -> Gpu | None:
    """Returns the GPUs of a pod, or None without GPUs. `nano_usd` is the price of all GPUs for an hour."""
    if not gpu_type:
        return None
    each = {} if nano_usd is None else {"securePrice": nano_usd / max(count, 1) / _NANO}
    return Gpu(id=gpu_type, count=count, displayName=_display(gpu_type), **each)


# ---- workers of endpoints, as pods ----------------------------------------------------------------


def env_response(endpoint: Endpoint) -> dict[str, str]:
    """Returns the environment, but none of the configuration file, whose values may be secret."""
    return dict(endpoint.run.env) if endpoint.origin == "api" else {}


def worker_responses(managed: ManagedResources, endpoint: Endpoint) -> list[PodResponse]:
    return [worker_response(managed, one, endpoint) for one in managed.endpoints.workers(endpoint)]


def worker_response(managed: ManagedResources, worker: EndpointWorker, endpoint: Endpoint) -> PodResponse:
    """Returns a worker as a pod. A throttled worker is on no node."""
    run, node = endpoint.run, managed.cluster.nodes.get(worker.node)
    nano_usd = managed.billing.worker_hour(worker, endpoint) if worker.node else None
    exited = worker.status == "EXITED"
    fields: dict[str, Any] = {
        "reason": worker.reason,
        "networkVolumeId": run.volume,
        "templateId": endpoint.template,
        "machineId": worker.node,
        "gpu": _gpu(worker.gpus[0] if worker.gpus else "", len(worker.gpus), nano_usd),
        "vcpuCount": run.needs.vcpus or _vcpus(node),
        "memoryInGb": _memory_gb(node),
        "costPerHr": _dollars(nano_usd),
        "adjustedCostPerHr": _dollars(nano_usd),
        "lastStartedAt": rfc3339(worker.since) if worker.since else None,
        "logs": list(worker.log),
        "serves": worker.serves,
        "coldStartMs": {stage.name: stage.took_ms for stage in worker.cold_start},
    }
    return PodResponse(
        id=worker.id,
        name=endpoint.name,
        endpointId=endpoint.id,
        aiApiId=endpoint.id,
        desiredStatus="EXITED" if exited else "RUNNING",
        status=worker.status,  # type: ignore[arg-type]
        isStale=worker.stale,
        version=worker.version,
        slsVersion=worker.version,
        image=run.image or "",
        env=env_response(endpoint),
        dockerEntrypoint=list(run.entrypoint),
        dockerStartCmd=list(run.command),
        ports=[],
        portMappings=None,
        publicIp=node.facts.get("public_ip") if node else None,
        interruptible=False,
        locked=False,
        containerDiskInGb=None if run.disk_bytes is None else run.disk_bytes // GB,
        volumeInGb=0,
        volumeMountPath="/runpod-volume",
        volumeEncrypted=False,
        consumerUserId=endpoint.account,
        savingsPlans=[],
        **{name: value for name, value in fields.items() if value not in ("", None, [], {})},
    )


def _display(gpu_type: str) -> str:
    return gpu_type.removeprefix("NVIDIA").strip().removeprefix("GeForce").strip()


def _machine(view: PodView) -> Machine | None:
    """Returns the node's hardware, or None while it is not connected."""
    node, pod = view.node, view.pod
    if node is None:
        return None
    each = None if view.nano_usd is None else view.nano_usd / max(len(pod.devices), 1) / _NANO
    cpu = next((device.name for device in node.devices if device.kind == "cpu"), None)
    fields: dict[str, Any] = {
        "costPerHr": _dollars(view.nano_usd),
        "currentPricePerGpu": each if pod.gpu_type else None,
        "cpuCount": _vcpus(node),
        "cpuTypeId": cpu,
        "dataCenterId": node.facts.get("data_center"),
        "location": node.facts.get("label.location"),
        "gpuTypeId": pod.gpu_type or None,
        "gpuDisplayName": _display(pod.gpu_type) or None,
        "gpuType": _gpu(pod.gpu_type, pod.body.gpu_count, view.nano_usd),
        "supportPublicIp": "public_ip" in node.facts,
    }
    return Machine(**{name: value for name, value in fields.items() if value is not None})


def _vcpus(node: NodeState | None) -> int | None:
    """Returns the node's CPUs as a whole number, at least 1: a cgroup may give a node one and a half."""
    vcpus = node.facts.get("vcpus") if node else None
    return None if vcpus is None else max(int(float(vcpus)), 1)


def _memory_gb(node: NodeState | None) -> int | None:
    """Returns the memory of the node: pods have no limit of their own."""
    memory = node.facts.get("memory_bytes") if node else None
    return None if memory is None else int(memory) // GB


def _dollars(nano_usd: int | None) -> float | None:
    return None if nano_usd is None else nano_usd / _NANO


def _change(pod: Pod) -> str:
    """Returns what last happened and when, in the form that RunPod clients expect."""
    at = datetime.fromtimestamp(pod.changed_at, UTC)
    return f"{pod.change}: {at:%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time)"
