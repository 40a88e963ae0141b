"""The FastAPI application over a plane: the operations of every endpoint, `/ping`, and their documentation.

host below the gateway's domain? ─yes─> the gateway
a route here? ─yes─> its answer     no ──> the gateway, which passes on what names none of its endpoints
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp

from stoker.control.http.calls import documented, jobs, welcome
from stoker.control.http.calls.answers import error_body, json_answer, method_not_allowed, unexpected
from stoker.control.http.calls.calls import Operations
from stoker.control.http.calls.explorer import add_explorer, assets
from stoker.control.http.calls.front import Front
from stoker.control.http.calls.graphql import graphql
from stoker.control.http.calls.openai import routes as openai
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.health.metrics import metrics
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
        "X-Request-Id",
        "X-Runpod-Worker-Id",
        "X-Should-Retry",
    ),
)
"""Headers that pages may read: all, as a worker has its own. Older browsers know no `*`, and need names."""


class Documented(FastAPI):
    """The application with the document of its operations and of the endpoints that exist now."""

    operations: Operations

    def openapi(self) -> dict[str, Any]:
        """Returns the document. FastAPI learns of keys, submissions and refusals from signatures, which here
        say nothing of them."""
        routes = [*self.operations.routes, *self.routes]
        document = get_openapi(title=self.title, version=self.version, routes=routes)
        shapes = {**document["components"]["schemas"], **documented.more_shapes()}
        for unused in ("HTTPValidationError", "ValidationError"):
            shapes.pop(unused, None)
        for operations in document["paths"].values():
            for operation in operations.values():
                if "HTTPValidationError" in str(operation["responses"].get("422")):
                    del operation["responses"]["422"]
        found = [one for one in self.operations.plane.endpoints.by_id.values() if one.type == "QUEUE"]
        inputs = {documented.input_name(one.id): one.run.schema for one in found if one.run.schema}
        return {
            **document,
            "info": {**document["info"], "description": documented.endpoints_described(found)},
            "components": {"securitySchemes": documented.SECURITY, "schemas": {**shapes, **inputs}},
        }


GatewayMaker: TypeAlias = Callable[[ASGIApp], ASGIApp]
"""Makes what serves load-balancing endpoints, of what serves the rest."""


def make_app(
    plane: Plane,
    settings: ApiSettings | None = None,
    management: ASGIApp | None = None,
    gateway: GatewayMaker | None = None,
    probes: APIRouter | None = None,
) -> ASGIApp:
    """Returns the application, behind the CORS middleware where browsers may call. `management`, where given,
    answers below /v1, and below the names of /v2 that are reserved for it."""
    settings = settings or ApiSettings()
    app = Documented(
        title="Stoker", version=settings.version, redirect_slashes=False, docs_url=None, redoc_url=None
    )
    # Its middleware and a second search among its routes would cost each job 10 us.
    app.operations = Operations(plane, settings, [*jobs.ROUTES, *openai.ROUTES])
    app.operations.default = app
    if gateway is not None:
        app.operations.default = app.operations.of_workers = gateway(app)
    app.add_api_route("/ping", _ping, methods=["GET", "HEAD"], include_in_schema=False)
    app.include_router(welcome.router)
    app.include_router(graphql(plane.callers))
    app.include_router(metrics(plane))
    if probes is not None:
        app.include_router(probes)
    app.router.routes.append(assets())
    add_explorer(app, "/openapi.json")
    if management is not None:
        app.router.routes.append(_below("/v1", management))
        app.operations.management = management
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    front = Front(app, app.operations, settings.gateway_domain, plane.traces)
    return _for_browsers(front, settings.cors_origins) if settings.cors_origins else front


def _for_browsers(front: Front, origins: tuple[str, ...]) -> ASGIApp:
    """Pages of these origins may call with a key of theirs, and send any header: clients have their own, such
    as `x-stainless-*` and `traceparent`. A browser's preflight requests need no key."""
    return CORSMiddleware(
        front,
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


async def _ping() -> dict[str, str]:
    return {"status": "ok"}


async def _http_error(request: Request, error: Exception) -> Response:
    """Returns what FastAPI refuses by itself, in our shape."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return method_not_allowed(request.app.routes, request.scope)
    message = NO_PATH if error.status_code == 404 else str(error.detail)
    return json_answer(error_body(error.status_code, message), error.status_code)


async def _unexpected_error(_: Request, error: Exception) -> Response:
    return unexpected(error)
