"""Turns a request below `/openai` into the input of a job. Pure.

    POST /openai/v1/completions {...}  ->  {"openai_route": "/v1/completions", "openai_input": {...}}
    GET  /openai/v1/models             ->  {"openai_route": "/v1/models"}

Public language model workers read these two fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from stoker.control.errors import BadRequest


@dataclass(frozen=True, slots=True)
class OpenAIRequest:
    """`route` begins with a slash. `body` is None for GET."""

    route: str
    body: Mapping[str, Any] | None

    @property
    def streams(self) -> bool:
        return self.body is not None and self.body.get("stream") is True

    @property
    def job_input(self) -> dict[str, Any]:
        route: dict[str, Any] = {"openai_route": self.route}
        return route if self.body is None else {**route, "openai_input": self.body}


def parse_request(method: str, route: str, media_type: str | None, body: bytes) -> OpenAIRequest:
    """Raises BadRequest for a POST whose body is not a JSON object, whatever its media type."""
    if method == "GET":
        return OpenAIRequest(route, None)
    try:
        fields = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        declared = f"; it is declared as {media_type[:100]}" if media_type else ""
        raise BadRequest(f"the body must be JSON (application/json): {error}{declared}") from None
    if not isinstance(fields, dict):
        raise BadRequest("the body must be a JSON object")
    return OpenAIRequest(route, fields)
