"""Pods as management v2 answers them.

What nobody has measured here, such as the load of a GPU, is null. A pod may be stopped in more states than in
the field: one whose container ended by itself, or whose node is away, keeps its devices until it is stopped.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from stoker.control.http.management.operations.shapes import rfc3339
from stoker.control.http.management.v2.container import container_record, mounts_record
from stoker.control.http.management.v2.shapes import Pagination, Record
from stoker.control.resources.pods.pod_views import PodView
from stoker.control.rules.billing import NANO
from stoker.control.rules.pods import Pod
from stoker.control.rules.volumes import GB

PodAction = Literal["start", "stop", "restart", "terminate"]

_ALLOWED: dict[str, tuple[PodAction, ...]] = {
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
    "TERMINATED": (),
}


class Container(Record):
    """The fields that all containers have."""

    image: str
    args: str
    disk: int | None
    ports: list[str]
    env: dict[str, str]
    registry: str | None


class PodGpu(Record):
    id: Annotated[str | None, Field(description="Null: any, and none was chosen yet.")]
    count: int
    allowedCudaVersions: list[str]
    minCudaVersion: str | None
    minRamPerGpu: int | None
    minVcpuCountPerGpu: int | None
    memory: Annotated[int | None, Field(description="Of one GPU, in GB.")]
    vcpuCount: Annotated[int | None, Field(description="Of the node, which pods share.")]


class PodCpu(Record):
    id: str | None
    vcpuCount: int | None


class SshLogin(Record):
    host: str
    port: int
    username: str
    command: str


class Ssh(Record):
    proxy: None
    direct: Annotated[SshLogin | None, Field(description="Where port 22 of a running pod is reached.")]


class RuntimePort(Record):
    private: int
    public: int | None
    type: str
    ip: str | None


class Load(Record):
    util: float | None


class Runtime(Record):
    """A running container. Loads are not measured here."""

    uptime: Annotated[int, Field(description="Seconds.")]
    gpus: list[dict[str, float]]
    cpu: Load
    memory: Load
    ports: list[RuntimePort]


class GlobalNetworking(Record):
    enabled: bool
    ip: str | None
    internalDns: str | None


class PodTemplate(Record):
    id: str


class PodRecord(Container):
    id: str
    name: str
    status: Literal["PROVISIONING", "STARTING", "RUNNING", "EXITED", "ERROR", "TERMINATED"]
    reason: Annotated[str, Field(description="Why it has this status.")]
    actions: list[PodAction]
    mounts: dict[str, Any]
    cloud: Literal["SECURE", "COMMUNITY"]
    dataCenterId: str | None
    cudaVersion: str | None
    gpu: PodGpu | None = None
    cpu: PodCpu | None = None
    ssh: Ssh
    template: PodTemplate | None
    cost: Annotated[float, Field(description="In US dollars an hour; 0 while it does not run.")]
    locked: bool
    runtime: Runtime | None
    globalNetworking: GlobalNetworking
    createdAt: str
    startedAt: str | None


class PodList(Record):
    pods: list[PodRecord]
    pagination: Pagination


def actions(found: PodView) -> list[PodAction]:
    """Returns what may be done with a pod now; a locked one may only be started."""
    pod, allowed = found.pod, list(_ALLOWED[found.state.status])
    if found.state.status in ("EXITED", "ERROR") and pod.wish == "RUNNING":
        allowed.insert(1, "stop")
    if found.state.status == "RUNNING" and pod.wish == "EXITED":  # it is being stopped
        allowed = ["start", "stop", "terminate"]
    return [one for one in allowed if one == "start" or not pod.body.locked]


def pod_record(found: PodView, now: float) -> PodRecord:
    pod, body, node = found.pod, found.pod.body, found.node
    running = found.state.status == "RUNNING"
    facts = node.facts if node else {}
    ports = _ports(found)
    return PodRecord(
        **container_record(
            image=body.image,
            command=body.command,
            disk_gb=body.disk_gb,
            ports=body.ports,
            env=body.env,
            registry=body.registry,
        ),
        id=pod.id,
        name=pod.name,
        status=found.state.status,  # type: ignore[arg-type]
        reason=found.state.reason,
        actions=actions(found),
        mounts=mounts_record(body.volume_gb, body.volume_path, body.network_volume),
        cloud="COMMUNITY" if body.asked.get("cloudType") == "COMMUNITY" else "SECURE",
        dataCenterId=found.data_center or None,
        cudaVersion=facts.get("cuda") or None,
        ssh=Ssh(proxy=None, direct=_login(ports)),
        template=PodTemplate(id=body.template) if body.template else None,
        cost=(found.nano_usd or 0) / NANO if running else 0.0,
        locked=body.locked,
        runtime=_runtime(pod, ports, now) if running else None,
        globalNetworking=GlobalNetworking(enabled=body.global_networking, ip=None, internalDns=None),
        createdAt=rfc3339(pod.created_at),
        startedAt=None if pod.started_at is None else rfc3339(pod.started_at),
        **_device(found),
    )


def _device(found: PodView) -> dict[str, Any]:
    pod, body = found.pod, found.pod.body
    if body.compute == "CPU":
        return {"cpu": PodCpu(id=found.cpu_flavor or None, vcpuCount=body.vcpus)}
    here = found.node.devices if found.node else ()
    memory = next((one.memory_total for one in here if one.uuid in pod.devices), None)
    vcpus = found.node.facts.get("vcpus") if found.node else None
    gpu = PodGpu(
        id=pod.gpu_type or next(iter(body.gpu_types), None),
        count=body.gpu_count,
        allowedCudaVersions=list(body.cuda_versions),
        minCudaVersion=body.min_cuda or None,
        minRamPerGpu=body.asked.get("minRAMPerGPU"),
        minVcpuCountPerGpu=body.asked.get("minVCPUPerGPU"),
        memory=None if memory is None else memory // GB,
        vcpuCount=None if vcpus is None else max(int(float(vcpus)), 1),
    )
    return {"gpu": gpu}


def _ports(found: PodView) -> list[RuntimePort]:
    pod, ip = found.pod, found.node.facts.get("public_ip") if found.node else None
    kinds = {port.partition("/")[0]: port.partition("/")[2] for port in pod.body.ports}
    return [
        RuntimePort(
            private=one.private, public=one.public, type=kinds.get(str(one.private), one.protocol), ip=ip
        )
        for one in pod.now_seen.ports
    ]


def _login(ports: list[RuntimePort]) -> SshLogin | None:
    for port in ports:
        if port.private == 22 and port.ip and port.public:
            command = f"ssh root@{port.ip} -p {port.public}"
            return SshLogin(host=port.ip, port=port.public, username="root", command=command)
    return None


def _runtime(pod: Pod, ports: list[RuntimePort], now: float) -> Runtime:
    began = now if pod.started_at is None else pod.started_at
    unknown = Load(util=None)
    return Runtime(uptime=max(int(now - began), 0), gpus=[], cpu=unknown, memory=unknown, ports=ports)
