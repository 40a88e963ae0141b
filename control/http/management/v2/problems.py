"""The errors of management v2: problem details (RFC 9457), with a sentence for each field that is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from stoker.control.errors import (
    ControlError,
    Forbidden,
    NotServed,
    TooMany,
    Unavailable,
    UnsupportedEncoding,
)
from stoker.control.http.calls.answers import ACCEPT_ENCODING, unexpected
from stoker.control.http.management.operations.refusals import sentences


def problem(status: int, errors: Sequence[str], headers: Mapping[str, str] | None = None) -> Response:
    title, detail = HTTPStatus(status).phrase, "; ".join(errors)
    body = {"title": title, "status": status, "detail": detail, "errors": list(errors)}
    body |= {"error": detail, "message": detail}
    return Response(orjson.dumps(body), status, dict(headers or {}), media_type="application/problem+json")


def failed(error: Exception) -> Response:
    """Logs an error that nobody expected, and answers with the name of that entry of the log."""
    return problem(500, [orjson.loads(unexpected(error).body)["detail"]])


def refused(error: ControlError) -> Response:
    if error.status >= 500 and not isinstance(error, Unavailable | NotServed):
        return failed(error)
    headers = {}
    if isinstance(error, Unavailable | TooMany):
        headers["retry-after"] = str(error.retry_after)
    if isinstance(error, UnsupportedEncoding):
        headers["accept-encoding"] = ACCEPT_ENCODING
    if isinstance(error, Forbidden):
        return problem(403, [str(error)])
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return problem(error.status, [str(error)], headers)


def invalid(error: RequestValidationError) -> Response:
    return problem(422, sentences(error))
