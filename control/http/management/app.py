"""The FastAPI application below /v1, beside that of `v2`: a router for each kind of resource.

    key? ─no─> 401   allowed? ─no─> 401   body, path and query as declared? ─no─> 400   operation ──> answer

`rights_and_audit` checks the key and its rights, `gate` whether the body can be read at all; unknown fields
are ignored (`unknown`). Errors are {"error", "message", "status"}. The document is at /v1/openapi.json, the
explorer at /v1/docs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from stoker.control.errors import ControlError
from stoker.control.http.calls.answers import methods_at, unexpected
from stoker.control.http.calls.explorer import add_explorer
from stoker.control.http.management.gate import Gate
from stoker.control.http.management.operations import (
    audit,
    billing,
    endpoint_now,
    endpoints,
    keys,
    nodes,
    own_key,
    pods,
    registries,
    secrets,
    templates,
    volumes,
    webhook_secret,
)
from stoker.control.http.management.operations.refusals import refused, rendered, why_invalid
from stoker.control.http.management.published import published
from stoker.control.http.management.rights_and_audit import Audited
from stoker.control.http.management.unknown import NOT_ACTED_ON, not_acted_on, note_unknown
from stoker.control.http.management.v2 import app as v2
from stoker.control.http.management.v2 import problems
from stoker.control.plane import Plane

VERSION = "0.1.0"
"""The version of the interface's description, not of Stoker."""

_ABOUT = (
    "Fields and query parameters that an operation does not know are ignored, and named in the answer's"
    " `Stoker-Ignored` header; with `Prefer: handling=strict` they are refused. /keys refuses unknown fields"
    ' from everybody. Fields whose description says "accepted" are kept and decide nothing.'
)


class Routes(FastAPI):
    """A FastAPI whose document describes its real answers. It has no reference to a plane."""

    def openapi(self) -> dict[str, Any]:
        """Replaces what FastAPI documents wrongly: invalid requests are answered with 400, not 422, and an
        optional parameter cannot be null."""
        if self.openapi_schema is None:
            document = super().openapi()
            for operations in document["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop("422", None)
                    for parameter in operation.get("parameters", ()):
                        parameter["schema"] = _not_null(parameter["schema"])
            for body in NOT_ACTED_ON:
                schema = document["components"]["schemas"][body]
                paragraphs = [schema.get("description", ""), not_acted_on(body)]
                schema["description"] = "\n\n".join(filter(None, paragraphs))
            for unused in ("HTTPValidationError", "ValidationError"):
                document["components"]["schemas"].pop(unused, None)
            self.openapi_schema = published(document)
        assert self.openapi_schema is not None
        return self.openapi_schema


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **choices[0]} if len(choices) == 1 else schema


def make_management_app(plane: Plane) -> ASGIApp:
    """Returns the application for a plane, which is `request.state.plane` of each request: what is mounted at
    /v1, and, of requests below /v2, management v2."""
    front = Audited(plane, Gate(routes(), refused), refused)
    front_v2 = Audited(plane, Gate(v2.routes(), problems.refused), problems.refused)

    async def managed(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["plane"] = plane
        if scope["type"] == "http" and scope["path"].startswith("/v2/"):
            await front_v2(v2.as_sent(scope), receive, send)
        else:
            await front(scope, receive, send)

    return managed


def _operation_id(route: APIRoute) -> str:
    """Returns the id that the published document has, such as CreatePod. There a PATCH and its synonym have
    the same id; here each has its own, as the standard requires."""
    name = "".join(part.capitalize() for part in route.name.split("_"))
    return f"{name}ByPost" if route.path.endswith("/update") else name


@cache
def routes() -> Routes:
    """Returns the routes, which all planes of a process share, because building them is slow."""
    app = Routes(
        title="Stoker management API",
        description=_ABOUT,
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(note_unknown)],
        generate_unique_id_function=_operation_id,
    )
    add_explorer(app, "/v1/openapi.json")
    app.include_router(templates.router)
    app.include_router(endpoints.router)
    app.include_router(endpoint_now.router)
    app.include_router(volumes.router)
    app.include_router(pods.router)
    app.include_router(billing.router)
    app.include_router(keys.router)
    app.include_router(own_key.router)
    app.include_router(webhook_secret.router)
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
        allowed = ", ".join(methods_at(request.app.routes, request.scope))
        message = f"{request.method} is not allowed here; allowed: {allowed}"
        return rendered(405, message, {"allow": allowed})
    message = "there is nothing at this path; see /v1/docs" if error.status_code == 404 else str(error.detail)
    return rendered(error.status_code, message, error.headers or {})


async def _unexpected(_: Request, error: Exception) -> Response:
    answer = unexpected(error)
    return Response(answer.body, answer.status, media_type="application/json")
