"""The FastAPI application over a plane: the operations of every endpoint, `/ping`, and their documentation.

FastAPI routes and documents; what is asked often goes straight from the server to `door`, as the plumbing
between costs more than the rest of a no-op job's HTTP. Both ways reach the same code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.api import documents, schemas
from stoker.control.api.answers import error_body, unexpected
from stoker.control.api.door import PREFIX, Door
from stoker.control.api.limits import Limits
from stoker.control.api.operations import Operation, Operations
from stoker.control.api.seam import ApiSettings, PlaneApi

NO_PATH = "there is nothing at this path; operations are at /v2/{endpoint_id}/{operation}, see /docs"

_SENT = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID")
_TOLD = ("Retry-After", "RateLimit", "RateLimit-Policy")
"""Headers that pages may send, and may read."""

_SECURITY = {"key": {"type": "http", "scheme": "bearer", "description": "An API key; the bare key will do."}}


class ControlApp(FastAPI):
    """A FastAPI whose requests pass the door first, or what tells browsers that they may call."""

    door: Door
    front: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.front(scope, receive, send)

    async def routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is no operation: the documentation, the probe, and paths that do not exist."""
        await super().__call__(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """FastAPI learns of security and shapes from its functions' signatures, which here say nothing."""
        document = super().openapi()
        document["components"] = {"securitySchemes": _SECURITY, "schemas": schemas.COMPONENTS}
        return document


def make_app(
    plane: PlaneApi, settings: ApiSettings | None = None, management: ASGIApp | None = None
) -> FastAPI:
    """`management` is what answers below /v1, where anything does."""
    settings = settings or ApiSettings()
    app = ControlApp(title="Stoker", version=settings.version, redirect_slashes=False, redoc_url=None)
    operations = Operations(plane, settings)
    app.door = Door(plane, operations, Limits(plane, settings), app.routed)
    app.front = _for_browsers(app.door, settings.cors_origins) if settings.cors_origins else app.door
    for name, operation in operations.table.items():
        for method in operation.methods:
            app.router.routes.append(_documented(app.door, name, method, operation))
    app.add_api_route("/ping", _ping, methods=["GET"], include_in_schema=False)
    if management is not None:
        app.router.routes.append(_below("/v1", management))
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    return app


def _for_browsers(door: Door, origins: tuple[str, ...]) -> ASGIApp:
    """Pages of these origins may call with a key of theirs; what a browser asks beforehand needs none."""
    return CORSMiddleware(
        door, allow_origins=origins, allow_methods=["*"], allow_headers=_SENT, expose_headers=_TOLD
    )


def _below(prefix: str, app: ASGIApp) -> Mount:
    """All that begins so is its own to refuse: a Mount leaves out paths with a line break."""
    mount = Mount(prefix, app)
    mount.path_regex = re.compile(mount.path_regex.pattern, re.DOTALL)
    return mount


def _documented(door: Door, name: str, method: str, operation: Operation) -> APIRoute:
    """A route of the documentation; should a request come this way, it reaches the door too."""
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
    route.app = door
    return route


async def _ping() -> dict[str, str]:
    return {"status": "ok"}


async def _http_error(_: Request, error: Exception) -> Response:
    """What FastAPI refuses by itself, in our shape."""
    assert isinstance(error, HTTPException)
    message = NO_PATH if error.status_code == 404 else str(error.detail)
    return _rendered(orjson.dumps(error_body(error.status_code, message)), error.status_code, error.headers)


async def _unexpected_error(_: Request, error: Exception) -> Response:
    answer = unexpected(error)
    return _rendered(answer.body, answer.status, None)


def _rendered(body: bytes, status: int, headers: Mapping[str, str] | None) -> Response:
    return Response(body, status, headers, media_type="application/json")
