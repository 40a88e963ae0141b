"""The fields of a container, which pods, endpoints and templates share, in this shape and in the resources'.
Pure.

    image, args, disk, ports, env, registry     imageName, dockerStartCmd, containerDiskInGb, ports, env, ...
    mounts.persistent {size, path}              volumeInGb, volumeMountPath
    mounts.network [{volumeId, path}]           networkVolumeId, volumeMountPath

`args` is a text, quoted as for a shell, and there is no entrypoint: the one that a resource has stays. Says
nothing of defaults, which the resources know.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from stoker.control.errors import BadRequest

_NAMES = {
    "disk": "containerDiskInGb",
    "env": "env",
    "image": "imageName",
    "ports": "ports",
    "registry": "containerRegistryAuthId",
}

MINE = {
    "allowedCudaVersions": "allowedCudaVersions",
    "containerDiskInGb": "disk",
    "containerRegistryAuthId": "registry",
    "dataCenterId": "dataCenter",
    "dockerStartCmd": "args",
    "executionTimeoutMs": "timeout",
    "gpuCount": "gpu.count",
    "idleTimeout": "workers.idleTimeout",
    "imageName": "image",
    "networkVolumeIds": "networkVolumes",
    "scalerType": "scaling.type",
    "vcpuCount": "cpu.vcpuCount",
    "volumeInGb": "mounts.persistent.size",
    "volumeMountPath": "mounts.persistent.path",
    "workersMax": "workers.max",
    "workersMin": "workers.min",
}
"""The fields that messages of the resources name, as they are called here."""

OF_POD = MINE | {"gpuTypeIds": "gpu.id", "networkVolumeId": "mounts.network", "cpuFlavorIds": "cpu.id"}
OF_ENDPOINT = MINE | {
    "gpuTypeIds": "gpu.pools",
    "networkVolumeId": "networkVolumes",
    "cpuFlavorIds": "cpu.id",
}


def in_words_of(names: Mapping[str, str], message: str) -> str:
    """Returns a message of the resources with the names that its fields have here."""
    found = "|".join(sorted(names, key=len, reverse=True))
    return re.sub(rf"\b(?:{found})\b", lambda match: names[match[0]], message)


def split(args: str) -> list[str]:
    """Returns the arguments of a text that is quoted as for a shell. Raises BadRequest."""
    try:
        return shlex.split(args)
    except ValueError as error:
        raise BadRequest(f"args must be quoted as for a shell: {error}") from None


def container_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources' fields of those that a body has. A registry of null is none."""
    fields = {theirs: given[name] for name, theirs in _NAMES.items() if name in given}
    if "args" in given:
        fields["dockerStartCmd"] = split(given["args"])
    if "registry" in given:
        fields["containerRegistryAuthId"] = given["registry"] or ""
    return fields


def mount_fields(mounts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources' fields of the mounts of a new pod or template. Raises BadRequest."""
    persistent, network = mounts.get("persistent"), mounts.get("network")
    if persistent is not None and network is not None:
        raise BadRequest("mounts must have persistent or network; got both")
    if persistent is not None:
        return {"volumeInGb": persistent["size"], "volumeMountPath": persistent["path"]}
    if network is None:
        return {"volumeInGb": 0}
    if len(network) != 1:
        raise BadRequest(f"mounts.network must hold one mount; got {len(network)}")
    return {
        "networkVolumeId": network[0]["volumeId"],
        "volumeInGb": 0,
        "volumeMountPath": network[0]["path"],
    }


def changed_mount(had: Mapping[str, Any], mounts: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources' fields of a change of mounts, by those that there were. The kind, the volume and
    a persistent mount's present size are fixed. Raises BadRequest."""
    fields, kind = mount_fields(mounts), next((kind for kind in mounts if mounts[kind] is not None), "")
    has = next(iter(had), "")
    if kind != has:
        raise BadRequest(
            f"mounts must stay of their kind, which is {has or 'none'}; got {kind or 'none'}: make a new pod"
        )
    if kind == "persistent" and fields["volumeInGb"] < had["persistent"]["size"]:
        size = had["persistent"]["size"]
        raise BadRequest(f"mounts.persistent.size may only grow from {size}; got {fields['volumeInGb']}")
    volume = fields.pop("networkVolumeId", None)
    if kind == "network":
        del fields["volumeInGb"]
        if volume != had["network"][0]["volumeId"]:
            raise BadRequest(
                f"mounts.network.volumeId is fixed, as {had['network'][0]['volumeId']}; got {volume}"
            )
    return fields if kind else {}


def mounts_record(volume_gb: int | None, path: str, network_volume: str = "") -> dict[str, Any]:
    """Returns the mounts of a resource: empty without any. A network volume hides the persistent one."""
    if network_volume:
        return {"network": [{"volumeId": network_volume, "path": path}]}
    return {"persistent": {"size": volume_gb, "path": path}} if volume_gb else {}


def container_record(
    *,
    image: str,
    command: Sequence[str],
    disk_gb: int | None,
    ports: Sequence[str],
    env: Mapping[str, str],
    registry: str | None,
) -> dict[str, Any]:
    """Returns the fields of a record that all containers have."""
    return {
        "image": image,
        "args": shlex.join(command),
        "disk": disk_gb,
        "ports": list(ports),
        "env": dict(env),
        "registry": registry or None,
    }
