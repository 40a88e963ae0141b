"""The audit log: changes and refusals, and nothing that is secret."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stoker.control.resources import audit
from tests.control.http.management.managed import STRICT, Managed

TEMPLATE = {"name": "t", "imageName": "ghcr.io/example/worker:1", "env": {"TOKEN": "hunter2"}}


async def lines(api: Managed, query: str = "") -> list[dict[str, Any]]:
    answer = await api.http.get("/audit" + query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()
    return found


def short(line: dict[str, Any]) -> tuple[str, str, int | None]:
    return line["method"], line["path"], line.get("status")


async def test_changes_and_refusals_are_in_it_and_looking_is_not(api: Managed) -> None:
    reader = await api.made("/keys", access={"scope": "read"})
    made = await api.made("/templates", **TEMPLATE)
    path = f"/templates/{made['id']}"
    by_reader = {"Authorization": reader["key"]}
    await api.http.get(path)
    await api.http.patch(path, headers=STRICT, json={"nonsense": 1})
    await api.http.delete(path + "?why=hunter2", headers=by_reader)
    await api.http.get("/keys", headers=by_reader)
    await api.http.delete(path)
    unknown = await api.http.patch(path, json={})

    found = await lines(api)
    assert [short(line) for line in reversed(found)] == [
        ("POST", "/v1/keys", 200),
        ("POST", "/v1/templates", 200),
        ("PATCH", f"/v1{path}", 400),
        ("DELETE", f"/v1{path}", 401),
        ("GET", "/v1/keys", 401),
        ("DELETE", f"/v1{path}", 204),
        ("PATCH", f"/v1{path}", unknown.status_code),
    ]
    assert [line["key"] == reader["id"] for line in reversed(found)] == [False] * 3 + [True] * 2 + [False] * 2
    assert found[4]["message"] == "nonsense is not a known field"
    assert "hunter2" not in repr(found)
    assert reader["key"] not in repr(found)


@pytest.mark.parametrize("key", ["", "sk_no_such", "Bearer sk_" + "x" * 999])
async def test_calls_without_a_known_key_are_in_it_as_such(api: Managed, key: str) -> None:
    for method in ("GET", "POST"):
        answer = await api.http.request(method, "/templates", headers={"Authorization": key})
        assert answer.status_code == 401
    for line, method in zip(await lines(api), ("POST", "GET"), strict=True):
        assert short(line) == (method, "/v1/templates", 401)
        assert line["key"] == "unknown"
        assert line["message"] in ("no token provided", "invalid api key")


async def test_what_no_key_needs_is_not_in_it(api: Managed) -> None:
    for path in ("/openapi.json", "/docs"):
        assert (await api.http.get(path, headers={"Authorization": ""})).status_code == 200
    assert await lines(api) == []


async def test_it_is_read_in_pages_the_newest_first(api: Managed) -> None:
    for n in range(5):
        await api.made("/templates", **TEMPLATE | {"name": f"t{n}"})
    every = await lines(api)
    assert [line["id"] for line in every] == sorted((line["id"] for line in every), reverse=True)
    first = await lines(api, "?limit=2")
    assert first == every[:2]
    assert await lines(api, f"?before={first[-1]['id']}") == every[2:]
    assert await lines(api, "?since=2036-01-01T00:00:00Z") == []
    for query in ("?limit=0", "?limit=1001", "?before=x", "?since=yesterday"):
        assert (await api.http.get("/audit" + query)).status_code == 400


async def test_without_a_line_nothing_is_changed(api: Managed) -> None:
    api.world.commits.full = True
    answer = await api.http.post("/templates", json=TEMPLATE)
    assert answer.status_code == 503
    refused = await api.http.get("/templates", headers={"Authorization": "sk_no_such"})
    assert refused.status_code == 401
    api.world.commits.full = False
    assert (await api.http.get("/templates")).json() == []
    assert await lines(api) == []


async def test_a_change_whose_line_cannot_be_ended_is_still_in_it(
    api: Managed, caplog: pytest.LogCaptureFixture
) -> None:
    commits, end = api.world.commits, api.management.audit.end

    async def full_by_then(n: int, status: int, message: str) -> None:
        commits.full = True
        await end(n, status, message)

    api.management.audit.end = full_by_then  # type: ignore[method-assign]
    assert (await api.http.post("/templates", json=TEMPLATE)).status_code == 200
    commits.full = False
    (line,) = await lines(api)
    assert short(line) == ("POST", "/v1/templates", None)
    assert "not in the audit log: POST /v1/templates" in caplog.text


async def test_calls_with_unknown_keys_do_not_fill_the_store(
    api: Managed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "UNKNOWN_PER_MINUTE", 3)
    api.world.moved -= api.world.now() % 60  # a minute begins: none of them ends among these calls
    for minute in (1, 2):
        for _ in range(5):
            assert (await api.http.get("/pods", headers={"Authorization": "sk_x"})).status_code == 401
        assert len(await lines(api)) == 3 * minute
        assert caplog.text.count("the rest of them is not in the audit log") == minute
        api.world.moved += 60.0
    await api.http.delete("/templates/nosuch")
    assert len(await lines(api)) == 7, "who has a key is always in it"


async def test_lines_are_forgotten_after_ninety_days(api: Managed) -> None:
    await api.made("/templates", **TEMPLATE)
    api.world.moved += audit.KEPT_S - 10
    await api.made("/templates", **TEMPLATE | {"name": "u"})
    await api.management.audit.sweep()
    assert len(await lines(api)) == 2
    api.world.moved += 20
    api.run()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(await lines(api)) == 1
