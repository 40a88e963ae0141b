"""What the management API tells of a pod. What is unknown is left out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from stoker.control.api.management.shapes import Told
from stoker.control.api.management.templates import TemplateTold, template_told
from stoker.control.api.management.volumes import NetworkVolumeTold, volume_told
from stoker.control.floor import FloorNode
from stoker.control.management.pod_views import PodView
from stoker.control.pod import Pod
from stoker.control.volume import GB

_NANO = 1_000_000_000


class Gpu(Told):
    id: str
    count: int
    displayName: str


class Machine(Told):
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


class SavingsPlan(Told):
    """There are none here."""

    id: str


class PodTold(Told):
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
        Literal["PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"],
        Field(description="More than desiredStatus says."),
    ]
    reason: Annotated[str, Field(description="Why it has this status, in a sentence.")] = ""
    exitCode: Annotated[int | None, Field(description="Of a container that ended by itself.")] = None
    version: Annotated[int, Field(description="Which making of the container this is, from 1.")] = 1
    image: str
    env: Annotated[dict[str, str], Field(description="As it was given: secrets are names here.")]
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
    networkVolume: NetworkVolumeTold | None = None
    templateId: str | None = None
    template: TemplateTold | None = None
    endpointId: str | None = None
    consumerUserId: str
    machineId: str | None = None
    machine: Machine | None = None
    gpu: Gpu | None = None
    cpuFlavorId: str | None = None
    vcpuCount: float | None = None
    memoryInGb: float | None = None
    costPerHr: Annotated[
        str | None, Field(description="In US dollars; absent where the operator has set no price.")
    ] = None
    adjustedCostPerHr: float | None = None
    savingsPlans: list[SavingsPlan]
    createdAt: str | None = None
    lastStartedAt: str | None = None
    lastStatusChange: str | None = None


def pod_told(view: PodView, *, machine: bool = False) -> PodTold:
    pod, body = view.pod, view.pod.body
    fields: dict[str, Any] = {
        "id": pod.id,
        "name": pod.name,
        "desiredStatus": view.reading.desired,
        "status": view.reading.status,
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
    return PodTold(**fields, **_known(view))


def _known(view: PodView) -> dict[str, Any]:
    """What a pod may have, and this one has."""
    pod, body = view.pod, view.pod.body
    fields: dict[str, Any] = {
        "reason": view.reading.reason,
        "containerRegistryAuthId": body.registry,
        "networkVolumeId": body.network_volume,
        "networkVolume": volume_told(view.volume) if view.volume else None,
        "templateId": body.template,
        "template": template_told(view.template) if view.template else None,
        "machineId": pod.node,
        "gpu": _gpu(pod.gpu_type, body.gpu_count),
        "cpuFlavorId": view.cpu_flavor,
        "vcpuCount": body.vcpus if body.compute == "CPU" else _vcpus(view.node),
        "memoryInGb": _memory_gb(view.node),
        "lastStartedAt": rfc3339(pod.started_at),
        "costPerHr": None if view.nano_usd is None else _dollars(view.nano_usd),
        "adjustedCostPerHr": None if view.nano_usd is None else view.nano_usd / _NANO,
    }
    known = {name: value for name, value in fields.items() if value not in ("", None)}
    code = pod.now_seen.exit_code
    return known if code is None else known | {"exitCode": code}


def _mappings(pod: Pod) -> dict[str, int] | None:
    """A port that is published for TCP and UDP is told for the first of them."""
    found: dict[str, int] = {}
    for port in pod.now_seen.ports:
        found.setdefault(str(port.private), port.public)
    return found or None


def _gpu(gpu_type: str, count: int) -> Gpu | None:
    return Gpu(id=gpu_type, count=count, displayName=_display(gpu_type)) if gpu_type else None


def _display(gpu_type: str) -> str:
    return gpu_type.removeprefix("NVIDIA").strip().removeprefix("GeForce").strip()


def _machine(view: PodView) -> Machine | None:
    """None while the node is not connected: what it is made of is known from itself."""
    node, pod = view.node, view.pod
    if node is None:
        return None
    each = None if view.nano_usd is None else view.nano_usd / max(len(pod.devices), 1) / _NANO
    cpu = next((device.name for device in node.devices if device.kind == "cpu"), None)
    fields: dict[str, Any] = {
        "costPerHr": None if view.nano_usd is None else view.nano_usd / _NANO,
        "currentPricePerGpu": each if pod.gpu_type else None,
        "cpuCount": None if (vcpus := _vcpus(node)) is None else int(vcpus),
        "cpuTypeId": cpu,
        "dataCenterId": node.facts.get("data_center"),
        "location": node.facts.get("label.location"),
        "gpuTypeId": pod.gpu_type or None,
        "gpuDisplayName": _display(pod.gpu_type) or None,
        "gpuType": _gpu(pod.gpu_type, pod.body.gpu_count),
        "supportPublicIp": "public_ip" in node.facts,
    }
    return Machine(**{name: value for name, value in fields.items() if value is not None})


def _vcpus(node: FloorNode | None) -> float | None:
    told = node.facts.get("vcpus") if node else None
    return None if told is None else float(told)


def _memory_gb(node: FloorNode | None) -> int | None:
    """All that its node has: pods are given no limit of their own."""
    told = node.facts.get("memory_bytes") if node else None
    return None if told is None else int(told) // GB


def _dollars(nano_usd: int) -> str:
    """ "0.74": exact, with two digits at least."""
    whole, rest = divmod(nano_usd, _NANO)
    digits = f"{rest:09d}".rstrip("0").ljust(2, "0")
    return f"{whole}.{digits}"


def rfc3339(at: float | None) -> str | None:
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _change(pod: Pod) -> str:
    """What last happened and when, as the field's clients read it."""
    at = datetime.fromtimestamp(pod.changed_at, UTC)
    return f"{pod.change}: {at:%a %b %d %Y %H:%M:%S} GMT+0000 (Coordinated Universal Time)"
