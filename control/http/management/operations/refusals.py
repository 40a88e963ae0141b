"""The errors of the management API: messages that name the field, its value, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from stoker.control.errors import ControlError, Unavailable
from stoker.control.http.calls.answers import ACCEPT_ENCODING, unexpected
from stoker.control.rules.submissions import abbreviated

SECRET_FIELDS = frozenset({"password", "value", "env"})
"""The fields whose values no message repeats. Objects and lists may contain one, and are not repeated
either."""


def refused_body(status: int, message: str) -> dict[str, Any]:
    """Returns all fields in which the various clients look for the message."""
    return {"error": message, "message": message, "status": status}


def rendered(status: int, message: str, headers: Mapping[str, str]) -> Response:
    body = orjson.dumps(refused_body(status, message))
    return Response(body, status, dict(headers), media_type="application/json")


def refused(error: ControlError) -> Response:
    if error.status >= 500 and not isinstance(error, Unavailable):
        answer = unexpected(error)
        return Response(answer.body, answer.status, media_type="application/json")
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else {}
    if error.status == 415:
        headers["accept-encoding"] = ACCEPT_ENCODING
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return rendered(error.status, str(error), headers)


def sentences(error: RequestValidationError) -> list[str]:
    """Returns a message for each field. If a field may have several types, the first error counts."""
    messages: dict[str, str] = {}
    for one in error.errors():
        messages.setdefault(_field(one), _message(one))
    return list(messages.values())


def why_invalid(error: RequestValidationError) -> str:
    return "; ".join(sentences(error))


def _field(error: dict[str, Any]) -> str:
    """Returns the path of the field, without the types that pydantic tried (`list[str]`)."""
    named = [str(part) for part in error["loc"][1:] if _is_named(part)]
    return ".".join(named) or "the body"


def _is_named(part: object) -> bool:
    return not isinstance(part, str) or not (part in _SHAPES or any(sign in part for sign in "[("))


_SHAPES = frozenset({"str", "int", "float", "bool", "constrained-str", "none"})


def _message(error: dict[str, Any]) -> str:
    field = _field(error)
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error.get('ctx', {}).get('error', error['msg'])}"
    if error["type"] == "extra_forbidden":
        return f"{field} is not a known field"
    if error["type"] == "missing":
        return f"{field} is required and missing"
    value = "a secret" if SECRET_FIELDS.intersection(field.split(".")) else _plainly(error["input"])
    if error["type"] in ("literal_error", "enum"):
        return f"{field} must be one of {error['ctx']['expected']}; got {value}"
    message = str(error.get("ctx", {}).get("error", error["msg"]))
    if field == "the body":
        return f"{field}: {message}"  # without the value, which may contain a secret
    return f"{field}: {message}; got {value}"


def _plainly(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else abbreviated(value)
