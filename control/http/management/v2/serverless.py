"""/v2/serverless: what takes jobs or requests at /v2/{endpointId}, and its workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from starlette.requests import Request

from stoker.control.errors import BadRequest
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.endpoints import EndpointCreateInput
from stoker.control.http.management.v2.container import container_fields
from stoker.control.http.management.v2.endpoint_bodies import (
    EndpointChange,
    EndpointCreate,
    check_together,
    endpoint_fields,
)
from stoker.control.http.management.v2.endpoint_records import (
    EndpointList,
    EndpointRecord,
    Releases,
    WorkerList,
    WorkerRecord,
    counted,
    endpoint_record,
    rollout,
    worker_record,
)
from stoker.control.http.management.v2.gpu_pools import pools_of
from stoker.control.http.management.v2.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Page,
    Unquoted,
    id_in_path,
    paged,
)
from stoker.control.http.management.v2.templates import new_template, template_fields
from stoker.control.resources import ManagedResources
from stoker.control.resources.templates import TemplateFilter
from stoker.control.rules.types import Endpoint, Template

router = APIRouter(prefix="/serverless", tags=["serverless"])

EndpointId = Annotated[str, id_in_path("endpoint"), Unquoted]
_CONTAINER = ("args", "disk", "env", "image", "ports", "registry")


@router.get("", responses=LISTS, response_model_exclude_unset=True)
async def list_endpoints(request: Request, by: By, managed: Managed, query: Page) -> EndpointList:
    """Lists endpoints: those that were created, those of the configuration file, and hosted models."""
    found, pagination = paged(managed.endpoints.list(by.account), lambda one: one.id, query)
    every = await managed.templates.list(by.account, TemplateFilter(bound=True, public=True))
    templates = {one.id: one for one in every}
    records = [_record(request, managed, one, templates.get(one.template)) for one in found]
    return EndpointList(endpoints=records, pagination=pagination)


@router.post("", **CREATES, response_model_exclude_unset=True)
async def create_endpoint(request: Request, by: By, managed: Managed, body: EndpointCreate) -> EndpointRecord:
    """Creates an endpoint, which takes jobs or requests at once."""
    given = body.model_dump(exclude_unset=True)
    if body.gpu is None and not body.cpu:
        raise BadRequest("an endpoint has either gpu or cpu; got neither")
    check_together(given, body.type, body.scaling.type)
    fields = endpoint_fields(given, managed.catalog.gpu_types())
    more = {name: fields.pop(name) for name in ("priorityFlashboot", "queueDelay") if name in fields}
    fields |= {"computeType": "CPU" if body.cpu else "GPU", "templateId": ""}
    requested = EndpointCreateInput.model_validate(fields).model_dump(exclude_none=True) | more
    if given.get("templateId"):
        own = await _copied(managed, by.account, given)
    elif given.get("image"):
        own = new_template({name: given[name] for name in ("name", *_CONTAINER) if name in given})
    else:
        raise BadRequest("image is required and missing: name an image, or a templateId that has one")
    made = await managed.endpoints.create(by.account, requested, by, own=own)
    return await _read(request, managed, made)


@router.get("/{endpointId}", responses=READS, response_model_exclude_unset=True)
async def get_endpoint(request: Request, by: By, managed: Managed, endpointId: EndpointId) -> EndpointRecord:
    """Returns an endpoint."""
    return await _read(request, managed, managed.endpoints.get(by.account, endpointId))


@router.patch("/{endpointId}", responses=CHANGES, response_model_exclude_unset=True)
async def update_endpoint(
    request: Request, by: By, managed: Managed, endpointId: EndpointId, body: EndpointChange
) -> EndpointRecord:
    """Changes an endpoint."""
    given, old = body.model_dump(exclude_unset=True), managed.endpoints.get(by.account, endpointId)
    check_together(given, old.type, body.scaling.type if body.scaling else old.scaler_type)
    _check_compute(given, on_cpus=managed.endpoints.on_cpus(old))
    changes = endpoint_fields(given, managed.catalog.gpu_types())
    gpu, types = given.get("gpu") or {}, old.run.needs.gpu_types
    same_order = gpu.get("pools") == pools_of(types)[0]
    if same_order and set(changes["gpuTypeIds"]) == set(types):
        del changes["gpuTypeIds"]  # the order that /v1 gave within a pool stays
    if changes.get("networkVolumeIds") == ([old.run.volume] if old.run.volume else []):
        del changes["networkVolumeIds"]  # it may be in the other field of the two
    if "instanceIds" in changes:
        changes |= {"cpuFlavorIds": None, "vcpuCount": None}
    if "scalerType" in changes and "queueDelay" in old.requested:
        changes.setdefault("queueDelay", None)
    own = None
    if given.get("templateId"):
        copied = await _copied(managed, by.account, given)
        own = lambda _: copied  # noqa: E731
    elif any(name in given for name in _CONTAINER):
        fields = container_fields(given)
        own = lambda before: {**before, **fields, "isPublic": False}  # noqa: E731
    return await _read(
        request, managed, await managed.endpoints.update(by.account, old.id, changes, by, own=own)
    )


@router.delete("/{endpointId}", **DELETES)
async def delete_endpoint(by: By, managed: Managed, endpointId: EndpointId) -> None:
    """Deletes an endpoint. Its jobs are cancelled, its workers stop, and its address exists no more."""
    await managed.endpoints.delete(by.account, endpointId)


@router.get("/{endpointId}/workers", responses=READS)
async def list_workers(by: By, managed: Managed, endpointId: EndpointId) -> WorkerList:
    """Lists an endpoint's workers, and counts them by their status."""
    endpoint = managed.endpoints.get(by.account, endpointId)
    found = _workers(managed, endpoint)
    return WorkerList(workers=found, summary=counted(found), endpointVersion=endpoint.version)


@router.get("/{endpointId}/releases", responses=READS)
async def list_releases(by: By, managed: Managed, endpointId: EndpointId) -> Releases:
    """Returns how far an endpoint's newest version is rolled out."""
    endpoint = managed.endpoints.get(by.account, endpointId)
    return Releases(
        endpointVersion=endpoint.version,
        rollout=rollout(_workers(managed, endpoint)),
        releases=[{"version": endpoint.version}],
    )


def _workers(managed: ManagedResources, endpoint: Endpoint) -> list[WorkerRecord]:
    now, nodes, found = managed.clock(), managed.cluster.nodes, []
    for worker in managed.endpoints.workers(endpoint):
        if worker.status != "EXITED":
            facts = nodes[worker.node].facts if worker.node in nodes else {}
            found.append(worker_record(worker, endpoint, facts.get("data_center", ""), now))
    return found


async def _copied(managed: ManagedResources, account: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of an endpoint's own template: those of the template that the body names, and over
    them those of the body."""
    of = await template_fields(managed, account, given["templateId"], serverless=True)
    env = {**of["env"], **given.get("env", {})}
    return {**of, **container_fields(given), "env": env, "isPublic": False}


def _check_compute(given: Mapping[str, Any], *, on_cpus: bool) -> None:
    if given.get("gpu") and on_cpus:
        raise BadRequest("the endpoint runs on CPUs, and gpu cannot be changed: make a new one")
    if given.get("cpu") and not on_cpus:
        raise BadRequest("the endpoint runs on GPUs, and cpu cannot be changed: make a new one")


async def _read(request: Request, managed: ManagedResources, endpoint: Endpoint) -> EndpointRecord:
    return _record(request, managed, endpoint, await managed.templates.of(endpoint))


def _record(
    request: Request, managed: ManagedResources, endpoint: Endpoint, template: Template | None
) -> EndpointRecord:
    return endpoint_record(
        endpoint,
        template,
        managed.catalog.data_centers(),
        f"{request.url.scheme}://{request.url.netloc}",
        on_cpus=managed.endpoints.on_cpus(endpoint),
    )
