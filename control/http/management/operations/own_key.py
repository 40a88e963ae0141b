"""/v1/self: the key that a request is made with, and its rights. Every key may read this."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import ConfigDict

from stoker.control.http.management.operations.caller import By
from stoker.control.http.management.operations.keys import AccessResponse, access_of
from stoker.control.http.management.operations.shapes import LISTS, ResponseBody

router = APIRouter(prefix="/self", tags=["keys"])

_RESPONSE: dict[str, Any] = {"id": "0a1b2c3d4e5f", "access": {"scope": "all"}}


class SelfResponse(ResponseBody):
    model_config = ConfigDict(title="Self", json_schema_extra={"examples": [_RESPONSE]})

    id: str
    access: AccessResponse


@router.get("", responses=LISTS, response_model_exclude_none=True)
async def get_self(by: By) -> SelfResponse:
    """Returns the id and the rights of the key that this request is made with."""
    return SelfResponse(id=by.key, access=access_of(by.access))
