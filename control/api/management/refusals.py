"""Why a request of the management API is refused, in words: which field, which value, what is allowed."""

from __future__ import annotations

from typing import Any

from fastapi.exceptions import RequestValidationError

from stoker.control.submissions import shown

SECRET_FIELDS = frozenset({"password", "value", "env"})
"""Fields whose values no refusal repeats."""


def refused_body(status: int, message: str) -> dict[str, Any]:
    """A superset of what the field's clients look for."""
    return {"error": message, "message": message, "status": status}


def why_invalid(error: RequestValidationError) -> str:
    return "; ".join(_sentence(one) for one in error.errors())


def _sentence(error: dict[str, Any]) -> str:
    where = [str(part) for part in error["loc"][1:]]
    field = ".".join(where) or "the body"
    if error["type"] == "json_invalid":
        return f"the body is not valid JSON: {error.get('ctx', {}).get('error', error['msg'])}"
    if error["type"] == "extra_forbidden":
        return f"{field} is not a known field"
    if error["type"] == "missing":
        return f"{field} is required and missing"
    value = "a secret" if SECRET_FIELDS.intersection(where) else shown(error["input"])
    return f"{field}: {error['msg']}; got {value}"
