"""The FastAPI application over a plane: the operations of every endpoint, `/ping`, and their documentation.

FastAPI routes and documents. Operations go straight from the server to `router`, as FastAPI's layers cost
more than the rest of a no-op job's HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp

from stoker.control.config.endpoints import Endpoints
from stoker.control.http.calls import documents, schemas, welcome
from stoker.control.http.calls.answers import error_body, unexpected
from stoker.control.http.calls.explorer import add_explorer, assets
from stoker.control.http.calls.operations import Operation, Operations
from stoker.control.http.calls.router import PREFIX, OperationRouter, method_not_allowed
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.calls.unserved import unserved
from stoker.control.plane import Plane

NO_PATH = "there is nothing at this path; operations are at /v2/{endpoint_id}/{operation}, see /docs"

_EXPOSED_HEADERS = (
    "*",
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Location", "OpenAI-Poll-After-Ms"),
    *(
        "RateLimit",
        "RateLimit-Policy",
        "Retry-After",
        "Stoker-Ignored",
        "X-Runpod-Worker-Id",
        "X-Should-Retry",
    ),
)
"""Headers that pages may read: all, as a worker has its own. Older browsers know no `*`, and need names."""

_SECURITY = {"key": {"type": "http", "scheme": "bearer", "description": "An API key; the bare key will do."}}


class Documented(FastAPI):
    """The application for all but operations: the documentation, the probe, and paths that do not exist."""

    endpoints: Endpoints

    def openapi(self) -> dict[str, Any]:
        """Returns the document of the endpoints that exist now. FastAPI learns of security and shapes from
        functions' signatures, which here say nothing."""
        found = [one for one in self.endpoints.by_id.values() if one.type == "QUEUE"]
        inputs = {documents.input_name(one.id): one.run.schema for one in found if one.run.schema}
        shapes = {**schemas.COMPONENTS, **inputs}
        document = super().openapi()
        return {
            **document,
            "info": {**document["info"], "description": documents.endpoints_described(found)},
            "components": {"securitySchemes": _SECURITY, "schemas": shapes},
        }


GatewayMaker: TypeAlias = Callable[[frozenset[str], ASGIApp], ASGIApp]
"""Makes what serves load-balancing endpoints, of the names of the operations and what serves the rest."""


def make_app(
    plane: Plane,
    settings: ApiSettings | None = None,
    management: ASGIApp | None = None,
    gateway: GatewayMaker | None = None,
    probes: APIRouter | None = None,
) -> ASGIApp:
    """Returns the router of operations, behind the CORS middleware where browsers may call. `management`,
    where given, answers below /v1."""
    settings = settings or ApiSettings()
    app = Documented(
        title="Stoker", version=settings.version, redirect_slashes=False, docs_url=None, redoc_url=None
    )
    app.endpoints = plane.endpoints
    operations = Operations(plane, settings)
    otherwise = app if gateway is None else gateway(frozenset(operations.table), app)
    router = OperationRouter(plane, operations, settings, otherwise)
    for name, operation in operations.table.items():
        # A path of any depth, such as that of `openai`, cannot be written in an OpenAPI document.
        for method in () if operation.takes_path else operation.methods:
            app.router.routes.append(_documented(router, name, method, operation))
    app.add_api_route("/ping", _ping, methods=["GET", "HEAD"], include_in_schema=False)
    app.include_router(welcome.router)
    app.include_router(unserved(plane.callers))
    if probes is not None:
        app.include_router(probes)
    app.router.routes.append(assets())
    add_explorer(app, "/openapi.json")
    if management is not None:
        app.router.routes.append(_below("/v1", management))
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return _for_browsers(router, settings.cors_origins) if settings.cors_origins else router


def _for_browsers(router: OperationRouter, origins: tuple[str, ...]) -> ASGIApp:
    """Pages of these origins may call with a key of theirs, and send any header: clients have their own, such
    as `x-stainless-*` and `traceparent`. A browser's preflight requests need no key."""
    return CORSMiddleware(
        router,
        allow_origins=origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=_EXPOSED_HEADERS,
    )


def _below(prefix: str, app: ASGIApp) -> Mount:
    """Returns a mount of all paths that begin with the prefix, so that `app` refuses the unknown paths among
    them: a plain Mount leaves out paths with a line break."""
    mount = Mount(prefix, app)
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    return mount


def _documented(router: OperationRouter, name: str, method: str, operation: Operation) -> APIRoute:
    """Returns a route of the documentation. A request that comes this way reaches the router, too."""
    path = f"/{PREFIX}/{{endpoint_id}}/{name}" + ("/{job_id}" if operation.takes_job else "")
    extra: documents.Document = {
        "parameters": documents.parameters(name, takes_job=operation.takes_job),
        "security": [{"key": []}],
    }
    body = documents.request_body(name)
    if body is not None:
        extra["requestBody"] = body
    route = APIRoute(
        path,
        _ping,
        methods=[method],
        response_model=None,
        name=f"{name} {method}",
        operation_id=f"{name}-{method.lower()}",
        summary=documents.SUMMARIES[name],
        description=documents.description(name),
        responses=documents.responses(name, takes_job=operation.takes_job),
        openapi_extra=extra,
        tags=["jobs"],
    )
    route.app = router
    return route


async def _ping() -> dict[str, str]:
    return {"status": "ok"}


async def _http_error(request: Request, error: Exception) -> Response:
    """Returns what FastAPI refuses by itself, in our shape."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405 and error.headers is not None:
        allowed = tuple(sorted(error.headers["Allow"].split(", ")))
        answer = method_not_allowed(request.method, allowed)
        return _rendered(answer.body, 405, {"allow": ", ".join(allowed)})
    message = NO_PATH if error.status_code == 404 else str(error.detail)
    return _rendered(orjson.dumps(error_body(error.status_code, message)), error.status_code, error.headers)


async def _unexpected_error(_: Request, error: Exception) -> Response:
    answer = unexpected(error)
    return _rendered(answer.body, answer.status, None)


def _rendered(body: bytes, status: int, headers: Mapping[str, str] | None) -> Response:
    return Response(body, status, headers, media_type="application/json")
