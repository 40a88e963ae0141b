"""Makes a PodBody of the management API's fields: the caller's, or else the template's, or else DEFAULTS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from stoker.control.config.image_names import named_image
from stoker.control.errors import BadRequest
from stoker.control.rules.pods import PodBody
from stoker.control.rules.submissions import abbreviated

ENV_MOST = 50
PORTS_MOST = 50

DEFAULTS: Mapping[str, Any] = {
    "cloudType": "SECURE",
    "computeType": "GPU",
    "containerDiskInGb": 50,
    "cpuFlavorPriority": "availability",
    "dataCenterPriority": "availability",
    "desiredStatus": "RUNNING",
    "dockerEntrypoint": [],
    "dockerStartCmd": [],
    "env": {},
    "globalNetworking": False,
    "gpuCount": 1,
    "gpuTypePriority": "availability",
    "interruptible": False,
    "locked": False,
    "minRAMPerGPU": 8,
    "minVCPUPerGPU": 2,
    "name": "my pod",
    "ports": ["8888/http", "22/tcp"],
    "vcpuCount": 2,
    "volumeInGb": 20,
    "volumeMountPath": "/workspace",
}

_NAMES = {
    "containerDiskInGb": "disk_gb",
    "containerRegistryAuthId": "registry",
    "dockerEntrypoint": "entrypoint",
    "dockerStartCmd": "command",
    "env": "env",
    "globalNetworking": "global_networking",
    "imageName": "image",
    "locked": "locked",
    "ports": "ports",
    "templateId": "template",
    "volumeInGb": "volume_gb",
    "volumeMountPath": "volume_path",
}
"""The fields that a change may name."""

_NAMES_AT_CREATION = _NAMES | {
    "allowedCudaVersions": "cuda_versions",
    "computeType": "compute",
    "dataCenterIds": "data_centers",
    "gpuCount": "gpu_count",
    "gpuTypeIds": "gpu_types",
    "minCudaVersion": "min_cuda",
    "networkVolumeId": "network_volume",
    "vcpuCount": "vcpus",
}

_OF_TEMPLATE = (
    "containerDiskInGb",
    "containerRegistryAuthId",
    "dockerEntrypoint",
    "dockerStartCmd",
    "imageName",
    "ports",
    "volumeInGb",
    "volumeMountPath",
)

_MAY_BE_NULL = frozenset({"containerDiskInGb", "volumeInGb"})
_NAMED = frozenset({*_NAMES_AT_CREATION, "name", "desiredStatus"})


def all_fields(request: Mapping[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every field: the caller's, or else the template's, or else the default. Environments are
    merged. Raises BadRequest if there is no image."""
    requested = _set_fields(request)
    of_template = {name: template[name] for name in _OF_TEMPLATE if name in template}
    fields = {**DEFAULTS, **of_template, **requested}
    fields["env"] = {**template.get("env", {}), **requested.get("env", {})}
    if "imageName" not in fields:
        raise BadRequest("imageName is required and missing: name an image, or a templateId that has one")
    return fields


def _set_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in request.items() if value is not None or name in _MAY_BE_NULL}


def body_of(fields: Mapping[str, Any]) -> PodBody:
    """Raises BadRequest if no pod can be made of the fields."""
    values = {
        ours: _frozen(fields[theirs]) for theirs, ours in _NAMES_AT_CREATION.items() if theirs in fields
    }
    other = {name: value for name, value in fields.items() if name not in _NAMED}
    return _checked(PodBody(**values, asked=other))


def body_after(body: PodBody, changes: Mapping[str, Any]) -> PodBody:
    """Returns the body after a change; "" for containerRegistryAuthId removes it. Raises BadRequest."""
    values = {_NAMES[name]: _frozen(value) for name, value in _set_fields(changes).items() if name in _NAMES}
    return _checked(replace(body, **values))


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _checked(body: PodBody) -> PodBody:
    if body.image.startswith("local:"):
        raise BadRequest(
            f"imageName must be a container image; got {body.image!r}, and local: is for endpoints only"
        )
    if not (named_image(body.image) or named_image(f"{body.image}:latest")):
        raise BadRequest(f"imageName must name an image, by its tag or digest; got {abbreviated(body.image)}")
    if len(body.env) > ENV_MOST:
        raise BadRequest(f"env holds at most {ENV_MOST} variables; got {len(body.env)}")
    if len(body.ports) > PORTS_MOST:
        raise BadRequest(f"ports holds at most {PORTS_MOST} ports; got {len(body.ports)}")
    twice = [port for port in body.ports if body.ports.count(port) > 1]
    if twice:
        raise BadRequest(f"ports names {twice[0]} twice")
    return body
