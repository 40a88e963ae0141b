"""/v1/networkvolumes: folders that outlive workers and pods."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field, JsonValue

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Changes,
    Name,
    RequestBody,
    ResponseBody,
    id_in_path,
    refusals,
)
from stoker.control.rules.volumes import Volume

router = APIRouter(prefix="/networkvolumes", tags=["network volumes"])

_EXAMPLE: dict[str, JsonValue] = {"name": "my network volume", "size": 50, "dataCenterId": "EU-RO-1"}
Size = Annotated[int, Field(ge=0, le=4000, description="In GB, of 10^9 bytes each.", examples=[50])]


class NetworkVolumeCreateInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    name: str
    size: Size
    dataCenterId: Annotated[
        str,
        Field(
            description="A published name, or one that a node is labelled with. Nodes with another label do"
            " not get the volume; nodes without one do.",
            examples=["EU-RO-1"],
        ),
    ]


class NetworkVolumeUpdateInput(Changes):
    """Changes of a network volume. What is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "my network volume", "size": 100}]})

    name: Name | None = None
    size: Annotated[Size | None, Field(description="In GB; it may only grow.")] = None


class NetworkVolumeResponse(ResponseBody):
    model_config = ConfigDict(
        title="NetworkVolume",
        json_schema_extra={"examples": [{"id": "agv6w2qcg7", "networkVolumeId": "agv6w2qcg7", **_EXAMPLE}]},
    )

    id: str
    networkVolumeId: Annotated[str, Field(description="The same as `id`.")]
    name: str
    size: int
    dataCenterId: str
    usedBytes: Annotated[
        int | None, Field(description="What a node measured; absent while none has. Nothing enforces `size`.")
    ] = None
    usedAt: Annotated[datetime | None, Field(description="When that was.")] = None


NetworkVolumeId = Annotated[str, id_in_path("network volume")]


def volume_response(volume: Volume) -> NetworkVolumeResponse:
    at = volume.measured_at
    return NetworkVolumeResponse(
        id=volume.id,
        networkVolumeId=volume.id,
        name=volume.name,
        size=volume.size_gb,
        dataCenterId=volume.data_center,
        usedBytes=volume.used_bytes,
        usedAt=None if at is None else datetime.fromtimestamp(at, UTC),
    )


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_network_volume(
    by: By, managed: Managed, body: NetworkVolumeCreateInput
) -> NetworkVolumeResponse:
    """Creates a network volume. Its folder is made where a worker or a pod first uses the volume."""
    made = await managed.volumes.create(
        by.account, name=body.name, size_gb=body.size, data_center=body.dataCenterId
    )
    return volume_response(made)


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_network_volumes(by: By, managed: Managed) -> list[NetworkVolumeResponse]:
    """Lists network volumes."""
    return [volume_response(one) for one in managed.volumes.list(by.account)]


@router.get("/{networkVolumeId}", responses=READS, response_model_exclude_none=True)
async def get_network_volume(
    by: By, managed: Managed, networkVolumeId: NetworkVolumeId
) -> NetworkVolumeResponse:
    """Returns a network volume."""
    return volume_response(managed.volumes.get(by.account, networkVolumeId))


@router.patch("/{networkVolumeId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{networkVolumeId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_network_volume(
    by: By, managed: Managed, networkVolumeId: NetworkVolumeId, body: NetworkVolumeUpdateInput
) -> NetworkVolumeResponse:
    """Changes a network volume's name, or lets the volume grow."""
    changed = await managed.volumes.update(by.account, networkVolumeId, name=body.name, size_gb=body.size)
    return volume_response(changed)


@router.delete("/{networkVolumeId}", **(DELETES | {"responses": refusals(400)}))
async def delete_network_volume(by: By, managed: Managed, networkVolumeId: NetworkVolumeId) -> None:
    """Deletes a network volume that no endpoint and no pod has. Nodes remove what it holds. An id that is
    wrong, or was deleted, is a 400 here."""
    await managed.volumes.delete(by.account, networkVolumeId)
