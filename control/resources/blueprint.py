"""What an endpoint's workers run, from what was asked for and the template: the rules are those of the file.

What a worker *is* stands in the template (image, command, env, handler, concurrency, limits); where it runs
and how its jobs are treated stands in the endpoint. Fields have the names that they have over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from stoker.control.config import to_version
from stoker.control.config_sections import DEFAULT_EXECUTION_TIMEOUT_MS, EndpointSection
from stoker.control.errors import BadRequest
from stoker.control.places import LOCAL, PlaceError, named_image, placed
from stoker.control.settings import PlaneSettings
from stoker.control.types import Endpoint, EndpointVersion, Template
from stoker.wire.messages import Price, RegistryAuth

GB = 10**9

IN_PLACE = frozenset(
    {
        "executionTimeoutMs",
        "flashboot",
        "idleTimeout",
        "name",
        "scalerType",
        "scalerValue",
        "workersMax",
        "workersMin",
    }
)
"""Changes of an endpoint that make no new version."""

TEMPLATE_IN_PLACE = frozenset({"isPublic", "name", "readme", "volumeInGb", "volumeMountPath"})
"""Changes of a template that make no new version of the endpoints that are made from it."""

_OF_TEMPLATE = (
    "concurrency",
    "containerRegistryAuthId",
    "dockerStartCmd",
    "env",
    "handler",
    "initTimeout",
    "limits",
    "maxJobs",
    "maxMemoryGrowthMb",
    "preload",
)
_OF_ENDPOINT = (
    "allowedCudaVersions",
    "dataCenterIds",
    "executionTimeoutMs",
    "gpuCount",
    "gpuMemoryMb",
    "gpuMemoryShare",
    "gpuTypeIds",
    "idleTimeout",
    "maxAttempts",
    "minCudaVersion",
    "nodeLabels",
    "retryHandlerErrors",
    "scalerType",
    "scalerValue",
    "ttlMs",
    "workersMax",
    "workersMin",
)
FLAVOR_GB = {"c": 2, "g": 4, "m": 8}
"""Memory per virtual CPU of a flavour, by its last letter."""


def section(
    endpoint: str, asked: Mapping[str, Any], template: Template, settings: PlaneSettings
) -> EndpointSection:
    """The endpoint as the file would declare it. Raises BadRequest, which names the field."""
    fields = _present(template.fields, _OF_TEMPLATE) | _present(asked, _OF_ENDPOINT)
    fields["id"] = endpoint
    fields["imageName"] = place(template.fields, settings)
    fields["computeType"] = asked.get("computeType")
    fields["vcpuCount"] = vcpus(asked) if asked.get("computeType") == "CPU" else None
    fields["networkVolumeId"] = next(iter(volumes(asked)), None)
    try:
        # As JSON: a strict model takes lists for tuples only from JSON.
        return EndpointSection.model_validate_json(to_json(fields))
    except ValidationError as invalid:
        told = (str(one.get("ctx", {}).get("error", _plain(one))) for one in invalid.errors())
        raise BadRequest("; ".join(told)) from None


def _plain(error: Any) -> str:
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"


def _present(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def place(template: Mapping[str, Any], settings: PlaneSettings) -> str:
    """What its imageName names; an image without a tag is the latest."""
    image: str = template["imageName"]
    if not image.startswith(LOCAL) and not named_image(image) and named_image(f"{image}:latest"):
        image = f"{image}:latest"
    if image.startswith(LOCAL) and template.get("dockerEntrypoint"):
        raise BadRequest(
            'dockerEntrypoint is for images; beside "local:" the program stands in dockerStartCmd'
        )
    if template.get("handler") and template.get("dockerEntrypoint"):
        raise BadRequest("dockerEntrypoint is for programs; beside handler the worker is started by Stoker")
    base, roots = Path(settings.local_base), tuple(Path(root) for root in settings.local_roots)
    try:
        return placed(image, "imageName", base, roots, program=bool(template.get("dockerStartCmd")))
    except PlaceError as wrong:
        raise BadRequest(str(wrong)) from None


def version(
    made: EndpointSection, template: Template, prices: tuple[Price, ...], registry: RegistryAuth | None
) -> EndpointVersion:
    disk = template.fields["containerDiskInGb"]
    return replace(
        to_version(made, prices, registry),
        entrypoint=tuple(template.fields["dockerEntrypoint"]),
        disk_bytes=disk * GB if disk else None,
    )


def endpoint(
    made: EndpointSection, run: EndpointVersion, account: str, asked: Mapping[str, Any], template: Template
) -> Endpoint:
    """Its version is drawn when it is stored."""
    return Endpoint(
        id=made.id,
        account=account,
        name=asked.get("name") or template.name,
        version=1,
        run=run,
        workers_min=made.workersMin,
        workers_max=made.workersMax,
        idle_timeout_s=made.idleTimeout,
        execution_timeout_ms=made.executionTimeoutMs or DEFAULT_EXECUTION_TIMEOUT_MS,
        ttl_ms=made.ttlMs,
        max_attempts=made.maxAttempts,
        handler_retries=made.retryHandlerErrors,
        origin="api",
        type=asked.get("type", "QUEUE"),
        scaler_type=made.scalerType,
        scaler_value=made.scalerValue,
        template=template.id,
        asked=asked,
    )


def volumes(asked: Mapping[str, Any]) -> list[str]:
    """The ids of the network volumes that were asked for: one by one field, or several by the other."""
    one = asked.get("networkVolumeId")
    return [one] if one else list(asked.get("networkVolumeIds") or ())


def vcpus(asked: Mapping[str, Any]) -> int | None:
    """Of a CPU endpoint, where it asks for so many: as a number, or within the name of an instance."""
    if asked.get("vcpuCount") is not None:
        return int(asked["vcpuCount"])
    sizes = [int(one.split("-")[1]) for one in asked.get("instanceIds") or ()]
    return min(sizes) if sizes else None


def instances(asked: Mapping[str, Any]) -> list[str]:
    """`cpu3c-8-16` reads flavour, virtual CPUs, GB."""
    if asked.get("instanceIds"):
        return list(asked["instanceIds"])
    count = vcpus(asked) or 2
    return [
        f"{one}-{count}-{count * FLAVOR_GB[one[-1]]}"
        for one in asked.get("cpuFlavorIds") or ()
        if one[-1] in FLAVOR_GB
    ]
