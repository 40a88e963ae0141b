"""The kinds of resources for commands: the columns of lists, and the fields with an option of their own.

Data only. All other fields are set with `--set` or in a file; the service validates them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Option:
    """An option for one field. `pairs`: the values are NAME=VALUE. `hidden`: typed without echo, never an
    argument, which every user could read. `only_on_create`: `update` lacks it. `refers_to`: the value is the
    id or name of a resource of this kind."""

    field: str
    help: str
    type: type[int] | type[str] = str
    name: str = ""
    many: bool = False
    pairs: bool = False
    hidden: bool = False
    only_on_create: bool = False
    refers_to: str = ""

    @property
    def flag(self) -> str:
        return "--" + (self.name or _HUMP.sub("-", self.field).lower())


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of resource. `member` is the attribute of the client's `manage`; `list_query` and `get_query`
    are query parameters. The help's examples use the id `example` and the options `fields`, by verb."""

    command: str
    member: str
    help: str
    columns: tuple[str, ...]
    example: str
    fields: Mapping[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    updatable: bool = True
    actions: Mapping[str, str] = field(default_factory=dict)
    list_query: Mapping[str, Any] = field(default_factory=dict)
    get_query: Mapping[str, Any] = field(default_factory=dict)


_NAME = Option("name", "Its name.")
_TEMPLATE = Option("templateId", "The template to use.", name="template", refers_to="templates")
_IMAGE = Option("imageName", "The container image, with its tag.", name="image")
_ENV = Option("env", "An environment variable; may be repeated.", pairs=True)
_COMPUTE = Option("computeType", "GPU or CPU.", name="compute")
_GPU_TYPES = Option(
    "gpuTypeIds", "An acceptable type of GPU; repeat in order of preference.", name="gpu-type", many=True
)
_GPU_COUNT = Option("gpuCount", "How many GPUs.", int)
_VOLUME = Option("networkVolumeId", "The network volume to mount.", name="volume", refers_to="volumes")
_DISK = Option("containerDiskInGb", "The container's disk, in GB.", int, name="container-disk")
_KEPT_DISK = Option(
    "volumeInGb", "The disk that is kept when its container is replaced, in GB.", int, name="disk"
)
_PORTS = Option("ports", "A port to publish, such as 8888/http; may be repeated.", name="port", many=True)
_REGISTRY = Option(
    "containerRegistryAuthId", "The login to pull the image with.", name="registry", refers_to="registries"
)
_CONTAINER = (_NAME, _IMAGE, _ENV, _PORTS, _DISK, _KEPT_DISK, _REGISTRY)
"""What a template and a pod have in common."""

KINDS = (
    ResourceKind(
        "endpoint",
        "endpoints",
        "Endpoints: jobs are sent to them, and they scale their workers.",
        ("id", "name", "templateId", "version", "workersMin", "workersMax", "scalerType", "scalerValue"),
        "30zmvf89kd",
        {"create": "--name caption --template xkhgg72fuo --workers-max 3", "update": "--workers-max 5"},
        (
            _NAME,
            _TEMPLATE,
            Option("workersMin", "How many workers always run.", int),
            Option("workersMax", "How many workers run at most.", int),
            Option("idleTimeout", "How long a worker stays without a job, in seconds.", int),
            Option("scalerType", "QUEUE_DELAY or REQUEST_COUNT."),
            Option(
                "scalerValue", "Seconds in the queue (QUEUE_DELAY) or jobs per worker (REQUEST_COUNT).", int
            ),
            Option("executionTimeoutMs", "How long one attempt may run, in milliseconds.", int),
            _COMPUTE,
            _GPU_TYPES,
            _GPU_COUNT,
            _VOLUME,
        ),
        get_query={"includeWorkers": True},
    ),
    ResourceKind(
        "template",
        "templates",
        "Templates: image, environment and disks for endpoints and pods.",
        ("id", "name", "imageName", "isServerless", "containerDiskInGb", "volumeInGb"),
        "xkhgg72fuo",
        {
            "create": "--name caption --image acme/caption:1 --env MODE=fast",
            "update": "--image acme/caption:2",
        },
        (
            *_CONTAINER,
            Option(
                "weights",
                "Weights that a node fetches before it starts a worker; may be repeated.",
                many=True,
            ),
        ),
        list_query={"includeEndpointBoundTemplates": True},
        get_query={"includeEndpointBoundTemplates": True},
    ),
    ResourceKind(
        "pod",
        "pods",
        "Pods: containers that run until you stop them.",
        ("id", "name", "status", "image", "machineId", "publicIp", "portMappings", "reason"),
        "xedezhzb9la3ye",
        {"create": "--name box --image acme/box:1 --port 8888/http", "update": "--name box-2"},
        (
            *_CONTAINER,
            *(
                replace(one, only_on_create=True)
                for one in (_TEMPLATE, _COMPUTE, _GPU_TYPES, _GPU_COUNT, _VOLUME)
            ),
        ),
        actions={
            "start": "Starts a stopped pod.",
            "stop": "Stops a pod; its volume stays.",
            "restart": "Stops and starts a pod.",
            "reset": "Creates a pod's container again; its volume stays.",
        },
        get_query={"includeMachine": True},
    ),
    ResourceKind(
        "volume",
        "volumes",
        "Network volumes: folders that are kept when workers and pods end.",
        ("id", "name", "size", "dataCenterId", "usedBytes"),
        "agv6w2qcg7",
        {"create": "--name models --data-center EU-RO-1 --size 100", "update": "--size 200"},
        (
            _NAME,
            Option("size", "Size in GB; it can only grow.", int),
            Option(
                "dataCenterId", "The data center, such as EU-RO-1.", name="data-center", only_on_create=True
            ),
        ),
    ),
    ResourceKind(
        "registry",
        "registries",
        "Logins for container registries.",
        ("id", "name"),
        "clzdaifot0",
        {"create": "--name ours --username robot"},
        (_NAME, Option("username", "The user name."), Option("password", "The password", hidden=True)),
        updatable=False,
    ),
    ResourceKind(
        "node",
        "nodes",
        "Nodes: the hosts that have joined.",
        (
            *("id", "name", "state", "drained", "devices", "workers", "jobs", "diskFreeInBytes"),
            *("agentVersion", "avoidedFor"),
        ),
        "4nqjm2vd8t",
        updatable=False,
        actions={
            "resume": "Places work on a drained node again.",
            "revoke": "Ends a node's session; it can join again only with a newer join token.",
        },
    ),
)
