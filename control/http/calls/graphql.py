"""GraphQL, which is not served here: `POST /graphql` answers 200 with `errors`, for any query.

Clients of GraphQL read nothing else, so none takes a refusal for a success. The key is checked first: a wrong
one is a 401, which clients tell apart.
"""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from stoker.control.auth.callers import Callers
from stoker.control.errors import Unauthorized

METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
_NO_GRAPHQL = (
    "GraphQL is not served here, and nothing was changed: pods, endpoints, templates and registries are"
    " managed with REST at /v2/pods, /v2/serverless, /v2/templates and /v2/registries (see"
    " /v2/openapi.json), or at /v1 (see /v1/docs); jobs are at /v2/{endpoint_id}/run"
)


def graphql(callers: Callers) -> APIRouter:
    """Returns the route that refuses."""
    router = APIRouter(include_in_schema=False)

    @router.api_route("/graphql", methods=METHODS)
    async def refuse(request: Request) -> Response:
        try:
            await callers.find(request.headers.get("authorization"))
        except Unauthorized as error:
            return _json(401, {"errors": [{"message": str(error)}]})
        return _json(200, {"data": None, "errors": [{"message": _NO_GRAPHQL}]})

    return router


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
