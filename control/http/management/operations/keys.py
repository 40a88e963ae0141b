"""/v1/keys: API keys and join tokens. Only a key of scope "all" may use these operations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query
from pydantic import AfterValidator, AwareDatetime, BeforeValidator, ConfigDict, Field, model_validator

from stoker.control.errors import BadRequest, Unauthorized
from stoker.control.http.management.operations.caller import By, Managed, ThePlane
from stoker.control.http.management.operations.shapes import (
    CHANGES,
    CREATES,
    DELETES,
    LISTS,
    READS,
    Bound,
    Changes,
    Name,
    QuotaBody,
    RequestBody,
    ResponseBody,
    id_in_path,
)
from stoker.control.rules.access import ALL, Access, Caller
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.quotas import UNBOUNDED, Quota, used
from stoker.control.rules.types import KeyRecord

router = APIRouter(prefix="/keys", tags=["keys"])

Kind = Literal["key", "join"]
Right = Literal["none", "read", "write"]
Class = Literal["urgent", "normal", "low"]


async def _key_manager(by: By) -> Caller:
    if not by.access.keys:
        raise Unauthorized('only a key of scope "all" may see, make or change keys')
    return by


KeyManager = Annotated[Caller, Depends(_key_manager)]


def _text(value: Any) -> Any:
    if not isinstance(value, str | None):
        raise ValueError("must be a time as text, such as 2026-12-31T00:00:00Z")
    return value


def _in_utc(time: datetime) -> datetime:
    """Refuses times that cannot be returned in UTC: the last hours of 9999 may be in the year 10000 there."""
    try:
        return time.astimezone(UTC)
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


class _Exact(RequestBody):
    """Refuses unknown fields: a key with a misspelt right or end would otherwise be valid for everything."""

    model_config = ConfigDict(extra="forbid")


class AccessInput(_Exact):
    """The rights of a key, as callers send them. `management` and `endpoints` are for scope `restricted`; "*"
    is every endpoint that is not named."""

    model_config = ConfigDict(title="Access", json_schema_extra={"examples": [_RESTRICTED]})

    scope: Literal["all", "read", "restricted"]
    management: Right = "none"
    endpoints: dict[str, Right] = {}
    cases: Annotated[
        bool, Field(description="It may read the cases of jobs at the endpoints that it may read.")
    ] = False

    @model_validator(mode="after")
    def _is_restricted(self) -> AccessInput:
        if self.scope != "restricted":
            for field in sorted(self.model_fields_set - {"scope"}):
                raise ValueError(f'{field} is for scope "restricted"; scope "{self.scope}" says it all')
        return self

    def access(self) -> Access:
        return Access(self.scope, self.management, self.endpoints, cases=self.cases)


class KeyQuota(QuotaBody):
    model_config = ConfigDict(
        title="KeyQuota", json_schema_extra={"examples": [{"jobsWaiting": 100, "workers": 4}]}
    )

    workers: Annotated[
        Bound | None, Field(description="The sum of `workersMax` of the endpoints that it creates.")
    ] = None


class KeyCreateInput(_Exact):
    model_config = ConfigDict(json_schema_extra={"examples": [_KEY]})

    name: Name = "key"
    kind: Annotated[Kind, Field(description="An API key, or a token with which agents join.")] = "key"
    access: Annotated[AccessInput | None, Field(description="Of an API key; everything by default.")] = None
    quota: Annotated[KeyQuota | None, Field(description="Of an API key; unbounded by default.")] = None
    priority: Annotated[
        Class | None,
        Field(description="The highest class of jobs that an API key may submit; null: by its scope."),
    ] = None
    maxUses: Annotated[
        int | None,
        Field(ge=1, le=1_000_000, description="Of a join token: how many nodes may join with it."),
    ] = None
    expiresAt: When | None = None


class KeyUpdateInput(Changes, _Exact):
    """Changes of a key. What is left out stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [_KEY]})

    name: Name = ""
    access: AccessInput | None = None
    quota: Annotated[KeyQuota | None, Field(description="Replaces the whole quota; null: unbounded.")] = None
    priority: Annotated[Class | None, Field(description="null: by its scope.")] = None
    expiresAt: Annotated[When | None, Field(description="null: never.")] = None


class AccessResponse(ResponseBody):
    model_config = ConfigDict(title="KeyAccess")

    scope: str
    pod: Annotated[str | None, Field(description="Of scope `pod`: the one that it may read and stop.")] = None
    management: str | None = None
    endpoints: dict[str, str] | None = None
    cases: Annotated[bool | None, Field(description="true, or absent.")] = None


_RESPONSE: dict[str, Any] = {
    "id": "0a1b2c3d4e5f",
    "name": "ci",
    "kind": "key",
    "access": _RESTRICTED,
    "priority": "normal",
    "createdAt": "2026-01-05T08:00:00Z",
}


class UsedResponse(ResponseBody):
    """The use of a key, of what its quota bounds."""

    model_config = ConfigDict(title="Used")

    jobsWaiting: int | None = None
    workers: Annotated[int | None, Field(description="The sum of its endpoints' `workersMax`.")] = None
    gpuSecondsToday: Annotated[float | None, Field(description="Since 00:00 UTC.")] = None
    fileBytes: Annotated[int | None, Field(description="Since this process of the service was started.")] = (
        None
    )


class KeyResponse(ResponseBody):
    model_config = ConfigDict(title="Key", json_schema_extra={"examples": [_RESPONSE]})

    id: str
    name: str
    kind: Kind
    access: AccessResponse | None = None
    quota: KeyQuota | None = None
    priority: Annotated[
        Class | None,
        Field(
            description="The highest class of jobs that an API key may submit. Where none was set,"
            " scope `all` may submit `urgent` and any other scope `normal`."
        ),
    ] = None
    used: Annotated[
        UsedResponse | None, Field(description="The use of what the quota bounds; of one key only.")
    ] = None
    usesLeft: Annotated[
        int | None, Field(description="Of a join token: how many nodes may still join; absent: any number.")
    ] = None
    createdAt: datetime
    expiresAt: datetime | None = None
    lastUsedAt: Annotated[datetime | None, Field(description="Stored once a minute.")] = None


class NewKeyResponse(KeyResponse):
    model_config = ConfigDict(
        title="NewKey", json_schema_extra={"examples": [{**_RESPONSE, "key": "sk_0a1b2c3d4e5f_..."}]}
    )

    key: Annotated[str, Field(description="The key itself. It is shown this once.")]


KeyId = Annotated[str, id_in_path("key")]


def _at(time: float | None) -> datetime | None:
    return None if time is None else datetime.fromtimestamp(time, UTC)


def access_of(access: Access) -> AccessResponse:
    if access.scope != "restricted":
        return AccessResponse(scope=access.scope, pod=access.pod or None)
    rights = {name: str(right) for name, right in access.endpoints.items()}
    return AccessResponse(
        scope=access.scope, management=access.management, endpoints=rights, cases=access.cases or None
    )


def fields_of(record: KeyRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "name": record.name,
        "kind": record.kind,
        "access": access_of(record.access) if record.kind == "key" else None,
        "quota": KeyQuota(**record.quota.fields()) if record.quota != UNBOUNDED else None,
        "priority": str(record.priority or record.access.highest) if record.kind == "key" else None,
        "usesLeft": record.uses_left,
        "createdAt": _at(record.created_at),
        "expiresAt": _at(record.expires_at),
        "lastUsedAt": _at(record.last_used_at),
    }


def quota_of(body: KeyQuota | None) -> Quota:
    return UNBOUNDED if body is None else Quota.of(body.model_dump())


def class_of(name: Class | None) -> Priority | None:
    return None if name is None else Priority(name)


@router.post("", responses=CREATES, response_model_exclude_none=True)
async def create_key(by: KeyManager, managed: Managed, body: KeyCreateInput) -> NewKeyResponse:
    """Creates an API key or a join token, which is shown in this answer and never again."""
    expires_at = body.expiresAt.timestamp() if body.expiresAt else None
    if body.kind == "join":
        for field in {"access", "quota", "priority"} & body.model_fields_set:
            raise BadRequest(f"{field} is for API keys; a join token lets nodes join, and nothing else")
        made = managed.keys.create_join_token(
            by.account, name=body.name, uses=body.maxUses, expires_at=expires_at
        )
    else:
        if body.maxUses is not None:
            raise BadRequest(f'maxUses is for kind "join"; got {body.maxUses} for an API key')
        access = body.access.access() if body.access else ALL
        made = managed.keys.create(
            by.account,
            name=body.name,
            access=access,
            expires_at=expires_at,
            quota=quota_of(body.quota),
            priority=class_of(body.priority),
        )
    record, token = await made
    return NewKeyResponse(**fields_of(record), key=token)


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_keys(
    by: KeyManager, managed: Managed, kind: Annotated[Kind, Query()] = "key"
) -> list[KeyResponse]:
    """Lists API keys, or join tokens, that were not revoked."""
    return [KeyResponse(**fields_of(record)) for record in await managed.keys.list(by.account, kind)]


@router.get("/{keyId}", responses=READS, response_model_exclude_none=True)
async def get_key(by: KeyManager, managed: Managed, plane: ThePlane, keyId: KeyId) -> KeyResponse:
    """Returns the record of a key, never the key itself; and the use of what its quota bounds."""
    record = await managed.keys.get(by.account, keyId)
    kept = plane.uploaded_files.bytes_kept(f"key {keyId}")
    workers = managed.endpoints.workers_of_key(keyId)
    found = used(record.quota, await managed.keys.use(record), workers=workers, file_bytes=kept)
    return KeyResponse(**fields_of(record), used=UsedResponse.model_validate(found) if found else None)


@router.patch("/{keyId}", responses=CHANGES, response_model_exclude_none=True)
@router.post("/{keyId}/update", responses=CHANGES, response_model_exclude_none=True)
async def update_key(by: KeyManager, managed: Managed, keyId: KeyId, body: KeyUpdateInput) -> KeyResponse:
    """Changes a key's name, rights, quota, class or end."""
    changes: dict[str, Any] = {}
    if "name" in body.model_fields_set:
        changes["name"] = body.name
    if body.access is not None:
        changes["access"] = body.access.access()
    if "quota" in body.model_fields_set:
        changes["quota"] = quota_of(body.quota)
    if "priority" in body.model_fields_set:
        changes["priority"] = class_of(body.priority)
    if "expiresAt" in body.model_fields_set:
        changes["expires_at"] = body.expiresAt.timestamp() if body.expiresAt else None
    return KeyResponse(**fields_of(await managed.keys.update(by.account, keyId, changes)))


@router.delete("/{keyId}", **DELETES)
async def revoke_key(by: KeyManager, managed: Managed, keyId: KeyId) -> None:
    """Revokes a key. Nodes that joined with a revoked token are refused when they connect the next time."""
    await managed.keys.revoke(by.account, keyId)
