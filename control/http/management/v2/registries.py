"""/v2/registries: credentials for pulling images. No answer contains a username or a password."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.v2.shapes import (
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
from stoker.control.store import Registry
from stoker.wire.messages import RegistryAuth

router = APIRouter(prefix="/registries", tags=["registries"])


class RegistryCreate(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "my creds", "username": "my-username", "password": "my-password"}]
        }
    )

    name: Name
    username: str
    password: Annotated[
        str, Field(min_length=1, max_length=64 * 1024, json_schema_extra={"writeOnly": True}, repr=False)
    ]


class RegistryRecord(Record):
    id: str
    name: str


class RegistryList(Record):
    registries: list[RegistryRecord]
    pagination: Pagination


RegistryId = Annotated[str, id_in_path("registry"), Unquoted]


def _record(registry: Registry) -> RegistryRecord:
    return RegistryRecord(id=registry.id, name=registry.name)


@router.get("", responses=LISTS)
async def list_registries(by: By, managed: Managed, query: Page) -> RegistryList:
    """Lists registries, those of the configuration file too."""
    found, pagination = paged(await managed.registries.list(by.account), lambda one: one.id, query)
    return RegistryList(registries=[_record(one) for one in found], pagination=pagination)


@router.post("", **CREATES)
async def create_registry(by: By, managed: Managed, body: RegistryCreate) -> RegistryRecord:
    """Creates a registry."""
    login = RegistryAuth(body.username, body.password)
    return _record(await managed.registries.create(by.account, body.name, login))


@router.get("/{registryId}", responses=READS)
async def get_registry(by: By, managed: Managed, registryId: RegistryId) -> RegistryRecord:
    """Returns a registry."""
    return _record(await managed.registries.get(by.account, registryId))


@router.delete("/{registryId}", **DELETES)
async def delete_registry(by: By, managed: Managed, registryId: RegistryId) -> None:
    """Deletes a registry that no template, endpoint or pod uses."""
    await managed.registries.delete(by.account, registryId)
