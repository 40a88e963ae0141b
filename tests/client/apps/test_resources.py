"""The bodies for the management API are those of the definition, and its models take them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from stoker.client.apps import resources
from stoker.client.apps.bundle import Bundle, BundleError
from stoker.client.apps.definition import Definition
from stoker.client.apps.requests import PACKED_MAX, function_request, route_request, route_response
from stoker.client.apps.scanned import Endpoint
from stoker.client.apps.source import scan_source
from stoker.control.http.management.operations.endpoints import EndpointCreateInput, EndpointUpdateInput
from stoker.control.http.management.operations.templates import TemplateCreateInput, TemplateUpdateInput

(CAPTION, SHOP), _ = scan_source(
    "from stoker.client import endpoint\n"
    "@endpoint(name='caption')\ndef caption(text): ...\n"
    "api = endpoint(name='shop')\n@api.get('/items/{id}')\ndef item(id): ...\n",
    "03_mixed/app.py",
)
LARGE = Bundle({"a.py": "# " + random.Random(1).randbytes(3 << 20).hex()})


def endpoint_body(definition: Definition, endpoint: Endpoint = CAPTION) -> dict[str, Any]:
    body = resources.endpoint_body(endpoint, definition, name="live-x", template_id="t")
    EndpointCreateInput.model_validate_json(json.dumps(body))
    EndpointUpdateInput.model_validate_json(json.dumps(resources.endpoint_changes(body)))
    return body


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, {"workersMin": 0, "workersMax": 3, "idleTimeout": 60, "type": "QUEUE"}),
        ({"gpu": True, "gpu_count": 2}, {"computeType": "GPU", "gpuCount": 2, "gpuTypeIds": []}),
        ({"gpu": "NVIDIA L4"}, {"gpuTypeIds": ["NVIDIA L4"], "networkVolumeId": None}),
        ({"cpu": True}, {"computeType": "CPU"}),
        ({"cpu": 4}, {"computeType": "CPU", "vcpuCount": 4, "instanceIds": None}),
        ({"cpu": ["cpu3c-8-16"]}, {"computeType": "CPU", "instanceIds": ["cpu3c-8-16"]}),
        ({"execution_timeout_ms": 9000, "volume": "v"}, {"executionTimeoutMs": 9000, "networkVolumeId": "v"}),
        ({"max_concurrency": 8}, {"scalerType": "REQUEST_COUNT", "scalerValue": 8}),
    ],
)
def test_an_endpoint_is_what_its_definition_says(options: dict[str, Any], fields: dict[str, Any]) -> None:
    body = endpoint_body(Definition.of(options))
    assert {name: body[name] for name in fields} == fields
    assert endpoint_body(Definition.of(options), SHOP)["type"] == "LOAD_BALANCER"


def test_a_live_template_has_no_code_and_a_deployed_one_has_it_in_its_variables() -> None:
    definition, code = Definition.of({"env": {"A": "1"}}), Bundle({"03_mixed/app.py": "x = 1"})
    live = resources.template_body(CAPTION, definition, name="t", live=True)
    assert live["env"] == {"A": "1", "STOKER_FUNCTIONS_LIVE": "1"}
    deployed = resources.template_body(SHOP, definition, name="t", live=False, bundle=code)
    content = json.loads(deployed["env"]["STOKER_FUNCTIONS_0"])
    assert content["routes"] == [
        {"method": "GET", "path": "/items/{id}", "module": "03_mixed.app", "callable": "item"}
    ]
    assert (content["bundle"]["hash"], content["folder"]) == (code.hash, "03_mixed")
    assert deployed["dockerStartCmd"]
    for body in (live, deployed):
        TemplateCreateInput.model_validate_json(json.dumps(body))
        TemplateUpdateInput.model_validate_json(json.dumps(body))


def test_code_that_no_process_could_be_started_with_is_refused() -> None:
    with pytest.raises(BundleError, match=r"KiB after compression; at most 1024 KiB"):
        resources.template_body(CAPTION, Definition(), name="t", live=False, bundle=LARGE)


def test_a_large_bundle_is_uploaded_for_a_request() -> None:
    uploaded: dict[str, bytes] = {}

    def upload(data: bytes, name: str) -> str:
        uploaded[name] = data
        return f"https://store/{name}"

    assert len(LARGE.packed()) > PACKED_MAX
    request = function_request(
        CAPTION, "caption", {"text": bytes(1 << 20)}, LARGE, Definition(), upload=upload
    )
    assert request["bundle"] == {"hash": LARGE.hash, "url": f"https://store/{LARGE.hash}.code"}
    assert request["kwargs"]["text"]["url"] == "https://store/argument"
    assert uploaded[f"{LARGE.hash}.code"] == LARGE.packed().encode()
    inline = function_request(CAPTION, "caption", {}, Bundle({}), Definition(), upload=upload)
    assert "packed" in inline["bundle"]


def test_a_request_for_a_route_holds_the_callers_own() -> None:
    body = route_request(
        SHOP, Bundle({}), Definition(), method="GET", path="/items/3", headers={"A": "b"}, body=b"\0"
    )
    assert body["request"] == {
        "method": "GET",
        "path": "/items/3",
        "query": "",
        "headers": {"a": "b"},
        "body": "AA==",
    }
    answer = route_response({"status": 201, "headers": {"content-type": "text/plain"}, "body": "aGk="})
    assert (answer.status, answer.body) == (201, b"hi")


def test_dependencies_do_not_change_a_live_endpoint() -> None:
    def hashed(**options: Any) -> str:
        return resources.config_hash(Definition.of(options))

    assert hashed() == hashed(dependencies=["numpy"])
    assert len({hashed(), hashed(workers=2), hashed(env={"A": "1"}), hashed(gpu=True), hashed(cpu=True)}) == 5
