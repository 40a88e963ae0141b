"""/v1/containerregistryauth: credentials for pulling images. No answer contains a username or a password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import (
    CREATES,
    DELETES,
    LISTS,
    READS,
    RequestBody,
    ResponseBody,
    id_in_path,
)
from stoker.control.store import Registry
from stoker.wire.messages import RegistryAuth

router = APIRouter(prefix="/containerregistryauth", tags=["container registry auths"])


class ContainerRegistryAuthCreateInput(RequestBody):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "my creds", "username": "my-username", "password": "my-password"}]
        }
    )

    name: str
    username: str
    password: Annotated[
        str, Field(min_length=1, max_length=64 * 1024, json_schema_extra={"writeOnly": True}, repr=False)
    ]


class ContainerRegistryAuthResponse(ResponseBody):
    model_config = ConfigDict(
        title="ContainerRegistryAuth",
        json_schema_extra={"examples": [{"id": "clzdaifot0001l90809257ynb", "name": "my creds"}]},
    )

    id: str
    name: str


RegistryAuthId = Annotated[str, id_in_path("container registry auth")]


def _response(registry: Registry) -> ContainerRegistryAuthResponse:
    return ContainerRegistryAuthResponse(id=registry.id, name=registry.name)


@router.post("", responses=CREATES)
async def create_container_registry_auth(
    by: By, managed: Managed, body: ContainerRegistryAuthCreateInput
) -> ContainerRegistryAuthResponse:
    """Creates a container registry auth."""
    login = RegistryAuth(body.username, body.password)
    return _response(await managed.registries.create(by.account, body.name, login))


@router.get("", responses=LISTS)
async def list_container_registry_auths(by: By, managed: Managed) -> list[ContainerRegistryAuthResponse]:
    """Lists container registry auths, those of the configuration file too."""
    return [_response(one) for one in await managed.registries.list(by.account)]


@router.get("/{containerRegistryAuthId}", responses=READS)
async def get_container_registry_auth(
    by: By, managed: Managed, containerRegistryAuthId: RegistryAuthId
) -> ContainerRegistryAuthResponse:
    """Returns a container registry auth."""
    return _response(await managed.registries.get(by.account, containerRegistryAuthId))


@router.delete("/{containerRegistryAuthId}", **DELETES)
async def delete_container_registry_auth(
    by: By, managed: Managed, containerRegistryAuthId: RegistryAuthId
) -> None:
    """Deletes a container registry auth that no template, endpoint or pod uses."""
    await managed.registries.delete(by.account, containerRegistryAuthId)
