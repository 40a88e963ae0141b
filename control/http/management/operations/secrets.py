"""/v1/secrets: values to which environments refer by name. They are stored, and never returned."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ConfigDict, Field

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import (
    CREATES,
    DELETES,
    LISTS,
    RequestBody,
    ResponseBody,
)
from stoker.control.resources.secrets import VALUE_BYTES
from stoker.control.store import NamedSecret

router = APIRouter(prefix="/secrets", tags=["secrets"])

SecretName = Annotated[
    str,
    Path(
        description="As references name it: `{{ STOKER_SECRET_name }}`.",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$",
    ),
]


class SecretInput(RequestBody):
    model_config = ConfigDict(json_schema_extra={"examples": [{"value": "hf_1234"}]})

    value: Annotated[
        str,
        Field(
            min_length=1,
            max_length=VALUE_BYTES,
            description=f"At most {VALUE_BYTES} bytes.",
            json_schema_extra={"writeOnly": True},
            repr=False,
        ),
    ]


class SecretResponse(ResponseBody):
    model_config = ConfigDict(
        title="Secret",
        json_schema_extra={
            "examples": [
                {
                    "name": "hf_token",
                    "createdAt": "2026-01-05T08:00:00Z",
                    "changedAt": "2026-02-01T09:30:00Z",
                }
            ]
        },
    )

    name: str
    createdAt: datetime
    changedAt: datetime


def _response(secret: NamedSecret) -> SecretResponse:
    created, changed = (datetime.fromtimestamp(at, UTC) for at in (secret.created_at, secret.changed_at))
    return SecretResponse(name=secret.name, createdAt=created, changedAt=changed)


@router.put("/{name}", responses=CREATES)
async def put_secret(by: By, managed: Managed, name: SecretName, body: SecretInput) -> SecretResponse:
    """Stores a secret, or changes it. Workers and pods that are made from now on get the new value; existing
    ones keep the old value."""
    return _response(await managed.secrets.put(by.account, name, body.value))


@router.get("", responses=LISTS)
async def list_secrets(by: By, managed: Managed) -> list[SecretResponse]:
    """Lists the names of secrets."""
    return [_response(one) for one in await managed.secrets.list(by.account)]


@router.delete("/{name}", **DELETES)
async def delete_secret(by: By, managed: Managed, name: SecretName) -> None:
    """Deletes a secret that no template, endpoint or pod refers to."""
    await managed.secrets.delete(by.account, name)
