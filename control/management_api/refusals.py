"""Why a request of the management API is refused, in words: which field, which value, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.responses import Response

from stoker.control.api.answers import unexpected
from stoker.control.errors import ControlError, Unavailable
from stoker.control.submissions import shown

SECRET_FIELDS = frozenset({"password", "value", "env"})
"""Fields whose values no refusal repeats. An object or a list may hold such a field, and is not repeated."""


def refused_body(status: int, message: str) -> dict[str, Any]:
    """A superset of what the field's clients look for."""
    return {"error": message, "message": message, "status": status}


def rendered(status: int, message: str, headers: Mapping[str, str]) -> Response:
    body = orjson.dumps(refused_body(status, message))
    return Response(body, status, dict(headers), media_type="application/json")


def refused(error: ControlError) -> Response:
    if error.status >= 500 and not isinstance(error, Unavailable):
        answer = unexpected(error)
        return Response(answer.body, answer.status, media_type="application/json")
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else {}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return rendered(error.status, str(error), headers)


def why_invalid(error: RequestValidationError) -> str:
    """One sentence for each field; of a field that takes several shapes, for the first."""
    told: dict[str, str] = {}
    for one in error.errors():
        told.setdefault(_field(one), _sentence(one))
    return "; ".join(told.values())


def _field(error: dict[str, Any]) -> str:
    """As the body reads: shapes that pydantic tried (`list[str]`) are no part of it."""
    named = [str(part) for part in error["loc"][1:] if _is_named(part)]
    return ".".join(named) or "the body"


def _is_named(part: object) -> bool:
    return not isinstance(part, str) or not (part in _SHAPES or any(sign in part for sign in "[("))


_SHAPES = frozenset({"str", "int", "float", "bool", "constrained-str", "none"})


def _sentence(error: dict[str, Any]) -> str:
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
        return f"{field}: {message}"  # without what it is, which may hold a secret
    return f"{field}: {message}; got {value}"


def _plainly(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    return "a list" if isinstance(value, list) else shown(value)
