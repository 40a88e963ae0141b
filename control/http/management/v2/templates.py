"""/v2/templates: the templates from which endpoints and pods are made, which copy them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.errors import Unprocessable
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import Cuda, Port
from stoker.control.http.management.operations.templates import TemplateCreateInput
from stoker.control.http.management.v2.container import (
    container_fields,
    container_record,
    mount_fields,
    mounts_record,
)
from stoker.control.http.management.v2.pod_records import Container
from stoker.control.http.management.v2.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Args,
    Body,
    Disk,
    Env,
    Image,
    Name,
    Page,
    Pagination,
    PersistentMount,
    Record,
    Registry,
    Unquoted,
    id_in_path,
    paged,
)
from stoker.control.resources import ManagedResources
from stoker.control.resources.templates import TemplateFilter
from stoker.control.rules.types import Template

router = APIRouter(prefix="/templates", tags=["templates"])

_KEPT = "Kept, and returned: it decides nothing here."
Category = Literal["CPU", "NVIDIA", "AMD"]


class TemplateMounts(Body):
    persistent: PersistentMount | None = None


class _Template(Body):
    args: Args = ""
    disk: Disk = 50
    env: Env = {}
    ports: list[Port] = []
    registry: Registry = None
    mounts: TemplateMounts = TemplateMounts()
    serverless: Annotated[bool, Field(description="For endpoints, and not for pods.")] = False
    public: Annotated[bool, Field(description="Other accounts may read and use it.")] = False
    category: Annotated[Category, Field(description=_KEPT)] = "NVIDIA"
    startSsh: Annotated[bool, Field(description=_KEPT)] = True
    startJupyter: Annotated[bool, Field(description=_KEPT)] = True
    allowedCudaVersions: Annotated[list[Cuda], Field(description=_KEPT)] = []


class TemplateCreate(_Template):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "my template",
                    "image": "ghcr.io/example/worker:1.2",
                    "args": "python -u handler.py",
                    "disk": 20,
                    "env": {"MODE": "fast"},
                    "serverless": True,
                }
            ]
        }
    )

    name: Name
    image: Image


class TemplateChange(_Template):
    """Changes of a template. What is left out stays. Endpoints and pods that were made from it stay as they
    are; only endpoints that were made at /v1 change with it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"image": "ghcr.io/example/worker:1.3", "public": False}]}
    )

    name: Name = ""
    image: Image = ""


class TemplateRecord(Container):
    id: str
    name: str
    mounts: dict[str, Any]
    serverless: bool
    public: bool
    category: str
    startSsh: bool
    startJupyter: bool
    allowedCudaVersions: list[str]


class TemplateList(Record):
    templates: list[TemplateRecord]
    pagination: Pagination


TemplateId = Annotated[str, id_in_path("template"), Unquoted]

_NAMES = {
    "allowedCudaVersions": "allowedCudaVersions",
    "category": "category",
    "name": "name",
    "public": "isPublic",
    "serverless": "isServerless",
    "startJupyter": "startJupyter",
    "startSsh": "startSsh",
}
"""The fields besides those of the container, here and in the resources."""


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the resources' fields of those that a body has. Raises BadRequest."""
    fields = container_fields(given) | {
        theirs: given[name] for name, theirs in _NAMES.items() if name in given
    }
    return fields | mount_fields(given["mounts"]) if "mounts" in given else fields


def new_template(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all fields of a new template, those of /v1 with its defaults. Raises BadRequest."""
    fields = {"ports": [], "volumeInGb": 0, **_fields(given)}
    extra = {name: given.get(name, default) for name, default in _DEFAULTS.items()}
    shared = {name: value for name, value in fields.items() if name not in extra}
    return TemplateCreateInput.model_validate(shared).model_dump(exclude_none=True) | extra


_DEFAULTS: Mapping[str, Any] = {"allowedCudaVersions": [], "startJupyter": True, "startSsh": True}


def template_record(template: Template) -> TemplateRecord:
    fields = template.fields
    return TemplateRecord(
        **container_record(
            image=fields["imageName"],
            command=fields["dockerStartCmd"],
            disk_gb=fields["containerDiskInGb"],
            ports=fields["ports"],
            env=fields["env"],
            registry=fields.get("containerRegistryAuthId"),
        ),
        id=template.id,
        name=template.name,
        mounts=mounts_record(fields["volumeInGb"], fields["volumeMountPath"]),
        serverless=fields["isServerless"],
        public=fields["isPublic"],
        category=fields["category"],
        **{name: fields.get(name, default) for name, default in _DEFAULTS.items()},
    )


async def template_fields(
    managed: ManagedResources, account: str, template: str, *, serverless: bool
) -> Mapping[str, Any]:
    """Returns the fields of a template, which pods and endpoints copy. Raises NotFound, and Unprocessable if
    it is of the other kind."""
    found = await managed.templates.get(account, template, public=True)
    if bool(found.fields["isServerless"]) is not serverless:
        other = ("an endpoint", "a pod") if serverless else ("a pod", "an endpoint")
        raise Unprocessable(
            f"templateId must be of a template for {other[0]}; {template} is for {other[1]}"
            f" (serverless: {str(not serverless).lower()})"
        )
    return found.fields


@router.get("", responses=LISTS)
async def list_templates(by: By, managed: Managed, query: Page) -> TemplateList:
    """Lists the account's templates, without those that endpoints are made from."""
    found, pagination = paged(
        await managed.templates.list(by.account, TemplateFilter()), lambda one: one.id, query
    )
    return TemplateList(templates=[template_record(one) for one in found], pagination=pagination)


@router.post("", **CREATES)
async def create_template(by: By, managed: Managed, body: TemplateCreate) -> TemplateRecord:
    """Creates a template."""
    fields = new_template(body.model_dump(exclude_unset=True))
    return template_record(await managed.templates.create(by.account, fields))


@router.get("/{templateId}", responses=READS)
async def get_template(by: By, managed: Managed, templateId: TemplateId) -> TemplateRecord:
    """Returns a template, also another account's if it is public."""
    return template_record(await managed.templates.get(by.account, templateId, public=True))


@router.patch("/{templateId}", responses=CHANGES)
async def update_template(
    by: By, managed: Managed, templateId: TemplateId, body: TemplateChange
) -> TemplateRecord:
    """Changes a template."""
    changes = _fields(body.model_dump(exclude_unset=True))
    return template_record(await managed.templates.update(by.account, templateId, changes))


@router.delete("/{templateId}", **DELETES)
async def delete_template(by: By, managed: Managed, templateId: TemplateId) -> None:
    """Deletes a template that no endpoint is made from."""
    await managed.templates.delete(by.account, templateId)
