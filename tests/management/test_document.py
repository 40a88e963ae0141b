"""The document of the management API names every operation with its answers, and shows how each is asked."""

from __future__ import annotations

from typing import Any

import pytest
from managed import Managed

CREATE, READ, LIST, CHANGE, DELETE = {400, 401}, {400, 401, 404}, {400, 401}, {400, 401}, {400, 401}

OPERATIONS: list[tuple[str, int, set[int]]] = [
    ("GET /billing/endpoints", 200, {401}),
    ("GET /billing/networkvolumes", 200, {401}),
    ("GET /billing/pods", 200, {401}),
    ("GET /containerregistryauth", 200, LIST),
    ("POST /containerregistryauth", 200, CREATE),
    ("GET /containerregistryauth/{containerRegistryAuthId}", 200, READ),
    ("DELETE /containerregistryauth/{containerRegistryAuthId}", 204, DELETE),
    ("GET /endpoints", 200, LIST),
    ("POST /endpoints", 200, CREATE),
    ("GET /endpoints/{endpointId}", 200, READ),
    ("PATCH /endpoints/{endpointId}", 200, CHANGE),
    ("POST /endpoints/{endpointId}/update", 200, CHANGE),
    ("DELETE /endpoints/{endpointId}", 204, DELETE),
    ("GET /networkvolumes", 200, LIST),
    ("POST /networkvolumes", 200, CREATE),
    ("GET /networkvolumes/{networkVolumeId}", 200, READ),
    ("PATCH /networkvolumes/{networkVolumeId}", 200, CHANGE),
    ("POST /networkvolumes/{networkVolumeId}/update", 200, CHANGE),
    ("DELETE /networkvolumes/{networkVolumeId}", 204, DELETE),
    ("GET /pods", 200, LIST),
    ("POST /pods", 201, CREATE),
    ("GET /pods/{podId}", 200, READ),
    ("PATCH /pods/{podId}", 200, CHANGE),
    ("POST /pods/{podId}/update", 200, CHANGE),
    ("DELETE /pods/{podId}", 204, DELETE),
    ("POST /pods/{podId}/reset", 200, CHANGE),
    ("POST /pods/{podId}/restart", 200, CHANGE),
    ("POST /pods/{podId}/start", 200, CHANGE),
    ("POST /pods/{podId}/stop", 200, CHANGE),
    ("GET /templates", 200, LIST),
    ("POST /templates", 200, CREATE),
    ("GET /templates/{templateId}", 200, READ),
    ("PATCH /templates/{templateId}", 200, CHANGE),
    ("POST /templates/{templateId}/update", 200, CHANGE),
    ("DELETE /templates/{templateId}", 204, DELETE),
]


@pytest.fixture
async def document(api: Managed) -> dict[str, Any]:
    answer = await api.http.get("/openapi.json", headers={"Authorization": ""})
    assert answer.status_code == 200
    told: dict[str, Any] = answer.json()
    return told


async def test_every_operation_is_named_with_its_answers(document: dict[str, Any]) -> None:
    for operation, success, failures in OPERATIONS:
        method, path = operation.split()
        named = {int(status) for status in document["paths"][path][method.lower()]["responses"]}
        assert {success} | failures <= named, operation
        assert not {200, 201, 204} - {success} & named, operation


async def test_what_holds_for_all(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.")
    assert document["info"] == {"title": "Stoker management API", "version": "0.1.0"}
    assert document["servers"] == [{"url": "/v1"}]
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["security"] == [{"key": []}], where
            assert "422" not in operation["responses"], where
            assert operation["summary"], where
            assert operation["tags"], where
    assert "ValidationError" not in str(document["components"]["schemas"].keys())


async def test_every_body_is_shown_by_an_example(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                schema = operation["requestBody"]["content"]["application/json"]["schema"]
                assert _examples(document, schema), f"{method} {path}"
            for status, answer in operation["responses"].items():
                for content in answer.get("content", {}).values():
                    assert _examples(document, content["schema"]), f"{method} {path} {status}"


def _examples(document: dict[str, Any], schema: dict[str, Any]) -> list[Any]:
    """Its own, or those of what it is made of."""
    if "$ref" in schema:
        return _examples(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    found: list[Any] = schema.get("examples", [])
    for part in (*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())):
        found = found or _examples(document, part)
    return found


async def test_the_explorer_is_there_without_a_key(api: Managed) -> None:
    answer = await api.http.get("/docs", headers={"Authorization": ""})
    assert (answer.status_code, "/v1/openapi.json" in answer.text) == (200, True)
