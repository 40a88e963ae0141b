"""/v1/audit: what was changed over the management API, and by which key."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, ConfigDict, Field

from stoker.control.http.management.operations.caller import By, Managed
from stoker.control.http.management.operations.shapes import LISTS, ResponseBody
from stoker.control.rules.types import AuditLine

router = APIRouter(prefix="/audit", tags=["audit"])


class AuditLineResponse(ResponseBody):
    model_config = ConfigDict(
        title="AuditLine",
        json_schema_extra={
            "examples": [
                {
                    "id": 17,
                    "at": "2026-01-05T08:00:00Z",
                    "key": "0a1b2c3d4e5f",
                    "method": "DELETE",
                    "path": "/v1/pods/30zmvf89kd",
                    "status": 204,
                    "message": "",
                }
            ]
        },
    )

    id: int
    at: datetime
    key: Annotated[
        str,
        Field(
            description='The id of the key that asked; "unknown" where it is none; "local:" and a user of the'
            " machine where a command worked on the store itself."
        ),
    ]
    method: str
    path: str
    status: Annotated[
        int | None, Field(description="Absent where the service went away before it answered.")
    ] = None
    message: Annotated[str, Field(description="Why it was refused, where it was.")]


def _response(line: AuditLine) -> AuditLineResponse:
    at = datetime.fromtimestamp(line.at, UTC)
    return AuditLineResponse(
        id=line.n,
        at=at,
        key=line.key,
        method=line.method,
        path=line.path,
        status=line.status,
        message=line.message,
    )


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def list_audit(
    by: By,
    managed: Managed,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[
        int | None, Query(ge=1, le=2**63 - 1, description="The smallest id that was seen: what is older.")
    ] = None,
    since: Annotated[AwareDatetime | None, Query(description="Nothing from before this time.")] = None,
) -> list[AuditLineResponse]:
    """Lists changes and refusals of the last 90 days, the newest first."""
    lines = await managed.audit.list(
        by.account, limit=limit, before=before, since=since.timestamp() if since else None
    )
    return [_response(line) for line in lines]
