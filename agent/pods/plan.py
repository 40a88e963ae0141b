"""What a pod's container is made of, and how each engine is asked for it. Pure.

- A network of its own, and published ports: the engine chooses the host's. "http" is tcp.
- Its own volume is a named one of the engine's; a network volume is a folder of the node.
- It is its owner's machine: the image's own user, the usual rights of a container, programs that gain rights
  (sudo, sshd). It is never privileged and never on the node's network. Process 1 is the image's own.
- What it prints is kept by the engine, the last MiBs of it: no agent has to listen.
- Its environment is what its owner asked for, and where it is. No secret of the platform's.

docker   POST /containers/create of the Engine API
podman   POST /libpod/containers/create of its own, for the reasons of `agent.container_requests`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.agent.container_plan import AGENT_LABEL, NVIDIA_RUNTIME, POD_LABEL, Limits, cdi_name
from stoker.agent.container_requests import SHM_BYTES, r_limits, resource_limits
from stoker.agent.volumes import VOLUME_PATH
from stoker.wire.messages import PodSpec

VERSION_LABEL, RESTARTS_LABEL = "stoker.pod.version", "stoker.pod.restarts"
LOG_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PodPlan:
    """`image` is an id, `devices` are CDI names, `ports` read "8000/tcp". `folder` is the host's, of a
    network volume; without it `volume` names the engine's own, "" for none. None: no limit, or the
    image's own."""

    image: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    limits: Limits
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    volume: str = ""
    folder: str = ""
    volume_path: str = ""
    disk_bytes: int | None = None


def container_name(pod: str) -> str:
    """And that of its own volume."""
    return f"stoker-{pod}"


def own_volume(spec: PodSpec) -> str:
    """The name of the pod's own volume; empty where it has none."""
    wants = spec.volume_path and not spec.volume and spec.volume_bytes != 0
    return container_name(spec.pod) if wants else ""


def volume_labels(agent: str, pod: str) -> dict[str, str]:
    return {AGENT_LABEL: agent, POD_LABEL: pod}


def pod_plan(
    spec: PodSpec, image: str, gpus: tuple[str, ...], folder: str, agent: str, limits: Limits
) -> PodPlan:
    """`gpus` are uuids, `limits` the node's."""
    labels = {VERSION_LABEL: str(spec.version), RESTARTS_LABEL: str(spec.restarts)}
    return PodPlan(
        image,
        _environment(spec, gpus),
        volume_labels(agent, spec.pod) | labels,
        limits.of(spec.limits),
        entrypoint=spec.entrypoint or None,
        command=spec.command or None,
        devices=tuple(map(cdi_name, gpus)),
        ports=tuple(dict.fromkeys(f"{port.private}/{_transport(port.protocol)}" for port in spec.ports)),
        volume=own_volume(spec),
        folder=folder,
        volume_path=spec.volume_path,
        disk_bytes=spec.disk_bytes,
    )


def _transport(protocol: str) -> str:
    return "udp" if protocol == "udp" else "tcp"


def _environment(spec: PodSpec, gpus: tuple[str, ...]) -> dict[str, str]:
    """What the field's images look for, and the same in our own words. What the owner asks for wins, but for
    where it is."""
    told = {"RUNPOD_GPU_COUNT": str(len(gpus))}
    place = {"RUNPOD_POD_ID": spec.pod, "STOKER_POD_ID": spec.pod}
    if spec.volume:
        place["RUNPOD_VOLUME_ID"] = spec.volume
    if spec.volume_path:
        place[VOLUME_PATH] = spec.volume_path
    place[NVIDIA_RUNTIME] = "void"  # GPUs come by CDI, and no others by the engine's default runtime
    if not gpus:
        place["CUDA_VISIBLE_DEVICES"] = ""
    return {**told, **spec.env, **place}


# ---- the requests -------------------------------------------------------------------------------


def docker_pod_request(plan: PodPlan) -> dict[str, Any]:
    request: dict[str, Any] = {
        "Image": plan.image,
        "Env": [f"{name}={value}" for name, value in plan.environment.items()],
        "Labels": dict(plan.labels),
        "ExposedPorts": {port: {} for port in plan.ports},
        "HostConfig": _host_config(plan),
    }
    if plan.entrypoint is not None:
        request["Entrypoint"] = list(plan.entrypoint)
    if plan.command is not None:
        request["Cmd"] = list(plan.command)
    return request


def _host_config(plan: PodPlan) -> dict[str, Any]:
    limits = plan.limits
    config: dict[str, Any] = {
        "NetworkMode": "bridge",
        "PortBindings": {port: [{"HostIp": "", "HostPort": ""}] for port in plan.ports},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": str(LOG_BYTES), "max-file": "2"}},
        "PidsLimit": limits.pids,
        "ShmSize": SHM_BYTES,
        "Ulimits": [{"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile}],
    }
    if limits.memory is not None:
        config |= {"Memory": limits.memory, "MemorySwap": limits.memory}
    if limits.cpus is not None:
        config["NanoCpus"] = round(limits.cpus * 1e9)
    if mount := _docker_mount(plan):
        config["Mounts"] = [mount]
    if plan.devices:
        config["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": list(plan.devices)}]
    if plan.disk_bytes is not None:
        config["StorageOpt"] = {"size": str(plan.disk_bytes)}
    return config


def _docker_mount(plan: PodPlan) -> dict[str, Any] | None:
    if plan.folder:
        return {"Type": "bind", "Source": plan.folder, "Target": plan.volume_path}
    return {"Type": "volume", "Source": plan.volume, "Target": plan.volume_path} if plan.volume else None


def podman_pod_request(plan: PodPlan, name: str) -> dict[str, Any]:
    request: dict[str, Any] = {
        "name": name,
        "image": plan.image,
        "env": dict(plan.environment),
        "labels": dict(plan.labels),
        "netns": {"nsmode": "bridge"},
        "portmappings": [_podman_port(port) for port in plan.ports],
        "log_configuration": {"driver": "k8s-file", "size": LOG_BYTES},
        "shm_size": SHM_BYTES,
        "r_limits": r_limits(plan.limits),
        "resource_limits": resource_limits(plan.limits),
        "devices": [{"path": device} for device in plan.devices],
    }
    if plan.folder:
        options = ["rbind", "rw"]
        mount = {
            "type": "bind",
            "source": plan.folder,
            "destination": plan.volume_path,
            "options": options,
        }
        request["mounts"] = [mount]
    elif plan.volume:
        request["volumes"] = [{"Name": plan.volume, "Dest": plan.volume_path}]
    if plan.disk_bytes is not None:
        request["storage_opts"] = {"size": str(plan.disk_bytes)}
    given = {"entrypoint": plan.entrypoint, "command": plan.command}
    return request | {key: list(value) for key, value in given.items() if value is not None}


def _podman_port(port: str) -> dict[str, Any]:
    number, transport = port.split("/")
    return {"container_port": int(number), "host_port": 0, "protocol": transport}
