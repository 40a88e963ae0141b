"""Makes an endpoint of a request and its template, by the rules of the configuration file.

The template defines what a worker *is* (image, command, env, handler, concurrency, limits); the endpoint
defines where it runs and how its jobs are treated. Fields have their names over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import Field, ValidationError
from pydantic_core import to_json

from stoker.control.config.config import to_version
from stoker.control.config.image_names import LOCAL, ImageNameError, named_image, resolved
from stoker.control.config.sections import EndpointSection
from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import BadRequest
from stoker.control.rules.limits import DEFAULT_EXECUTION_TIMEOUT_MS
from stoker.control.rules.quotas import Quota
from stoker.control.rules.submissions import abbreviated
from stoker.control.rules.types import LOAD_BALANCER, Endpoint, EndpointVersion, Template
from stoker.wire.messages import LockedWeights, RegistryAuth

GB = 10**9
INT = (1 << 31) - 1
"""The largest count if the interface publishes no limit: every client and the store can represent it."""

ENV_NAME = r"^[^=\x00-\x1f\x7f]+$"
"""Every name that a variable of an environment can have."""

ARGUMENT_MOST = 131_071
"""The largest argument in bytes that the kernel accepts."""

UNVERSIONED = frozenset(
    {
        "executionTimeoutMs",
        "flashboot",
        "idleTimeout",
        "keepCases",
        "name",
        "priorityFlashboot",
        "queueDelay",
        "quota",
        "scalerType",
        "scalerValue",
        "temporary",
        "workersMax",
        "workersMin",
    }
)
"""The fields of an endpoint that can change without a new version."""

TEMPLATE_UNVERSIONED = frozenset(
    {
        "allowedCudaVersions",
        "category",
        "isPublic",
        "isServerless",
        "name",
        "readme",
        "startJupyter",
        "startSsh",
        "volumeInGb",
        "volumeMountPath",
    }
)
"""The fields of a template that can change without a new version of its endpoints."""

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
    "keepCases",
    "maxAttempts",
    "minCudaVersion",
    "nodeLabels",
    "quota",
    "retryHandlerErrors",
    "scalerType",
    "scalerValue",
    "ttlMs",
    "type",
    "workersMax",
    "workersMin",
)


class _Section(EndpointSection):
    """A section with the limits of HTTP, some of which are wider than those of the file."""

    env: dict[Annotated[str, Field(pattern=ENV_NAME)], str] = {}  # noqa: RUF012  (pydantic copies it)
    dockerStartCmd: tuple[str, ...] = ()
    gpuCount: int = 1
    scalerValue: int = 1
    vcpuCount: int | None = None


FLAVOR_GB = {"c": 2, "g": 4, "m": 8}
"""GB of memory for each virtual CPU of a flavour, by its last character."""


def section(
    endpoint: str, requested: Mapping[str, Any], template: Template, settings: PlaneSettings
) -> EndpointSection:
    """Returns the endpoint as the file would declare it. Raises BadRequest, which names the field."""
    fields = _present(template.fields, _OF_TEMPLATE) | _present(requested, _OF_ENDPOINT)
    fields["id"] = endpoint
    if requested.get("type") == LOAD_BALANCER:
        fields["scalerType"] = "REQUEST_COUNT"  # the default of the interface is that of a queue
    fields["imageName"] = image_name(template.fields, settings)
    fields["computeType"] = requested.get("computeType")
    fields["vcpuCount"] = vcpus(requested) if requested.get("computeType") == "CPU" else None
    fields["networkVolumeId"] = next(iter(volumes(requested)), None)
    try:
        # As JSON: a strict model takes lists for tuples only from JSON.
        return _Section.model_validate_json(to_json(fields))
    except ValidationError as invalid:
        messages = (str(one.get("ctx", {}).get("error", _plain(one))) for one in invalid.errors())
        raise BadRequest("; ".join(messages)) from None


def _plain(error: Any) -> str:
    return f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"


def _present(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if fields.get(name) is not None}


def image_name(template: Mapping[str, Any], settings: PlaneSettings) -> str:
    """Returns the resolved imageName; an image without a tag is the latest."""
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
    program = bool(template.get("dockerStartCmd"))
    try:
        return resolved(image, "imageName", base, roots, program=program, functions=settings.functions)
    except ImageNameError as wrong:
        raise BadRequest(str(wrong)) from None


def version(
    made: EndpointSection,
    requested: Mapping[str, Any],
    template: Template,
    settings: PlaneSettings,
    registry: RegistryAuth | None,
) -> EndpointVersion:
    disk = template.fields["containerDiskInGb"]
    run = to_version(made, settings.prices, registry)
    memory = run.needs.memory_bytes or (memory_bytes(requested) if made.computeType == "CPU" else None)
    return replace(
        run,
        needs=replace(run.needs, memory_bytes=memory),
        entrypoint=tuple(template.fields["dockerEntrypoint"]),
        disk_bytes=disk * GB if disk else None,
        weights=locked(template, settings),
    )


def locked(template: Template, settings: PlaneSettings) -> tuple[LockedWeights, ...]:
    """Returns the weights that the template names. Raises BadRequest if the lock has no such entry."""
    known, names = settings.weights, dict.fromkeys(template.fields.get("weights") or ())
    for name in names:
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise BadRequest(
                f"weights must be entries of weights.lock; it has no {abbreviated(name)}, but {there}"
            )
    return tuple(entry for name in names for entry in known[name])


def relocked(run: EndpointVersion, settings: PlaneSettings) -> EndpointVersion:
    """Returns the version with its weights as they are locked now; an entry that is gone stays as it was."""
    weights = (settings.weights.get(one.name, (one,)) for one in run.weights)
    return replace(run, weights=tuple(entry for entries in weights for entry in entries))


def endpoint(
    made: EndpointSection,
    run: EndpointVersion,
    account: str,
    requested: Mapping[str, Any],
    template: Template,
) -> Endpoint:
    """Returns the endpoint to store. Its version is a placeholder, as the store assigns the version."""
    return Endpoint(
        id=made.id,
        account=account,
        name=requested.get("name") or template.name or made.id,
        version=1,
        run=run,
        workers_min=made.workersMin,
        workers_max=made.workersMax,
        idle_timeout_s=made.idleTimeout,
        execution_timeout_ms=made.executionTimeoutMs or DEFAULT_EXECUTION_TIMEOUT_MS,
        ttl_ms=made.ttlMs,
        max_attempts=made.maxAttempts,
        handler_retries=made.retryHandlerErrors,
        keep_cases=made.keepCases,
        origin="api",
        type=made.type,
        scaler_type=made.scalerType,
        scaler_value=made.scalerValue,
        template=template.id,
        requested=requested,
        quota=Quota.of(made.quota.model_dump()),
    )


def volumes(requested: Mapping[str, Any]) -> list[str]:
    """Returns the ids of the requested network volumes, from either of the two fields."""
    one = requested.get("networkVolumeId")
    return [one] if one else list(requested.get("networkVolumeIds") or ())


def vcpus(requested: Mapping[str, Any]) -> int | None:
    """Returns the number of virtual CPUs that a CPU endpoint requests, directly or by the name of an
    instance."""
    if requested.get("vcpuCount") is not None:
        return int(requested["vcpuCount"])
    sizes = [int(one.split("-")[1]) for one in requested.get("instanceIds") or ()]
    return min(sizes) if sizes else None


def instances(requested: Mapping[str, Any]) -> list[str]:
    """Returns the names of instances, such as `cpu3c-8-16`: flavour, virtual CPUs, GB."""
    if requested.get("instanceIds"):
        return list(requested["instanceIds"])
    count = vcpus(requested) or 2
    return [
        f"{one}-{count}-{count * FLAVOR_GB[one[-1]]}"
        for one in requested.get("cpuFlavorIds") or ()
        if one[-1] in FLAVOR_GB
    ]


def memory_bytes(requested: Mapping[str, Any]) -> int | None:
    """Returns the memory of the smallest instance that the request names."""
    sizes = [int(one.split("-")[2]) for one in instances(requested)]
    return min(sizes) * GB if sizes else None
