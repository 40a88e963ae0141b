"""The kinds of resource that commands manage: what is shown of each, and which fields have an option.

Data only. Every other field is set with `--set` or comes from a file; the service says what it makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Option:
    """One field as an option. `pairs`: NAME=VALUE each. `hidden`: typed unseen, never an argument, which
    everybody could read. `at_first`: of a new one only."""

    field: str
    help: str
    type: type[int] | type[str] = str
    name: str = ""
    many: bool = False
    pairs: bool = False
    hidden: bool = False
    at_first: bool = False

    @property
    def flag(self) -> str:
        return "--" + (self.name or _HUMP.sub("-", self.field).lower())


@dataclass(frozen=True, slots=True)
class Kind:
    """`member` of the client's `manage`. `listed` and `read` are what the API is asked to tell besides."""

    word: str
    member: str
    help: str
    columns: tuple[str, ...]
    options: tuple[Option, ...] = ()
    changes: bool = True
    actions: Mapping[str, str] = field(default_factory=dict)
    listed: Mapping[str, Any] = field(default_factory=dict)
    read: Mapping[str, Any] = field(default_factory=dict)


_NAME = Option("name", "What it is called.")
_TEMPLATE = Option("templateId", "What it is made from.", name="template")
_IMAGE = Option("imageName", "The image, with its tag.", name="image")
_ENV = Option("env", "A variable of its environment.", pairs=True)
_COMPUTE = Option("computeType", "GPU or CPU.", name="compute")
_GPU_TYPES = Option("gpuTypeIds", "A GPU that will do; the best first.", name="gpu-type", many=True)
_GPU_COUNT = Option("gpuCount", "How many GPUs.", int)
_VOLUME = Option("networkVolumeId", "The network volume that it has.", name="volume")
_DISK = Option("containerDiskInGb", "Its container's disk.", int, name="container-disk")
_KEPT_DISK = Option("volumeInGb", "The disk that outlives its container.", int, name="disk")
_PORTS = Option("ports", "A port that is published, as 8888/http.", name="port", many=True)
_REGISTRY = Option("containerRegistryAuthId", "What its image is pulled with.", name="registry")

KINDS = (
    Kind(
        "endpoint",
        "endpoints",
        "Endpoints: what jobs are sent to, and how it scales.",
        ("id", "name", "templateId", "version", "workersMin", "workersMax", "scalerType", "scalerValue"),
        (
            _NAME,
            _TEMPLATE,
            Option("workersMin", "Workers that are always there.", int),
            Option("workersMax", "Workers at most.", int),
            Option("idleTimeout", "Seconds until a worker without work stops.", int),
            Option("scalerType", "QUEUE_DELAY or REQUEST_COUNT."),
            Option("scalerValue", "Seconds of waiting, or jobs for each worker.", int),
            Option("executionTimeoutMs", "Milliseconds that one attempt may run.", int),
            _COMPUTE,
            _GPU_TYPES,
            _GPU_COUNT,
            _VOLUME,
        ),
        read={"includeWorkers": True},
    ),
    Kind(
        "template",
        "templates",
        "Templates: what endpoints and pods are made from.",
        ("id", "name", "imageName", "isServerless", "containerDiskInGb", "volumeInGb"),
        (_NAME, _IMAGE, _ENV, _PORTS, _DISK, _KEPT_DISK, _REGISTRY),
        listed={"includeEndpointBoundTemplates": True},
        read={"includeEndpointBoundTemplates": True},
    ),
    Kind(
        "pod",
        "pods",
        "Pods: containers of your own.",
        ("id", "name", "status", "image", "machineId", "publicIp", "portMappings", "reason"),
        (
            _NAME,
            _IMAGE,
            _ENV,
            _PORTS,
            _DISK,
            _KEPT_DISK,
            _REGISTRY,
            *(
                Option(one.field, one.help, one.type, one.name, one.many, at_first=True)
                for one in (_TEMPLATE, _COMPUTE, _GPU_TYPES, _GPU_COUNT, _VOLUME)
            ),
        ),
        actions={
            "start": "Starts a pod that was stopped.",
            "stop": "Stops it; its volume stays.",
            "restart": "Stops and starts it.",
            "reset": "Makes its container anew; its volume stays.",
        },
        read={"includeMachine": True},
    ),
    Kind(
        "volume",
        "volumes",
        "Network volumes: folders that outlive workers and pods.",
        ("id", "name", "size", "dataCenterId", "usedBytes"),
        (
            _NAME,
            Option("size", "In GB; it may only grow.", int),
            Option("dataCenterId", "Where it is.", name="data-center", at_first=True),
        ),
    ),
    Kind(
        "registry",
        "registries",
        "Logins of container registries.",
        ("id", "name"),
        (_NAME, Option("username", "Who logs in."), Option("password", "Its password", hidden=True)),
        changes=False,
    ),
    Kind(
        "node",
        "nodes",
        "Nodes: the hosts that joined.",
        ("id", "name", "state", "drained", "dataCenterId", "devices", "lastSeenAt"),
        changes=False,
        actions={
            "drain": "Places nothing new there; what runs there ends by itself.",
            "resume": "Places work there again.",
        },
    ),
)
