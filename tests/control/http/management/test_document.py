"""The document of the management API names every operation with its answers, and shows how each is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control.http.management.managed import Managed

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
    body: dict[str, Any] = answer.json()
    return body


async def test_every_operation_is_named_with_its_answers(document: dict[str, Any]) -> None:
    for operation, success, failures in OPERATIONS:
        method, path = operation.split()
        named = {int(status) for status in document["paths"][path][method.lower()]["responses"]}
        assert {success} | failures <= named, operation
        assert not {200, 201, 204} - {success} & named, operation


async def test_what_holds_for_all(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.")
    info = document["info"]
    assert (info["title"], info["version"]) == ("Stoker management API", "0.1.0")
    assert "Stoker-Ignored" in info["description"]
    assert document["servers"] == [{"url": "/v1"}]
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            where = f"{method} {path}"
            assert operation["security"] == [{"ApiKey": []}], where
            assert "422" not in operation["responses"], where
            assert operation["summary"], where
            assert operation["tags"], where
    assert "ValidationError" not in str(document["components"]["schemas"].keys())


PUBLISHED_IDS = {
    "POST /pods": "CreatePod",
    "GET /pods": "ListPods",
    "GET /pods/{podId}": "GetPod",
    "PATCH /pods/{podId}": "UpdatePod",
    "DELETE /pods/{podId}": "DeletePod",
    "POST /pods/{podId}/start": "StartPod",
    "POST /pods/{podId}/stop": "StopPod",
    "POST /pods/{podId}/reset": "ResetPod",
    "POST /pods/{podId}/restart": "RestartPod",
    "POST /endpoints": "CreateEndpoint",
    "GET /endpoints": "ListEndpoints",
    "GET /endpoints/{endpointId}": "GetEndpoint",
    "PATCH /endpoints/{endpointId}": "UpdateEndpoint",
    "DELETE /endpoints/{endpointId}": "DeleteEndpoint",
    "POST /templates": "CreateTemplate",
    "GET /templates": "ListTemplates",
    "GET /templates/{templateId}": "GetTemplate",
    "PATCH /templates/{templateId}": "UpdateTemplate",
    "DELETE /templates/{templateId}": "DeleteTemplate",
    "POST /networkvolumes": "CreateNetworkVolume",
    "GET /networkvolumes": "ListNetworkVolumes",
    "GET /networkvolumes/{networkVolumeId}": "GetNetworkVolume",
    "PATCH /networkvolumes/{networkVolumeId}": "UpdateNetworkVolume",
    "DELETE /networkvolumes/{networkVolumeId}": "DeleteNetworkVolume",
    "POST /containerregistryauth": "CreateContainerRegistryAuth",
    "GET /containerregistryauth": "ListContainerRegistryAuths",
    "GET /containerregistryauth/{containerRegistryAuthId}": "GetContainerRegistryAuth",
    "DELETE /containerregistryauth/{containerRegistryAuthId}": "DeleteContainerRegistryAuth",
    "GET /billing/pods": "PodBilling",
    "GET /billing/endpoints": "EndpointBilling",
    "GET /billing/networkvolumes": "NetworkVolumeBilling",
}
PUBLISHED_SHAPES = {
    "POST /pods": ("PodCreateInput", "Pod"),
    "GET /pods": ("", "Pods"),
    "PATCH /pods/{podId}": ("PodUpdateInput", "Pod"),
    "POST /endpoints": ("EndpointCreateInput", "Endpoint"),
    "GET /endpoints": ("", "Endpoints"),
    "PATCH /endpoints/{endpointId}": ("EndpointUpdateInput", "Endpoint"),
    "POST /templates": ("TemplateCreateInput", "Template"),
    "GET /templates": ("", "Templates"),
    "PATCH /templates/{templateId}": ("TemplateUpdateInput", "Template"),
    "POST /networkvolumes": ("NetworkVolumeCreateInput", "NetworkVolume"),
    "GET /networkvolumes": ("", "NetworkVolumes"),
    "POST /containerregistryauth": ("ContainerRegistryAuthCreateInput", "ContainerRegistryAuth"),
    "GET /containerregistryauth": ("", "ContainerRegistryAuths"),
    "GET /billing/pods": ("", "BillingRecords"),
    "GET /billing/endpoints": ("", "BillingRecords"),
}


async def test_generated_clients_keep_their_names(document: dict[str, Any]) -> None:
    reported = {
        f"{method.upper()} {path}": one
        for path, methods in document["paths"].items()
        for method, one in methods.items()
    }
    assert {name: reported[name]["operationId"] for name in PUBLISHED_IDS} == PUBLISHED_IDS
    ids = [one["operationId"] for one in reported.values()]
    assert len(set(ids)) == len(ids)
    for name, (request, answered) in PUBLISHED_SHAPES.items():
        success = reported[name]["responses"]["201" if name == "POST /pods" else "200"]
        assert _ref(success["content"]["application/json"]["schema"]) == answered, name
        if request:
            assert _ref(reported[name]["requestBody"]["content"]["application/json"]["schema"]) == request
    shapes = document["components"]["schemas"]
    assert {"Machine", "SavingsPlan", "BillingRecord"} <= shapes.keys()
    assert not [name for name in shapes if name.endswith("Response")]
    assert {one for one in _refs(document) if one not in shapes} == set()


def _ref(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _refs(node: Any) -> set[str]:
    if isinstance(node, list):
        return {ref for one in node for ref in _refs(one)}
    if not isinstance(node, dict):
        return set()
    found = {_ref(node)} if "$ref" in node else set()
    return found | {ref for one in node.values() for ref in _refs(one)}


async def test_a_change_shows_no_default(document: dict[str, Any]) -> None:
    """What a change leaves out stays as it is."""
    changes = {n: one for n, one in document["components"]["schemas"].items() if n.endswith("UpdateInput")}
    assert len(changes) == 5
    for name, schema in changes.items():
        assert not [field for field, one in schema["properties"].items() if "default" in one], name
        assert "required" not in schema


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
