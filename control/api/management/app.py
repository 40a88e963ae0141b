"""The FastAPI application below /v1: one router for each kind of resource, one shape for every refusal.

    key? ─no─> 401   may it? ─no─> 401   body, path and query as declared? ─no─> 400   operation ──> answer

Refusals read {"error", "message", "status"}. The document is at /v1/openapi.json, the explorer at /v1/docs.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from stoker.control.api.answers import unexpected
from stoker.control.api.management.refusals import refused_body, why_invalid
from stoker.control.errors import ControlError, Unavailable
from stoker.control.plane import Plane

VERSION = "0.1.0"
"""Of the interface's description, not of Stoker."""


def make_management_app(plane: Plane) -> FastAPI:
    app = FastAPI(title="Stoker management API", version=VERSION, redoc_url=None, redirect_slashes=False)
    app.state.plane = plane
    app.add_exception_handler(ControlError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ControlError)
    if error.status >= 500 and not isinstance(error, Unavailable):
        return await _unexpected(_, error)
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return _rendered(error.status, str(error), headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _rendered(400, why_invalid(error), {})


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = "there is nothing at this path; see /v1/docs" if error.status_code == 404 else str(error.detail)
    return _rendered(error.status_code, message, error.headers or {})


async def _unexpected(_: Request, error: Exception) -> Response:
    answer = unexpected(error)
    return Response(answer.body, answer.status, media_type="application/json")


def _rendered(status: int, message: str, headers: Mapping[str, str]) -> Response:
    body = orjson.dumps(refused_body(status, message))
    return Response(body, status, dict(headers), media_type="application/json")
