"""Plans a pod's container, and builds each engine's request to create it. Pure.

- It has a network of its own and publishes ports; "http" means tcp. The host's ports are chosen first,
  because its environment contains them. A requested port above 65535, such as 70000, cannot be listened at:
  the pod gets one port that has the same number inside and outside, under the name 70000.
- Its own volume is a named volume of the engine; a network volume is a folder of the node.
- It runs as the image's user, with the usual rights of a container, and programs may gain rights (sudo,
  sshd). It is never privileged and never on the node's network. Process 1 is the image's own.
- The engine stores the last MiBs of its output, so no agent has to read it as it runs.
- Its environment holds what its owner set and facts about the pod, but no secret of the platform.

docker   POST /containers/create of the Engine API
podman   POST /libpod/containers/create of its own API, for the reasons in `workers.containers.requests`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from stoker.agent.host.storage.volumes import VOLUME_PATH
from stoker.agent.workers.containers.plan import (
    AGENT_LABEL,
    NVIDIA_RUNTIME,
    POD_LABEL,
    ContainerLimits,
    cdi_name,
)
from stoker.agent.workers.containers.requests import SHM_BYTES, r_limits, resource_limits
from stoker.wire.messages import PodSpec

VERSION_LABEL, RESTARTS_LABEL = "stoker.pod.version", "stoker.pod.restarts"
PORTS_LABEL = "stoker.pod.ports"
LOG_BYTES = 4 << 20
PORT_MOST = 65_535


class Published(Struct, frozen=True):
    """A published port. Its owner requested the number `requested`; the program listens at `private`, and is
    reached at `public` of the host."""

    requested: int
    private: int
    public: int
    transport: str

    @property
    def target(self) -> str:
        return f"{self.private}/{self.transport}"


class PodPlan(Struct, frozen=True):
    """A pod's container, independent of the engine.

    image    the image's id
    devices  CDI names
    folder   the host's folder of a network volume; "" if there is none
    volume   the engine's volume that is used if there is no `folder`; "" if there is none

    None means no limit, or the image's own value.
    """

    image: str
    hostname: str
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    limits: ContainerLimits
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    devices: tuple[str, ...] = ()
    ports: tuple[Published, ...] = ()
    volume: str = ""
    folder: str = ""
    volume_path: str = ""
    disk_bytes: int | None = None


def container_name(pod: str) -> str:
    """Returns the name of the pod's container and of its own volume."""
    return f"stoker-{pod}"


def own_volume(spec: PodSpec) -> str:
    """Returns the name of the pod's own volume, or "" if it has none."""
    wants = spec.volume_path and not spec.volume and spec.volume_bytes != 0
    return container_name(spec.pod) if wants else ""


def volume_labels(agent: str, pod: str) -> dict[str, str]:
    return {AGENT_LABEL: agent, POD_LABEL: pod}


def requested_ports(spec: PodSpec) -> tuple[tuple[int, str], ...]:
    """Returns each requested port once: "http" and "tcp" of one number are the same port."""
    return tuple(dict.fromkeys((port.private, _transport(port.protocol)) for port in spec.ports))


def published(spec: PodSpec, free: Sequence[int]) -> tuple[Published, ...]:
    """Assigns a free port of the host to each requested port."""
    return tuple(
        Published(number, number if number <= PORT_MOST else public, public, transport)
        for (number, transport), public in zip(requested_ports(spec), free, strict=True)
    )


def labelled_ports(label: str) -> Iterator[tuple[int, str, int]]:
    """Yields each port in a container's label: the requested number, its transport, and the host's port."""
    for one in label.split():
        number, _, rest = one.partition("/")
        transport, _, public = rest.partition("=")
        yield int(number), transport, int(public)


def pod_plan(
    spec: PodSpec,
    image: str,
    gpus: tuple[str, ...],
    folder: str,
    agent: str,
    limits: ContainerLimits,
    free: Sequence[int],
) -> PodPlan:
    """Returns the plan of a pod's container. `gpus` are uuids, `limits` the node's; `free` holds a port of
    the host for each of `requested_ports`."""
    ports = published(spec, free)
    labels = {VERSION_LABEL: str(spec.version), RESTARTS_LABEL: str(spec.restarts)}
    labels[PORTS_LABEL] = " ".join(f"{one.requested}/{one.transport}={one.public}" for one in ports)
    return PodPlan(
        image,
        spec.pod,
        _environment(spec, gpus, ports),
        volume_labels(agent, spec.pod) | labels,
        limits.of(spec.limits),
        entrypoint=spec.entrypoint or None,
        command=spec.command or None,
        devices=tuple(map(cdi_name, gpus)),
        ports=ports,
        volume=own_volume(spec),
        folder=folder,
        volume_path=spec.volume_path,
        disk_bytes=spec.disk_bytes,
    )


def _transport(protocol: str) -> str:
    return "udp" if protocol == "udp" else "tcp"


def _environment(spec: PodSpec, gpus: tuple[str, ...], ports: tuple[Published, ...]) -> dict[str, str]:
    """Returns the owner's variables and the platform's, under the names that images of RunPod expect and our
    own. The owner may replace the number of GPUs, but not the other variables of the platform."""
    fixed = {"RUNPOD_POD_ID": spec.pod, "RUNPOD_POD_HOSTNAME": spec.pod, "STOKER_POD_ID": spec.pod}
    fixed |= {f"RUNPOD_TCP_PORT_{one.requested}": str(one.public) for one in ports if one.transport == "tcp"}
    if spec.volume:
        fixed["RUNPOD_VOLUME_ID"] = spec.volume
    if spec.volume_path:
        fixed[VOLUME_PATH] = spec.volume_path
    fixed[NVIDIA_RUNTIME] = "void"  # GPUs come by CDI only, not by the engine's default runtime
    if not gpus:
        fixed["CUDA_VISIBLE_DEVICES"] = ""
    return {"RUNPOD_GPU_COUNT": str(len(gpus)), **spec.env, **fixed}


# ---- the requests -------------------------------------------------------------------------------


def docker_pod_request(plan: PodPlan) -> dict[str, Any]:
    request: dict[str, Any] = {
        "Image": plan.image,
        "Hostname": plan.hostname,
        "Env": [f"{name}={value}" for name, value in plan.environment.items()],
        "Labels": dict(plan.labels),
        "ExposedPorts": {port.target: {} for port in plan.ports},
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
        "PortBindings": {one.target: [{"HostIp": "", "HostPort": str(one.public)}] for one in plan.ports},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": str(LOG_BYTES), "max-file": "2"}},
        "PidsLimit": limits.pids,
        "ShmSize": SHM_BYTES,
        "Ulimits": [{"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile}],
    }
    if limits.memory_bytes is not None:
        config |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
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
        "hostname": plan.hostname,
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
    optional = {"entrypoint": plan.entrypoint, "command": plan.command}
    return request | {key: list(value) for key, value in optional.items() if value is not None}


def _podman_port(port: Published) -> dict[str, Any]:
    return {"container_port": port.private, "host_port": port.public, "protocol": port.transport}
