"""/v1/templates: the templates from which endpoints and pods are made."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema

from stoker.control.config.sections import HANDLER, INIT_TIMEOUT_S, MODULE, WEIGHTS, LimitsSection
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    PORT,
    READS,
    Argument,
    Changes,
    EnvName,
    Port,
    RequestBody,
    ResponseBody,
    id_in_path,
)
from stoker.control.resources.templates import TemplateFilter
from stoker.control.rules.types import Template

router = APIRouter(prefix="/templates", tags=["templates"])


def _split(ports: object) -> object:
    return [one for one in ports.split(",") if one] if isinstance(ports, str) else ports


Ports = Annotated[
    list[Port],
    BeforeValidator(_split),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "pattern": f"^{PORT}$"}},
                {"type": "string", "pattern": f"^({PORT}(,{PORT})*)?$"},
            ],
            "description": "As a list, or as one text with commas. A number above 65535 asks for a port that"
            " is the same inside and outside: the variable `RUNPOD_TCPPORT_70000` holds it.",
            "examples": [["8888/http", "22/tcp"]],
        }
    ),
]
Env = Annotated[
    dict[EnvName, str],
    Field(description="`{{ STOKER_SECRET_name }}` in a value is filled in when a worker starts."),
]
Command = list[Argument]
Gigabytes = Annotated[int, Field(ge=0, le=1_000_000)]
_FOLDER = r"([^/.\x00-\x1f][^/\x00-\x1f]*|\.[^/.\x00-\x1f][^/\x00-\x1f]*|\.\.[^/\x00-\x1f]+)"
"""A folder other than "." and "..", which an engine would resolve, and mount elsewhere."""
MountPath = Annotated[str, Field(pattern=f"^(/{_FOLDER})+/?$", max_length=1024, examples=["/workspace"])]
ImageName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1024,
        description=(
            "An image; or `local:<path>.py:<name>`, a handler on the nodes; or, beside a dockerStartCmd,"
            " `local:<folder>`. The last two lie below the configuration's local_roots; relative paths start"
            " at its file's folder. `local:stoker.functions` is the worker for functions of apps, if the"
            " configuration allows it."
        ),
        examples=["local:/srv/handlers/echo.py:handler"],
    ),
]


class Limits(LimitsSection):
    """The limits of the configuration file; unknown fields are ignored, as in the rest of a body."""

    model_config = ConfigDict(extra="ignore", title="Limits")


class _Common(RequestBody):
    """The fields that a new template and a change have in common, besides name and image."""

    containerRegistryAuthId: Annotated[str | None, Field(description='"": none.')] = None
    handler: Annotated[
        str | None,
        Field(pattern=HANDLER, max_length=1024, description="The python handler that lies in the image."),
    ] = None
    maxJobs: Annotated[int | None, Field(ge=1, le=1_000_000_000)] = None
    maxMemoryGrowthMb: Annotated[int | None, Field(ge=1, le=1 << 24)] = None
    limits: Annotated[Limits | None, Field(description="Of one worker, with all it starts.")] = None


Concurrency = Annotated[int, Field(ge=1, le=1000, description="Jobs that a worker takes at once.")]
InitTimeout = Annotated[
    int, Field(ge=INIT_TIMEOUT_S[0], le=INIT_TIMEOUT_S[1], description="Seconds a worker may take to start.")
]
Preload = Annotated[
    list[Annotated[str, Field(pattern=MODULE, max_length=200)]],
    Field(description="Modules that a handler of the node finds imported already."),
]
Weights = Annotated[
    list[Annotated[str, Field(pattern=WEIGHTS)]],
    Field(
        max_length=100,
        description="Entries of control's weights.lock that a node has before it starts a worker.",
        examples=[["flux-1-schnell"]],
    ),
]

_EXAMPLE: dict[str, Any] = {
    "name": "my template",
    "imageName": "ghcr.io/example/worker:1.2",
    "category": "NVIDIA",
    "containerDiskInGb": 50,
    "dockerEntrypoint": [],
    "dockerStartCmd": [],
    "env": {"MODE": "fast"},
    "isPublic": False,
    "isServerless": True,
    "ports": ["8888/http", "22/tcp"],
    "readme": "",
    "volumeInGb": 20,
    "volumeMountPath": "/workspace",
}


class TemplateCreateInput(_Common):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: str
    imageName: ImageName
    category: Literal["NVIDIA", "AMD", "CPU"] = "NVIDIA"
    containerDiskInGb: Gigabytes = 50
    dockerEntrypoint: Command = []
    dockerStartCmd: Command = []
    env: Env = {}
    isPublic: bool = False
    isServerless: bool = False
    ports: Ports = ["8888/http", "22/tcp"]
    readme: str = ""
    volumeInGb: Gigabytes = 20
    volumeMountPath: MountPath = "/workspace"
    concurrency: Concurrency = 1
    initTimeout: InitTimeout = 420
    preload: Preload = []
    weights: Weights = []


class TemplateUpdateInput(Changes, _Common):
    """Changes of a template. What is left out stays. A change of more than isPublic, name, readme, volumeInGb
    and volumeMountPath makes a new version of every endpoint that is made from the template."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"readme": "How to use it.", "isPublic": False}]}
    )

    name: str = ""
    imageName: ImageName = ""
    containerDiskInGb: Gigabytes = 0
    dockerEntrypoint: Command = []
    dockerStartCmd: Command = []
    env: Env = {}
    isPublic: bool = False
    ports: Ports = []
    readme: str = ""
    volumeInGb: Gigabytes = 0
    volumeMountPath: MountPath = ""
    concurrency: Concurrency = 1
    initTimeout: InitTimeout = 420
    preload: Preload = []
    weights: Weights = []


class TemplateResponse(ResponseBody):
    model_config = ConfigDict(
        title="Template", json_schema_extra={"examples": [{"id": "30zmvf89kd", **_EXAMPLE}]}
    )

    id: str
    name: str
    imageName: str
    category: str
    containerDiskInGb: int
    containerRegistryAuthId: str | None = None
    dockerEntrypoint: list[str]
    dockerStartCmd: list[str]
    env: dict[str, str]
    isPublic: bool
    isRunpod: Annotated[bool, Field(description="Always false: nobody but accounts makes templates here.")]
    isServerless: bool
    ports: list[str]
    readme: str
    volumeInGb: int
    volumeMountPath: str
    handler: str | None = None
    concurrency: int
    initTimeout: int
    preload: list[str]
    weights: list[str] = []
    maxJobs: int | None = None
    maxMemoryGrowthMb: int | None = None
    limits: dict[str, Any] | None = None


TemplateId = Annotated[str, id_in_path("template")]
_Flag = Annotated[bool, Query()]


def template_response(template: Template) -> TemplateResponse:
    """Returns the fields that this shape has; management v2 may have stored more."""
    fields = {name: value for name, value in template.fields.items() if name in TemplateResponse.model_fields}
    return TemplateResponse(id=template.id, isRunpod=False, **fields)


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_template(by: By, managed: Managed, body: TemplateCreateInput) -> TemplateResponse:
    """Creates a template."""
    return template_response(await managed.templates.create(by.account, body.model_dump(exclude_none=True)))


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_templates(
    by: By,
    managed: Managed,
    includeEndpointBoundTemplates: _Flag = False,
    includePublicTemplates: _Flag = False,
    includeRunpodTemplates: _Flag = False,
) -> list[TemplateResponse]:
    """Lists templates."""
    included = TemplateFilter(bound=includeEndpointBoundTemplates, public=includePublicTemplates)
    return [template_response(one) for one in await managed.templates.list(by.account, included)]


@router.get("/{templateId}", responses=READS, response_model_exclude_none=True)
async def get_template(
    by: By,
    managed: Managed,
    templateId: TemplateId,
    includeEndpointBoundTemplates: _Flag = False,
    includePublicTemplates: _Flag = False,
    includeRunpodTemplates: _Flag = False,
) -> TemplateResponse:
    """Returns a template."""
    found = await managed.templates.get(by.account, templateId, public=includePublicTemplates)
    return template_response(found)


@router.patch("/{templateId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{templateId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_template(
    by: By, managed: Managed, templateId: TemplateId, body: TemplateUpdateInput
) -> TemplateResponse:
    """Changes a template."""
    changes = body.model_dump(exclude_unset=True)
    return template_response(await managed.templates.update(by.account, templateId, changes))


@router.delete("/{templateId}", **DELETES)
async def delete_template(by: By, managed: Managed, templateId: TemplateId) -> None:
    """Deletes a template that no endpoint is made from."""
    await managed.templates.delete(by.account, templateId)
