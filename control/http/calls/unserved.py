"""Interfaces of the field that are not served here: each is refused with a sentence, so none reads as done.

    POST /graphql              200 with `errors`, for any query: clients of GraphQL read nothing else
    /v2/{pods, serverless, …}  501: the field's next management API; /v1 manages the same resources

The key is checked first: a wrong one is a 401, which clients tell apart.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from stoker.control.auth.callers import Callers
from stoker.control.errors import Unauthorized

RESERVED = (
    *(
        "account",
        "billing",
        "catalog",
        "clusters",
        "flash",
        "global-volumes",
        "network-volumes",
        "openapi.json",
    ),
    *("pods", "queued-pods", "registries", "sandboxes", "serverless", "tags", "templates"),
)
"""The first segments of the field's management API below /v2."""

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_NO_GRAPHQL = (
    "GraphQL is not served here, and nothing was changed: pods, endpoints, templates and registries are"
    " managed with REST at /v1 (see /v1/docs), jobs at /v2/{endpoint_id}/run"
)
_NO_V2 = (
    "{path} is not served here, and nothing was changed: the same resources are managed at /v1 (see /v1/docs)"
)


def unserved(callers: Callers) -> APIRouter:
    """Returns the routes."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/graphql", methods=METHODS)
    async def graphql(request: Request) -> Response:
        try:
            await callers.find(request.headers.get("authorization"))
        except Unauthorized as error:
            return _json(401, {"errors": [{"message": str(error)}]})
        return _json(200, {"data": None, "errors": [{"message": _NO_GRAPHQL}]})

    async def management(request: Request) -> Response:
        try:
            await callers.find(request.headers.get("authorization"))
        except Unauthorized as error:
            return _problem(401, "Unauthorized", str(error))
        return _problem(501, "Not Implemented", _NO_V2.format(path=request.url.path[:200]))

    for name in RESERVED:
        for path in (f"/v2/{name}", f"/v2/{name}/{{rest:path}}"):
            router.add_api_route(path, management, methods=METHODS)
    return router


def _problem(status: int, title: str, detail: str) -> Response:
    """Returns RFC 9457's shape, with the keys in which other clients look for a message."""
    body = {"title": title, "status": status, "detail": detail, "error": detail, "message": detail}
    return _json(status, body, "application/problem+json")


def _json(status: int, body: dict[str, Any], media_type: str = "application/json") -> Response:
    return Response(orjson.dumps(body), status, media_type=media_type)
