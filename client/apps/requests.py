"""Requests to the workers of an app's endpoints, and their responses. Pure.

A live endpoint gets the code with every request, so an edited function runs without a new version of its
endpoint; a deployed one has its code in its version, see `resources`.

    queue          the input of a job:  function, code, kwargs          -> the job's output
    load-balanced  POST /execute:       routes, code, the caller's request  -> the response to it, as JSON; of
                                        a route that yields: lines of JSON, its head and then its parts
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.app_values import encode
from stoker.client.apps.bundle import Bundle
from stoker.client.apps.definition import Definition
from stoker.client.apps.scanned import Endpoint

IN_PARTS = "application/x-ndjson"
"""The type of an answer of `/execute` that comes in parts."""

PACKED_MAX = 512 << 10
"""Characters of a packed bundle that are sent inside a request; a larger one is uploaded, if it can be."""

Upload = Callable[[bytes, str], str]
"""Stores bytes under a name and returns a URL that workers can read, as `Client.upload` does."""


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """The response of a route. `lines` are those that the route printed, and those of an installation before
    it."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutePart:
    """A part of the response of a route that yields. `ends`: it is the last one. `error`: the route has
    raised this, which is the last one, too."""

    body: bytes = b""
    lines: tuple[str, ...] = ()
    ends: bool = False
    error: str = ""


def function_request(
    endpoint: Endpoint,
    qualname: str,
    kwargs: Mapping[str, Any],
    bundle: Bundle,
    definition: Definition,
    *,
    upload: Upload | None = None,
) -> dict[str, Any]:
    """Returns the input of a job at a live queue endpoint. `kwargs` may have bytes and arrays. Raises
    ValueRefused."""
    store = None if upload is None else lambda data: {"url": upload(data, "argument")}
    return {
        "function": {"module": endpoint.module, "callable": qualname},
        "kwargs": {name: encode(value, store, where=name) for name, value in kwargs.items()},
        **code(endpoint, bundle, definition, upload=upload),
    }


def route_request(
    endpoint: Endpoint,
    bundle: Bundle,
    definition: Definition,
    *,
    method: str,
    path: str,
    query: str = "",
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> dict[str, Any]:
    """Returns the body of `POST /execute` at a live load-balanced endpoint."""
    return {
        "routes": routes(endpoint),
        "request": {
            "method": method,
            "path": path,
            "query": query,
            "headers": {name.lower(): value for name, value in (headers or {}).items()},
            "body": base64.b64encode(body).decode(),
        },
        **code(endpoint, bundle, definition),
    }


def route_response(body: Mapping[str, Any]) -> RouteResponse:
    """Reads the answer of `/execute`, or the head of one that comes in parts."""
    return RouteResponse(
        int(body["status"]),
        dict(body["headers"]),
        base64.b64decode(body.get("body", "")),
        tuple(body.get("lines", ())),
    )


def route_part(message: Mapping[str, Any]) -> RoutePart:
    """Reads a part of the answer of `/execute`, which is a line of JSON."""
    body, lines = base64.b64decode(message.get("body", "")), tuple(message.get("lines", ()))
    error = str(message.get("error", ""))
    return RoutePart(body, lines, "end" in message or "error" in message, error)


def routes(endpoint: Endpoint) -> list[dict[str, str]]:
    return [
        {
            "method": one.method,
            "path": one.path,
            "module": endpoint.module,
            "callable": one.function.qualname,
        }
        for one in endpoint.routes
    ]


def code(
    endpoint: Endpoint, bundle: Bundle, definition: Definition, *, upload: Upload | None = None
) -> dict[str, Any]:
    """Returns the code of a request or of a version, and what the code needs to run."""
    packed = bundle.packed()
    sent = {"packed": packed}
    if upload is not None and len(packed) > PACKED_MAX:
        sent = {"url": upload(packed.encode(), f"{bundle.hash}.code")}
    return {
        "bundle": {"hash": bundle.hash, **sent},
        "folder": endpoint.folder,
        "dependencies": list(definition.dependencies),
        "system_dependencies": list(definition.system_dependencies),
    }
