"""The parts of the OpenAPI document that operations have in common: refusals, parameters of paths, limits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter

from stoker.control.http.calls.answers import ACCEPT_ENCODING
from stoker.control.http.calls.shapes import Error, Missing, RefusedInput, Submission
from stoker.control.rules.limits import DEFAULT_WAIT_MS, KEY_LENGTH, MIB, RATE_LIMITS, WAIT_MS, WINDOW_MS
from stoker.control.rules.types import Endpoint

Document = dict[str, Any]

_TEXT: Document = {"schema": {"type": "string"}}
_SECONDS: Document = {"schema": {"type": "integer", "minimum": 1}, "description": "Seconds."}
_HEADERS: dict[int, Document] = {
    401: {"WWW-Authenticate": {"schema": {"const": "Bearer"}}},
    405: {"Allow": _TEXT},
    415: {"Accept-Encoding": {"schema": {"const": ACCEPT_ENCODING}}},
    429: {"Retry-After": _SECONDS, "RateLimit-Policy": _TEXT, "RateLimit": _TEXT},
    503: {"Retry-After": _SECONDS},
}
_PATH = {"endpoint_id": "An endpoint's id or alias.", "job_id": "As `/run` answered it."}
READS_BODY = (400, 408, 413, 415)
EVENTS: dict[int | str, Document] = {200: {"content": {"text/event-stream": {}}}}
"""The other form of an answer: a stream of events."""

SECURITY = {"key": {"type": "http", "scheme": "bearer", "description": "An API key; the bare key will do."}}


REF = "#/components/schemas/"


def refusals(*statuses: int) -> dict[int | str, Document]:
    return {
        status: {
            "description": HTTPStatus(status).phrase,
            "headers": _HEADERS.get(status, {}),
            "content": _shaped("Missing" if status == HTTPStatus.NOT_FOUND else "Error"),
        }
        for status in statuses
    }


def _shaped(*names: str) -> Document:
    """Returns the content of an answer that has one of these shapes, of `more_shapes`. FastAPI would make a
    field of each shape at each of 170 places: 0.02 s and 1.1 MB at every start."""
    shapes = [{"$ref": f"{REF}{name}"} for name in names]
    return {"application/json": {"schema": shapes[0] if len(shapes) == 1 else {"anyOf": shapes}}}


def of_operation(operation: str, path: str, about: str, options: Document) -> Document:
    """Returns the options of an operation's route, completed with what all operations have. `about`: its
    docstring, whose first sentence is the summary."""
    limit = RATE_LIMITS.get(operation)
    found = refusals(401, 404, 405, 500, 503, *(() if limit is None else (429,)))
    extra = {**(options["openapi_extra"] or {}), "security": [{"key": []}]}
    extra["parameters"] = [_in_path(name) for name in re.findall(r"{(\w+)}", path)] + extra.get(
        "parameters", []
    )
    [method] = options["methods"]
    summary, _, rest = " ".join(about.split()).partition(". ")
    return {
        **options,
        "operation_id": f"{operation}-{method.lower()}",
        "summary": summary.removesuffix("."),
        "description": f"{rest}{_limited(operation)}",
        "responses": {**found, **(options["responses"] or {})},
        "openapi_extra": extra,
    }


def _in_path(name: str) -> Document:
    schema = {"type": "string", "pattern": "^[^/]+$"}
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": _PATH[name]}


def _limited(operation: str) -> str:
    limit = RATE_LIMITS.get(operation)
    if limit is None:
        return ""
    at_once = "" if limit.at_once is None else f" and {limit.at_once} at once"
    return f" At least {limit.window} requests in {WINDOW_MS // 1000} s{at_once}; more with workers."


# -- submissions, whose route takes the request as it is


def submits(body_bytes: int, *, waits: bool) -> Any:
    """Returns the options of a route that takes a submission."""
    key = {"type": "string", "pattern": f"^[!-~]{{1,{KEY_LENGTH}}}$"}
    wait = {"type": "integer", "minimum": WAIT_MS[0], "maximum": WAIT_MS[1], "default": DEFAULT_WAIT_MS}
    headers = {"Stoker-Ignored": {**_TEXT, "description": _IGNORED}}
    sent = {
        "required": True,
        "description": f"At most {body_bytes // MIB} MiB.",
        "content": {"application/json": {"schema": {"$ref": f"{REF}Submission"}}},
    }
    parameters = [_parameter("Idempotency-Key", "header", key, _ONCE)]
    if waits:
        parameters.append(_parameter("wait", "query", wait, _HELD))
    refused = {
        400: {
            "description": "The body is wrong, or a hosted model's input.",
            "content": _shaped("Error", "RefusedInput"),
        }
    }
    return {
        "responses": {200: {"headers": headers}, **refusals(*READS_BODY, 403, 422), **refused},
        "openapi_extra": {"requestBody": sent, "parameters": parameters},
    }


_HELD = "How long the answer may be held, in milliseconds."
_IGNORED = "Names in the body that mean nothing here. `Prefer: handling=strict` has them refused."
_ONCE = (
    "A request that comes again with the same key within a day is answered with the job of its first time."
)


def _parameter(name: str, location: str, schema: Document, text: str) -> Document:
    return {"name": name, "in": location, "required": False, "schema": schema, "description": text}


def more_shapes() -> Document:
    """Returns the components of submissions and of refusals, which no signature names."""
    shapes: Document = {}
    for kind in (Submission, Error, Missing, RefusedInput):
        shape = TypeAdapter(kind).json_schema(ref_template=f"{REF}{{model}}")
        shapes |= {**shape.pop("$defs", {}), kind.__name__: shape}
    return shapes


# -- the endpoints


def input_name(endpoint: str) -> str:
    """Returns the name of the component that describes the endpoint's inputs."""
    return f"{endpoint}.input"


def endpoints_described(endpoints: Iterable[Endpoint]) -> str:
    """Returns a table, as Markdown: the endpoints' ids, and where a schema describes the input."""
    rows = ["| endpoint | input |", "|---|---|"]
    for one in sorted(endpoints, key=lambda one: (not one.hosted, one.id)):
        schema = f"schema `{input_name(one.id)}`, below" if one.run.schema else "any object"
        rows.append(f"| `{one.id}` | {schema} |")
    listed = "\n".join(rows) if len(rows) > 2 else "There are no endpoints yet."
    return f"The endpoints that take jobs now, at `/v2/{{endpoint_id}}`:\n\n{listed}"
