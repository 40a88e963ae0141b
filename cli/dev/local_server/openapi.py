"""The OpenAPI document of the local server, which `/docs` shows. Pure.

A queue function's body is `{"input": {...}}`, with the parameters of the function inside; a route has its
path's names as path parameters, and the others as query parameters (GET, DELETE) or as the fields of a JSON
body. Annotations that have no counterpart in JSON, and none, allow anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stoker import __version__
from stoker.cli.dev.local_server.routing import LocalRoute
from stoker.client.apps.scanned import Parameter

TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "list": {"type": "array", "items": {}},
    "bytes": {"type": "object", "example": {"$stoker": "bytes", "data": "aGVsbG8="}},
}
_IN_PATH = re.compile(r"\{(\w+)\}")


def document(routes: Sequence[LocalRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Stoker development server",
            "version": __version__,
            "description": "Calls run on the workers of live endpoints.",
        },
        "paths": paths,
    }


def _operation(one: LocalRoute) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "tags": [one.served.endpoint.prefix],
        "operationId": f"{one.method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', one.path)}",
        "responses": {
            "200": {"description": "The result"},
            "400" if one.route is None else "422": {"description": "The request is wrong; `error` says what"},
            "500": {"description": "The function raised; `error` is its traceback"},
        },
    }
    if one.summary:
        operation["summary"] = one.summary
    if one.route is None:
        wrapped = {"type": "object", "properties": {"input": _object(one.function.parameters)}}
        return {**operation, "requestBody": _body({**wrapped, "required": ["input"]})}
    in_path = set(_IN_PATH.findall(one.path))
    others = [parameter for parameter in one.function.parameters if parameter.name not in in_path]
    located = [_located(each, "path") for each in one.function.parameters if each.name in in_path]
    if one.method in ("GET", "DELETE"):
        located += [_located(parameter, "query") for parameter in others]
    elif others:
        operation["requestBody"] = _body(_object(others))
    return {**operation, "parameters": located} if located else operation


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _object(parameters: Sequence[Parameter]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {one.name: _schema(one) for one in parameters},
    }
    required = [one.name for one in parameters if one.required]
    return {**schema, "required": required} if required else schema


def _located(parameter: Parameter, location: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": location,
        "required": location == "path" or parameter.required,
        "schema": _schema(parameter),
    }


def _schema(parameter: Parameter) -> dict[str, Any]:
    kinds = [part.strip() for part in parameter.annotation.split("|")]
    known = [TYPES[kind.partition("[")[0]] for kind in kinds if kind.partition("[")[0] in TYPES]
    optional = "None" in kinds
    if not known or len(known) + optional != len(kinds):
        schema: dict[str, Any] = {}
    elif len(known) == 1 and not optional:
        schema = dict(known[0])
    else:
        schema = {"anyOf": [*known, *([{"type": "null"}] if optional else [])]}
    if not parameter.required and parameter.default is not None:
        schema["default"] = parameter.default
    return schema
