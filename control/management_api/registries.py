"""/v1/containerregistryauth: what images are pulled with. No answer holds a username or a password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.api.management.caller import By, Managed
from stoker.control.api.management.shapes import (
    CREATES,
    LISTS,
    READS,
    Asked,
    Name,
    Told,
    id_in_path,
    refusals,
)
from stoker.control.store import Registry
from stoker.wire.messages import RegistryAuth

router = APIRouter(prefix="/containerregistryauth", tags=["container registry auths"])


class ContainerRegistryAuthCreateInput(Asked):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "my creds", "username": "my-username", "password": "my-password"}]
        }
    )

    name: Name
    username: Annotated[str, Field(min_length=1, max_length=191)]
    password: Annotated[
        str, Field(min_length=1, max_length=64 * 1024, json_schema_extra={"writeOnly": True}, repr=False)
    ]


class ContainerRegistryAuthTold(Told):
    model_config = ConfigDict(
        title="ContainerRegistryAuth",
        json_schema_extra={"examples": [{"id": "clzdaifot0001l90809257ynb", "name": "my creds"}]},
    )

    id: str
    name: str


RegistryAuthId = Annotated[str, id_in_path("container registry auth")]


def _told(registry: Registry) -> ContainerRegistryAuthTold:
    return ContainerRegistryAuthTold(id=registry.id, name=registry.name)


@router.post("", responses=CREATES)
async def create_container_registry_auth(
    by: By, managed: Managed, asked: ContainerRegistryAuthCreateInput
) -> ContainerRegistryAuthTold:
    """Create a container registry auth."""
    login = RegistryAuth(asked.username, asked.password)
    return _told(await managed.registries.create(by.account, asked.name, login))


@router.get("", responses=LISTS)
async def list_container_registry_auths(by: By, managed: Managed) -> list[ContainerRegistryAuthTold]:
    """List container registry auths, those of the configuration file too."""
    return [_told(one) for one in await managed.registries.list(by.account)]


@router.get("/{containerRegistryAuthId}", responses=READS)
async def get_container_registry_auth(
    by: By, managed: Managed, containerRegistryAuthId: RegistryAuthId
) -> ContainerRegistryAuthTold:
    """Read one container registry auth."""
    return _told(await managed.registries.get(by.account, containerRegistryAuthId))


@router.delete("/{containerRegistryAuthId}", status_code=204, responses=refusals(400))
async def delete_container_registry_auth(
    by: By, managed: Managed, containerRegistryAuthId: RegistryAuthId
) -> None:
    """Delete a container registry auth that no template, endpoint or pod uses."""
    await managed.registries.delete(by.account, containerRegistryAuthId)
