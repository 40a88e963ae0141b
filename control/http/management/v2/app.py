"""The FastAPI application of management v2: a second shape over the resources of /v1, and no second truth.

    one router for each kind of resource     known in the field, not served ──> 501     anything else ──> 404

Its first segments below /v2 are reserved (`control.config.endpoints.RESERVED`), so no endpoint is looked up
for them. The document is at /v2/openapi.json.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from stoker.control.config.endpoints import called
from stoker.control.errors import BadRequest, ControlError
from stoker.control.http.calls.answers import methods_at
from stoker.control.http.management.v2 import (
    account,
    billing,
    catalog,
    logs,
    pods,
    problems,
    registries,
    serverless,
    templates,
    unserved,
    volumes,
)
from stoker.control.http.management.v2.container import OF_ENDPOINT, OF_POD, in_words_of
from stoker.control.http.management.v2.shapes import Problem
from stoker.control.plane import Plane

VERSION = "2.0.0"
"""The version of the interface's description, not of Stoker."""

PREFIX = "/v2"

_KINDS = (pods, serverless, logs, templates, registries, volumes, catalog, account, billing, unserved)

_ABOUT = (
    "The resources of /v1 in the field's second shape: what is made here is there, and the other way round."
    " Unknown fields of a body are refused, unknown query parameters ignored. Lists are whole up to 1,000"
    " records; `cursor` continues one. Errors are problem details. Nothing here is limited in its rate."
)


class Routes(FastAPI):
    """A FastAPI whose document describes its real errors. It has no reference to a plane."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            document = super().openapi()
            schemas = document["components"]["schemas"]
            for operations in document["paths"].values():
                for operation in operations.values():
                    if "HTTPValidationError" in str(operation["responses"].get("422")):
                        del operation["responses"]["422"]
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            schemas["Problem"] = Problem.model_json_schema()
            self.openapi_schema = {**document, "servers": [{"url": PREFIX}]}
        assert self.openapi_schema is not None
        return self.openapi_schema


def as_sent(scope: Scope) -> Scope:
    """Returns a request below /v2 whose path is as it was sent: an encoded slash belongs to an id."""
    raw = scope.get("raw_path")
    path = raw.decode("latin-1").partition("?")[0] if raw else quote(scope["path"])
    return {**scope, "path": path, "root_path": scope.get("root_path", "") + PREFIX}


def _operation_id(route: APIRoute) -> str:
    return "".join(part.capitalize() for part in route.name.split("_"))


@cache
def routes() -> Routes:
    """Returns the routes, which all planes of a process share, because building them is slow."""
    app = Routes(
        title="Stoker management API, v2",
        description=_ABOUT,
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
    )
    for module in _KINDS:
        app.include_router(module.router)
    app.add_exception_handler(ControlError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Returns the refusal of a resource, with the fields' names of this shape."""
    assert isinstance(error, ControlError)
    if isinstance(error, BadRequest):
        names = OF_ENDPOINT if request.scope["path"].startswith(f"{PREFIX}/serverless") else OF_POD
        error = BadRequest(in_words_of(names, str(error)))
    return problems.refused(error)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problems.invalid(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(methods_at(request.app.routes, request.scope))
        message = f"{request.method} is not allowed here; allowed: {allowed}{_endpoint_of_name(request)}"
        return problems.problem(405, [message], {"allow": allowed})
    message = str(error.detail)
    if error.status_code == 404:
        message = f"there is nothing at this path; see /v2/openapi.json{_endpoint_of_name(request)}"
    return problems.problem(error.status_code, [message], error.headers)


def _endpoint_of_name(request: Request) -> str:
    """Returns where an endpoint is called whose name is reserved, as the end of a sentence, or ""."""
    plane: Plane = request.state.plane
    name = request.scope["path"].removeprefix(f"{PREFIX}/").partition("/")[0]
    return f"; endpoint {name} is called at {PREFIX}/{called(name)}" if name in plane.endpoints.by_id else ""


async def _unexpected(_: Request, error: Exception) -> Response:
    return problems.failed(error)
