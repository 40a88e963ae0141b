"""Turns a ContainerPlan into the body of each engine's request to create a container. Pure.

docker   POST /containers/create of the Engine API
podman   POST /libpod/containers/create of its own API: its version of the Engine API silently ignores GPUs,
         limits of processes and the path of an init

Every worker gets the engine's init, and cannot gain new privileges.
"""

from __future__ import annotations

from typing import Any

from stoker.agent.workers.containers.plan import ContainerLimits, ContainerPlan

SHM_BYTES = 1 << 30
DROPPED = ("MKNOD", "NET_RAW")
CPU_PERIOD_US = 100_000


def docker_request(plan: ContainerPlan) -> dict[str, Any]:
    request: dict[str, Any] = {
        "Image": plan.image,
        "Env": [f"{name}={value}" for name, value in plan.environment.items()],
        "Labels": dict(plan.labels),
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": _host_config(plan),
    }
    if plan.entrypoint is not None:
        request["Entrypoint"] = list(plan.entrypoint)
    if plan.command is not None:
        request["Cmd"] = list(plan.command)
    if plan.user is not None:
        request["User"] = plan.user
    return request


def _host_config(plan: ContainerPlan) -> dict[str, Any]:
    limits = plan.limits
    config: dict[str, Any] = {
        "Init": True,
        "NetworkMode": plan.network,
        "LogConfig": {"Type": "none", "Config": {}},
        "SecurityOpt": ["no-new-privileges"],
        "CapDrop": list(DROPPED),
        "PidsLimit": limits.pids,
        "ShmSize": SHM_BYTES,
        "Ulimits": [{"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile}],
    }
    if limits.memory_bytes is not None:
        config |= {"Memory": limits.memory_bytes, "MemorySwap": limits.memory_bytes}
    if plan.groups:
        config["GroupAdd"] = [str(group) for group in plan.groups]
    if limits.cpus is not None:
        config["NanoCpus"] = round(limits.cpus * 1e9)
    if plan.binds:
        config["Mounts"] = [
            {"Type": "bind", "Source": bind.source, "Target": bind.target, "ReadOnly": bind.read_only}
            for bind in plan.binds
        ]
    if plan.devices:
        config["DeviceRequests"] = [{"Driver": "cdi", "DeviceIDs": list(plan.devices)}]
    return config


def podman_request(plan: ContainerPlan, name: str, init: str | None) -> dict[str, Any]:
    """Returns podman's request to create the container. `init` is the path of the init on the engine's host;
    None means the one that podman is configured with."""
    request: dict[str, Any] = {
        "name": name,
        "image": plan.image,
        "env": dict(plan.environment),
        "labels": dict(plan.labels),
        "init": True,
        "netns": {"nsmode": plan.network},
        "log_configuration": {"driver": "none"},
        "no_new_privileges": True,
        "cap_drop": [f"CAP_{right}" for right in DROPPED],
        "shm_size": SHM_BYTES,
        "r_limits": r_limits(plan.limits),
        "resource_limits": resource_limits(plan.limits),
        "mounts": [
            {
                "type": "bind",
                "source": bind.source,
                "destination": bind.target,
                "options": ["rbind", "ro" if bind.read_only else "rw"],
            }
            for bind in plan.binds
        ],
        "groups": [str(group) for group in plan.groups],
        "devices": [{"path": device} for device in plan.devices],
    }
    optional = {"init_path": init, "user": plan.user, "entrypoint": plan.entrypoint, "command": plan.command}
    return request | {key: value for key, value in optional.items() if value is not None}


def r_limits(limits: ContainerLimits) -> list[dict[str, Any]]:
    both = {"nofile": limits.nofile, "nproc": limits.nproc}
    return [{"type": name, "soft": n, "hard": n} for name, n in both.items() if n is not None]


def resource_limits(limits: ContainerLimits) -> dict[str, Any]:
    resources: dict[str, Any] = {"pids": {"limit": limits.pids}}
    if limits.memory_bytes is not None:
        resources["memory"] = {"limit": limits.memory_bytes, "swap": limits.memory_bytes}
    if limits.cpus is not None:
        resources["cpu"] = {"period": CPU_PERIOD_US, "quota": max(round(limits.cpus * CPU_PERIOD_US), 1000)}
    return resources
