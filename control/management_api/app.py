"""The FastAPI application below /v1: one router for each kind of resource, one shape for every refusal.

    key? ─no─> 401   may it? ─no─> 401   body, path and query as declared? ─no─> 400   operation ──> answer

The first two are told by `audited`, and whether a body can be read at all by `gate`. Refusals read {"error",
"message", "status"}. The document is at /v1/openapi.json, the explorer at /v1/docs.
"""

from __future__ import annotations

from functools import cache
from itertools import zip_longest
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.api.answers import unexpected
from stoker.control.api.management import (
    audit,
    billing,
    endpoints,
    keys,
    nodes,
    pods,
    registries,
    secrets,
    templates,
    volumes,
)
from stoker.control.api.management.audited import Audited
from stoker.control.api.management.gate import Gate
from stoker.control.api.management.queries import no_others
from stoker.control.api.management.refusals import refused, rendered, why_invalid
from stoker.control.errors import ControlError
from stoker.control.plane import Plane

VERSION = "0.1.0"
"""Of the interface's description, not of Stoker."""


class Routes(FastAPI):
    """A FastAPI whose document holds what it really answers. It holds nothing of a plane."""

    def openapi(self) -> dict[str, Any]:
        """FastAPI writes a 422 to every operation with parameters; here those are 400. And a parameter that
        may be left out cannot be null."""
        if self.openapi_schema is None:
            document = super().openapi()
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    for parameter in operation.get("parameters", ()):
                        parameter["schema"] = _not_null(parameter["schema"])
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
        assert self.openapi_schema is not None
        return self.openapi_schema


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **choices[0]} if len(choices) == 1 else schema


def make_management_app(plane: Plane) -> ASGIApp:
    """Each request takes its plane along, as `request.state.plane`."""
    front = Audited(plane, Gate(routes()))

    async def managed(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["plane"] = plane
        await front(scope, receive, send)

    return managed


@cache
def routes() -> Routes:
    """Building them takes longer than most requests, so all planes of a process share them."""
    app = Routes(
        title="Stoker management API",
        version=VERSION,
        redoc_url=None,
        redirect_slashes=False,
        swagger_ui_oauth2_redirect_url=None,
        dependencies=[Depends(no_others)],
    )
    app.include_router(templates.router)
    app.include_router(endpoints.router)
    app.include_router(volumes.router)
    app.include_router(pods.router)
    app.include_router(billing.router)
    app.include_router(keys.router)
    app.include_router(audit.router)
    app.include_router(registries.router)
    app.include_router(nodes.router)
    app.include_router(secrets.router)
    app.add_exception_handler(ControlError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ControlError)
    return refused(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return rendered(400, why_invalid(error), {})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        words = f"{request.method} is not allowed here; allowed: {allowed}"
        return rendered(405, words, {"allow": allowed})
    message = "there is nothing at this path; see /v1/docs" if error.status_code == 404 else str(error.detail)
    return rendered(error.status_code, message, error.headers or {})


def _methods(request: Request) -> list[str]:
    """Of all operations at this path, as the document names them."""
    parts = request.url.path.removeprefix(request.scope.get("root_path", "")).split("/")
    found: set[str] = set()
    for path, operations in routes().openapi()["paths"].items():
        pairs = list(zip_longest(path.split("/"), parts, fillvalue=""))
        if all(known == given or known.startswith("{") for known, given in pairs):
            found |= {method.upper() for method in operations}
    return sorted(found)


async def _unexpected(_: Request, error: Exception) -> Response:
    answer = unexpected(error)
    return Response(answer.body, answer.status, media_type="application/json")
