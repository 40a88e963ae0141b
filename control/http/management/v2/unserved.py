"""The field's operations of management v2 that are not served: each is refused with a sentence, so none reads
as done."""

from __future__ import annotations

from typing import NoReturn

from fastapi import APIRouter
from starlette.requests import Request

from stoker.control.errors import NotServed

router = APIRouter(include_in_schema=False)

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_WHOLE = {
    "account": "of accounts, GET and PUT /v2/account/ssh-keys are; secrets are managed at /v1/secrets",
    "clusters": "there are no clusters here; pods are at /v2/pods",
    "flash": "deployed apps are endpoints of their own here: see `stoker dev`, and /v2/serverless",
    "global-volumes": "network volumes are at /v2/network-volumes",
    "queued-pods": "a pod is placed at once, or refused with the reason; pods are at /v2/pods",
    "sandboxes": "there are no sandboxes here; pods are at /v2/pods",
    "tags": "there are no tags here",
}
"""What stands below these first segments and is not served, and what is."""


async def unserved(request: Request) -> NoReturn:
    """Refuses whatever it is called with."""
    path = request.scope["path"][:200]
    first = path.removeprefix("/v2/").partition("/")[0]
    instead = _WHOLE.get(first, "see /v2/openapi.json for what is")
    raise NotServed(f"{path} is not served here, and nothing was changed: {instead}")


for _path in (
    *(f"/{first}{below}" for first in _WHOLE for below in ("", "/{rest:path}")),
    "/serverless/{endpointId}/builds",
):
    router.add_api_route(_path, unserved, methods=METHODS, response_model=None)
