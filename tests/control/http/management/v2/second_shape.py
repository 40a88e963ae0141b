"""Requests of management v2 in tests, beside those of /v1."""

from __future__ import annotations

from typing import Any

from tests.control.http.management.managed import V2, Managed


async def call(api: Managed, method: str, path: str, status: int, **body: Any) -> Any:
    """The answer's body, None where it is empty; of an error, the detail."""
    answer = await api.http.request(method, V2 + path, json=body or None)
    assert answer.status_code == status, answer.text
    if status < 400:
        return answer.json() if answer.content else None
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["title"]
    assert problem["errors"]
    assert problem["detail"] == problem["error"] == problem["message"] == "; ".join(problem["errors"])
    return problem["detail"]


async def make(api: Managed, path: str, **body: Any) -> Any:
    return await call(api, "POST", path, 201, **body)


async def get(api: Managed, path: str) -> Any:
    return await call(api, "GET", path, 200)
