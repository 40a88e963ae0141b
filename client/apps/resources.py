"""The bodies for the management API that make an endpoint of an app's: its template, and itself. Pure.

The image name `local:stoker.functions` stands for the worker for functions, which every node has; control
allows it where its configuration has `functions = true`. The code of a deployed endpoint is in its template's
variables `STOKER_FUNCTIONS_0`, `_1` and so on: new code is a new version, which is rolled out as any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from stoker.client.apps.bundle import Bundle, BundleError
from stoker.client.apps.definition import RESERVED_ENV, Definition
from stoker.client.apps.requests import code, routes
from stoker.client.apps.scanned import Endpoint

IMAGE = "local:stoker.functions"
LIVE_PREFIX = "live-"
"""Of the names of endpoints that a development server made."""

LIVE_ENV = f"{RESERVED_ENV}_LIVE"
CONCURRENCY_ENV = f"{RESERVED_ENV}_CONCURRENCY"
SERVER = ("python", "-P", "-m", "stoker.worker.functions.server")
PART_MAX = 96 << 10
CODE_MAX = 1 << 20
"""Characters of the code of a deployed endpoint: Linux starts no process with much more in its variables."""


def template_body(
    endpoint: Endpoint, definition: Definition, *, name: str, live: bool, bundle: Bundle | None = None
) -> dict[str, Any]:
    """Returns the body of `POST /v1/templates`; `template_changes` makes that of a PATCH. A deployed endpoint
    needs its `bundle`. Raises BundleError if the code is too large to be deployed."""
    if live:
        variables = {LIVE_ENV: "1"}
    elif bundle is None:
        raise TypeError("a deployed endpoint needs its bundle")
    else:
        variables = version_env(endpoint, definition, bundle)
    if definition.max_concurrency > 1:
        variables[CONCURRENCY_ENV] = str(definition.max_concurrency)
    return {
        "name": name,
        "imageName": IMAGE,
        "env": {**definition.env, **variables},
        "concurrency": definition.max_concurrency,
        "dockerStartCmd": list(SERVER) if endpoint.kind == "load_balanced" else [],
        "isServerless": True,
    }


def version_env(endpoint: Endpoint, definition: Definition, bundle: Bundle) -> dict[str, str]:
    """Returns the variables that hold the code of a deployed endpoint. Raises BundleError."""
    content = {
        **code(endpoint, bundle, definition),
        "functions": [{"module": endpoint.module, "callable": one.qualname} for one in endpoint.functions],
        "routes": routes(endpoint),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    if len(text) > CODE_MAX:
        raise BundleError(
            f"the code of {endpoint.name} is {len(text) >> 10} KiB after compression; at most"
            f" {CODE_MAX >> 10} KiB can be deployed. Install a part of it on the workers, by dependencies"
        )
    parts = [text[start : start + PART_MAX] for start in range(0, len(text), PART_MAX)]
    return {f"{RESERVED_ENV}_{n}": part for n, part in enumerate(parts)}


def endpoint_body(
    endpoint: Endpoint, definition: Definition, *, name: str, template_id: str
) -> dict[str, Any]:
    """Returns the body of `POST /v1/endpoints`. Options that are not wanted are null, so that a change unsets
    them."""
    balanced = endpoint.kind == "load_balanced"
    return {
        "name": name,
        "templateId": template_id,
        "type": "LOAD_BALANCER" if balanced else "QUEUE",
        "workersMin": definition.workers[0],
        "workersMax": definition.workers[1],
        "idleTimeout": definition.idle_timeout,
        "scalerType": "REQUEST_COUNT",
        "scalerValue": definition.max_concurrency,
        "executionTimeoutMs": definition.execution_timeout_ms,
        "networkVolumeId": definition.volume or None,
        **_devices(definition),
    }


def template_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that a PATCH of a template takes; `isServerless` is fixed when the template is
    created."""
    return {name: value for name, value in body.items() if name != "isServerless"}


def endpoint_changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that a PATCH of an endpoint takes; its type and whether it has a GPU are fixed when
    the endpoint is created."""
    return {name: value for name, value in body.items() if name not in ("type", "computeType")}


def config_hash(definition: Definition) -> str:
    """Returns a hash that stays equal while a live endpoint needs no change. Dependencies are left out: they
    come with each request."""
    values = definition.as_json()
    del values["dependencies"], values["system_dependencies"]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _devices(definition: Definition) -> dict[str, Any]:
    if definition.cpu is not None:
        cores = definition.cpu if isinstance(definition.cpu, int) else None
        instances = list(definition.cpu) if isinstance(definition.cpu, tuple) else []
        return {"computeType": "CPU", "vcpuCount": cores, "instanceIds": instances or None}
    types = {"gpuTypeIds": list(definition.gpu or ()), "gpuCount": definition.gpu_count}
    return types if definition.gpu is None else {"computeType": "GPU", **types}
