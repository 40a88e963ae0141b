"""/v1/keys: API keys and join tokens. Only a key of scope "all" may come here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field, model_validator

from stoker.control.access import ALL, Access, Caller
from stoker.control.api.management.caller import By, Managed
from stoker.control.api.management.shapes import (
    CHANGES,
    CREATES,
    LISTS,
    READS,
    Asked,
    Id,
    Name,
    Told,
    id_in_path,
)
from stoker.control.errors import BadRequest, Unauthorized
from stoker.control.types import KeyRecord

router = APIRouter(prefix="/keys", tags=["keys"])

Kind = Literal["key", "join"]
Right = Literal["none", "read", "write"]


async def _keeper(by: By) -> Caller:
    if not by.access.keys:
        raise Unauthorized('only a key of scope "all" may see, make or change keys')
    return by


Keeper = Annotated[Caller, Depends(_keeper)]


def _text(given: Any) -> Any:
    if not isinstance(given, str | None):
        raise ValueError("must be a time as text, such as 2026-12-31T00:00:00Z")
    return given


def _in_utc(given: datetime) -> datetime:
    """So that it can be told again: the last hours of 9999 are another year's elsewhere."""
    try:
        return given.astimezone(UTC)
    except OverflowError:
        raise ValueError("must lie in the years 1 to 9999 of UTC") from None


When = Annotated[
    AwareDatetime,
    Field(strict=False, examples=["2036-01-01T00:00:00Z"]),
    BeforeValidator(_text),
    AfterValidator(_in_utc),
]

_RESTRICTED: dict[str, Any] = {"scope": "restricted", "management": "none", "endpoints": {"*": "read"}}
_KEY: dict[str, Any] = {"name": "ci", "access": _RESTRICTED}


class AccessAsked(Asked):
    """`management` and `endpoints` are for scope `restricted`; "*" is every endpoint that is not named."""

    model_config = ConfigDict(title="Access", json_schema_extra={"examples": [_RESTRICTED]})

    scope: Literal["all", "read", "restricted"]
    management: Right = "none"
    endpoints: dict[Id | Literal["*"], Right] = {}

    @model_validator(mode="after")
    def _is_restricted(self) -> AccessAsked:
        if self.scope != "restricted":
            for field in sorted(self.model_fields_set - {"scope"}):
                raise ValueError(f'{field} is for scope "restricted"; scope "{self.scope}" says it all')
        return self

    def access(self) -> Access:
        return Access(self.scope, self.management, self.endpoints)


class KeyCreateInput(Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [_KEY]})

    name: Name = "key"
    kind: Annotated[Kind, Field(description="An API key, or a token with which agents join.")] = "key"
    access: Annotated[AccessAsked | None, Field(description="Of an API key; everything by default.")] = None
    maxUses: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Of a join token: how many nodes may join with it."),
    ] = None
    expiresAt: When | None = None


class KeyUpdateInput(Asked):
    """What is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [_KEY]})

    name: Name = ""
    access: AccessAsked | None = None
    expiresAt: Annotated[When | None, Field(description="null: never.")] = None


class AccessTold(Told):
    scope: str
    management: str | None = None
    endpoints: dict[str, str] | None = None


_TOLD: dict[str, Any] = {
    "id": "0a1b2c3d4e5f",
    "name": "ci",
    "kind": "key",
    "access": _RESTRICTED,
    "createdAt": "2026-01-05T08:00:00Z",
}


class KeyTold(Told):
    model_config = ConfigDict(title="Key", json_schema_extra={"examples": [_TOLD]})

    id: str
    name: str
    kind: Kind
    access: AccessTold | None = None
    usesLeft: Annotated[
        int | None, Field(description="Of a join token: how many nodes may still join; absent: any number.")
    ] = None
    createdAt: datetime
    expiresAt: datetime | None = None
    lastUsedAt: Annotated[datetime | None, Field(description="Stored once a minute.")] = None


class NewKeyTold(KeyTold):
    model_config = ConfigDict(
        title="NewKey", json_schema_extra={"examples": [{**_TOLD, "key": "sk_0a1b2c3d4e5f_..."}]}
    )

    key: Annotated[str, Field(description="The key itself. It is shown this once.")]


KeyId = Annotated[str, id_in_path("key")]


def _at(time: float | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time, UTC)


def _access(access: Access) -> AccessTold:
    if access.scope != "restricted":
        return AccessTold(scope=access.scope)
    rights = {name: str(right) for name, right in access.endpoints.items()}
    return AccessTold(scope=access.scope, management=access.management, endpoints=rights)


def fields_of(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "kind": record.kind,
        "access": _access(record.access) if record.kind == "key" else None,
        "usesLeft": record.uses_left,
        "createdAt": _at(record.created_at),
        "expiresAt": _at(record.expires_at),
        "lastUsedAt": _at(record.last_used_at),
    }


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_key(by: Keeper, managed: Managed, asked: KeyCreateInput) -> NewKeyTold:
    """Create an API key or a join token. It is shown in this answer and never again."""
    expires_at = asked.expiresAt.timestamp() if asked.expiresAt else None
    if asked.kind == "join":
        if asked.access is not None:
            raise BadRequest("access is for API keys; a join token lets nodes join, and nothing else")
        made = managed.keys.create_join_token(
            by.account, name=asked.name, uses=asked.maxUses, expires_at=expires_at
        )
    else:
        if asked.maxUses is not None:
            raise BadRequest(f'maxUses is for kind "join"; got {asked.maxUses} for an API key')
        access = asked.access.access() if asked.access else ALL
        made = managed.keys.create(by.account, name=asked.name, access=access, expires_at=expires_at)
    record, token = await made
    return NewKeyTold(**fields_of(record), key=token)


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_keys(by: Keeper, managed: Managed, kind: Annotated[Kind, Query()] = "key") -> list[KeyTold]:
    """List API keys, or join tokens, that were not revoked."""
    return [KeyTold(**fields_of(record)) for record in await managed.keys.list(by.account, kind)]


@router.get("/{keyId}", responses=READS, response_model_exclude_none=True)
async def get_key(by: Keeper, managed: Managed, keyId: KeyId) -> KeyTold:
    """Read one key; never the key itself."""
    return KeyTold(**fields_of(await managed.keys.get(by.account, keyId)))


@router.patch("/{keyId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{keyId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_key(by: Keeper, managed: Managed, keyId: KeyId, asked: KeyUpdateInput) -> KeyTold:
    """Change a key's name, rights or end."""
    changes: dict[str, Any] = {}
    if "name" in asked.model_fields_set:
        changes["name"] = asked.name
    if asked.access is not None:
        changes["access"] = asked.access.access()
    if "expiresAt" in asked.model_fields_set:
        changes["expires_at"] = asked.expiresAt.timestamp() if asked.expiresAt else None
    return KeyTold(**fields_of(await managed.keys.update(by.account, keyId, changes)))


@router.delete("/{keyId}", status_code=204, responses=READS)
async def revoke_key(by: Keeper, managed: Managed, keyId: KeyId) -> None:
    """Revoke a key. Nodes that joined with a token are refused when they connect the next time."""
    await managed.keys.revoke(by.account, keyId)
