"""/v2/network-volumes: folders that outlive workers and pods; /v2/global-volumes, of which there are none."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.errors import BadRequest, Unprocessable
from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.v2.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Body,
    Name,
    Page,
    Pagination,
    Record,
    Unquoted,
    id_in_path,
    paged,
)
from stoker.control.rules.volumes import Volume

router = APIRouter(tags=["network volumes"])

Size = Annotated[int, Field(ge=10, le=4096, description="In GB, of 10^9 bytes each.")]


class VolumeCreate(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "models", "size": 100, "dataCenter": "EU-RO-1", "type": "STANDARD"}]
        }
    )

    name: Name
    size: Size
    dataCenter: Annotated[str, Field(description="One of /v2/catalog/datacenters.", examples=["EU-RO-1"])]
    type: Annotated[Literal["STANDARD", "HIGH_PERFORMANCE"], Field(description="Only STANDARD is there.")] = (
        "STANDARD"
    )


class VolumeChange(Body):
    """Changes of a network volume, at least one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"size": 200}]})

    name: Name | None = None
    size: Annotated[Size | None, Field(description="In GB; it may only grow.")] = None


class VolumeRecord(Record):
    id: str
    name: str
    size: int
    dataCenter: str
    type: Literal["STANDARD"]


class VolumeList(Record):
    networkVolumes: list[VolumeRecord]
    pagination: Pagination


class GlobalVolumeList(Record):
    globalVolumes: list[str]
    pagination: Pagination


VolumeId = Annotated[str, id_in_path("network volume"), Unquoted]


def _record(volume: Volume) -> VolumeRecord:
    return VolumeRecord(
        id=volume.id,
        name=volume.name,
        size=volume.size_gb,
        dataCenter=volume.data_center,
        type="STANDARD",
    )


@router.get("/network-volumes", responses=LISTS)
async def list_network_volumes(by: By, managed: Managed, query: Page) -> VolumeList:
    """Lists network volumes."""
    found, pagination = paged(managed.volumes.list(by.account), lambda one: one.id, query)
    return VolumeList(networkVolumes=[_record(one) for one in found], pagination=pagination)


@router.post("/network-volumes", **CREATES)
async def create_network_volume(by: By, managed: Managed, body: VolumeCreate) -> VolumeRecord:
    """Creates a network volume. Its folder is made where a worker or a pod first uses the volume."""
    if body.type != "STANDARD":
        raise BadRequest(f"type must be STANDARD, as no data centre has another; got {body.type}")
    made = await managed.volumes.create(
        by.account, name=body.name, size_gb=body.size, data_center=body.dataCenter
    )
    return _record(made)


@router.get("/network-volumes/{volumeId}", responses=READS)
async def get_network_volume(by: By, managed: Managed, volumeId: VolumeId) -> VolumeRecord:
    """Returns a network volume."""
    return _record(managed.volumes.get(by.account, volumeId))


@router.patch("/network-volumes/{volumeId}", responses=CHANGES)
async def update_network_volume(
    by: By, managed: Managed, volumeId: VolumeId, body: VolumeChange
) -> VolumeRecord:
    """Changes a network volume's name, or lets the volume grow."""
    if body.name is None and body.size is None:
        raise Unprocessable("the body must have name or size; it has neither")
    return _record(await managed.volumes.update(by.account, volumeId, name=body.name, size_gb=body.size))


@router.delete("/network-volumes/{volumeId}", **DELETES)
async def delete_network_volume(by: By, managed: Managed, volumeId: VolumeId) -> None:
    """Deletes a network volume that no endpoint and no pod has. Nodes remove what it holds."""
    managed.volumes.get(by.account, volumeId)
    await managed.volumes.delete(by.account, volumeId)


@router.get("/global-volumes", responses=LISTS)
async def list_global_volumes(by: By, query: Page) -> GlobalVolumeList:
    """Lists global volumes: there are none here, and none can be made."""
    none: list[str] = []
    found, pagination = paged(none, str, query)
    return GlobalVolumeList(globalVolumes=list(found), pagination=pagination)
