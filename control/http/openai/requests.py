"""Turns a request below `/openai` into the input of a job. Pure.

    POST /openai/v1/completions {...}  ->  {"openai_route": "/v1/completions", "openai_input": {...}}
    GET  /openai/v1/models             ->  {"openai_route": "/v1/models"}

Public language model workers read these two fields. At the base URL of all endpoints, the `model` of a body
names the endpoint, and after a slash what its handler gets as `model`:

    "model": "llm"           endpoint llm, whose handler gets "llm"
    "model": "llm/org/tiny"  endpoint llm, whose handler gets "org/tiny"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.errors import BadRequest
from stoker.control.rules.types import Endpoint

MODELS = "/v1/models"


class SentFile(Struct, frozen=True):
    """A file of a form. `name`: the name that its sender gave it, if any."""

    data: bytes
    media_type: str
    name: str = ""


class OpenAIRequest(Struct, frozen=True):
    """A request in the shape of the OpenAI API. `route` begins with a slash. `body` is None unless it is a
    POST. Fields of a form are texts and files."""

    route: str
    body: Mapping[str, Any] | None

    @property
    def streams(self) -> bool:
        wanted = (self.body or {}).get("stream")
        return wanted is True or wanted == "true"

    @property
    def job_input(self) -> dict[str, Any]:
        route: dict[str, Any] = {"openai_route": self.route}
        return route if self.body is None else {**route, "openai_input": self.body}


def at_endpoint(request: OpenAIRequest) -> tuple[str, OpenAIRequest]:
    """Returns the endpoint that the `model` of a body names, and the request as that endpoint gets it. Raises
    BadRequest."""
    body = request.body or {}
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest(
            f"model must name an endpoint at this base URL, as GET /openai{MODELS} lists them; got"
            f" {model!r:.100}"
        )
    endpoint, slash, rest = model.partition("/")
    return endpoint, replace(request, body={**body, "model": rest}) if slash else request


def model_object(endpoint: Endpoint) -> dict[str, Any]:
    """Returns an endpoint as a model."""
    return {"id": endpoint.id, "object": "model", "created": int(endpoint.created_at), "owned_by": "stoker"}
