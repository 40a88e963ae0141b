"""The names of management v2 beside endpoints: what is refused below them, and an endpoint of such a name."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from stoker.control.config.endpoints import RESERVED
from stoker.control.http.management.v2.unserved import METHODS
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.http.management.v2.second_shape import call
from tests.control.plane_world import endpoint

NO_KEY = {"Authorization": "Bearer wrong"}


@pytest.mark.parametrize("name", ["clusters", "flash", "queued-pods", "sandboxes", "tags"])
async def test_what_the_field_has_and_this_has_not_is_a_501(api: Managed, name: str) -> None:
    for method in METHODS:
        for path in (f"/{name}", f"/{name}/id/deeper"):
            answer = await api.http.request(
                method, V2 + path, json={} if method in ("POST", "PUT", "PATCH") else None
            )
            assert answer.status_code == 501
            assert answer.headers["content-type"] == "application/problem+json"
            if method != "HEAD":
                assert "nothing was changed" in answer.json()["detail"]


@pytest.mark.parametrize("name", sorted(RESERVED - {"openapi.json"}))
async def test_each_reserved_name_asks_for_a_key_and_answers_problems(api: Managed, name: str) -> None:
    answer = await api.http.get(f"{V2}/{name}/a/b/c/d/e")
    assert answer.status_code in (404, 501)
    assert f"/{name}" in answer.json()["detail"] or "nothing at this path" in answer.json()["detail"]
    for path in (f"/{name}", f"/{name}/a/b/c/d/e"):
        answer = await api.http.get(V2 + path, headers=NO_KEY)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["title"] == "Unauthorized"


async def test_a_key_without_the_right_is_a_403_and_noted(api: Managed) -> None:
    key = (await api.made("/keys", name="k", access={"scope": "read"}))["key"]
    api.http.headers["Authorization"] = f"Bearer {key}"
    await call(api, "GET", "/pods", 200)
    why = await call(api, "POST", "/pods", 403, name="p")
    assert "may not change anything" in why


async def test_an_endpoint_of_a_reserved_name_is_called_by_another_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with managed(endpoint("pods", workers_max=0)) as api:
        assert (await api.http.post(V2 + "/pods-endpoint/run", json={"input": {}})).status_code == 200
        assert (await api.http.get(V2 + "/pods")).json()["pods"] == []
        for path, status in (("/pods/run", 405), ("/pods/status/job", 404)):
            assert "endpoint pods is called at /v2/pods-endpoint" in await call(api, "POST", path, status)
        assert "endpoint pods" in caplog.text
        assert "/v2/pods-endpoint" in caplog.text


async def test_other_cases_of_a_name_are_endpoints(api: Managed) -> None:
    answer = await api.http.post(V2 + "/Pods/run", json={"input": {}})
    assert answer.status_code == 404
    assert "no endpoint 'Pods'" in answer.text


async def test_the_document_is_valid_and_needs_no_key(api: Managed) -> None:
    answer = await api.http.get(V2 + "/openapi.json", headers={"Authorization": ""})
    document = answer.json()
    Draft202012Validator.check_schema(document["components"]["schemas"]["PodRecord"])
    assert document["servers"] == [{"url": "/v2"}]
    assert "/pods/{podId}/action" in document["paths"]
    assert "HTTPValidationError" not in json.dumps(document)
