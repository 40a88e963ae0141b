"""Interfaces that are not served are refused with a sentence, whatever is asked of them."""

from __future__ import annotations

import httpx2
import pytest

from stoker.control.http.calls.unserved import METHODS, RESERVED

NO_KEY = {"Authorization": "Bearer wrong"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", RESERVED)
async def test_the_next_management_api_is_a_501(http: httpx2.AsyncClient, name: str, method: str) -> None:
    for path in (
        f"/v2/{name}",
        f"/v2/{name}/",
        f"/v2/{name}/id",
        f"/v2/{name}/NVIDIA%20A40/action?include=a",
    ):
        answer = await http.request(method, path, json={} if method in ("POST", "PUT", "PATCH") else None)
        assert answer.status_code == 501, path
        assert answer.headers["content-type"] == "application/problem+json"
        if method != "HEAD":
            body = answer.json()
            assert body["title"] == "Not Implemented"
            assert "/v1" in body["detail"]
            assert body["detail"] == body["error"] == body["message"]
        assert (await http.request(method, path, headers=NO_KEY)).status_code == 401


async def test_graphql_answers_errors_to_any_query(http: httpx2.AsyncClient) -> None:
    for body in (b"", b"{", b'{"query": "mutation { podTerminate }"}', b"\xff"):
        answer = await http.post("/graphql", content=body)
        assert answer.status_code == 200
        assert answer.json()["data"] is None
        [error] = answer.json()["errors"]
        assert "nothing was changed" in error["message"]
    refused = await http.post("/graphql", content=b"{}", headers=NO_KEY)
    assert refused.status_code == 401
    assert refused.json()["errors"][0]["message"]


async def test_an_endpoint_keeps_its_operations_whatever_its_name(http: httpx2.AsyncClient) -> None:
    assert (await http.post("/v2/pods/run", json={"input": {}})).status_code == 404, (
        "no endpoint of this name"
    )
    assert (await http.post("/v2/echo/run", json={"input": {}})).status_code == 200
