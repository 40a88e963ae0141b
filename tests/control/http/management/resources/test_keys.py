"""Keys and join tokens over HTTP, and what keys may do at /v1."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from stoker.control.errors import Unauthorized
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.plane_world import endpoint, story

FUTURE = "2036-01-01T00:00:00Z"
RESTRICTED = {"scope": "restricted", "management": "none", "endpoints": {"*": "read"}}


def by(made: dict[str, Any]) -> dict[str, str]:
    return {"Authorization": f"Bearer {made['key']}"}


async def test_a_key_is_made_shown_once_changed_and_revoked(api: Managed) -> None:
    made = await api.made("/keys", name="ci", access=RESTRICTED, expiresAt=FUTURE)
    assert made["key"].startswith(f"sk_{made['id']}_")
    shown = {name: value for name, value in made.items() if name != "key"}
    assert shown["access"] == RESTRICTED

    path = f"/keys/{made['id']}"
    assert (await api.http.get(path)).json() == shown
    assert shown in (await api.http.get("/keys")).json()
    changed = await api.http.patch(path, json={"name": "cd", "expiresAt": None, "access": {"scope": "read"}})
    assert changed.json()["name"] == "cd"
    assert changed.json()["access"] == {"scope": "read"}
    assert "expiresAt" not in changed.json()
    assert (await api.http.post(path + "/update", json={})).json() == changed.json()

    assert (await api.http.get("/templates", headers=by(made))).status_code == 200
    gone = await api.http.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.http.get("/templates", headers=by(made))).status_code == 401, "not a moment more"
    for answer in (
        await api.http.get(path),
        await api.http.delete(path),
        await api.http.patch(path, json={"name": "x"}),
    ):
        assert answer.status_code == 404
    assert made["id"] not in {one["id"] for one in (await api.http.get("/keys")).json()}


async def test_a_quota_refuses_with_429_and_its_use_is_shown(api: Managed) -> None:
    made = await api.made("/keys", name="batch", quota={"jobsWaiting": 1, "gpuSecondsPerDay": 60})
    path = f"/keys/{made['id']}"
    assert made["quota"] == {"jobsWaiting": 1, "gpuSecondsPerDay": 60}
    run = V2 + "/echo/run"
    assert (await api.http.post(run, json={"input": {}}, headers=by(made))).status_code == 200
    refused = await api.http.post(run, json={"input": {}}, headers=by(made))
    assert refused.status_code == 429
    assert refused.json()["error"].startswith(f"key {made['id']} may have 1 jobs waiting")
    assert refused.headers["retry-after"] == "5"
    assert refused.headers["ratelimit-policy"] == '"concurrent";q=1;qu="jobs"'
    assert (await api.http.get(path)).json()["used"] == {"jobsWaiting": 1, "gpuSecondsToday": 0.0}
    changed = await api.http.patch(path, json={"quota": None})
    assert "quota" not in changed.json()
    assert (await api.http.post(run, json={"input": {}}, headers=by(made))).status_code == 200, "at once"
    assert "used" not in (await api.http.get(path)).json()


@pytest.mark.parametrize(
    ("fields", "highest", "allowed"),
    [
        ({}, "urgent", ["urgent", "normal", "low"]),
        ({"access": {**RESTRICTED, "endpoints": {"*": "write"}}}, "normal", ["normal", "low"]),
        ({"priority": "normal"}, "normal", ["normal", "low"]),
        ({"priority": "low"}, "low", ["low"]),
    ],
)
async def test_a_key_submits_no_class_above_its_highest(
    api: Managed, fields: dict[str, Any], highest: str, allowed: list[str]
) -> None:
    made = await api.made("/keys", **fields)
    assert made["priority"] == highest
    for name in ("urgent", "normal", "low"):
        body = {"input": {}, "policy": {"priority": name}}
        answer = await api.http.post(V2 + "/echo/run", json=body, headers=by(made))
        assert answer.status_code == (200 if name in allowed else 403)
        if name not in allowed:
            assert answer.json()["error"] == (
                f"policy.priority: this key may submit jobs of class {highest} and below; got {name};"
                f" `stoker key set --priority {name}` allows it"
            )
    assert (await api.http.post(V2 + "/echo/run", json={"input": {}}, headers=by(made))).status_code == 200


async def test_the_highest_class_of_a_key_is_changed_at_once(api: Managed) -> None:
    made = await api.made("/keys", priority="low")
    run, body = V2 + "/echo/run", {"input": {}, "policy": {"priority": "urgent"}}
    assert (await api.http.post(run, json=body, headers=by(made))).status_code == 403
    changed = await api.http.patch(f"/keys/{made['id']}", json={"priority": None})
    assert changed.json()["priority"] == "urgent"
    assert (await api.http.post(run, json=body, headers=by(made))).status_code == 200
    token = await api.made("/keys", kind="join")
    assert "priority" not in token
    refused = await api.http.patch(f"/keys/{token['id']}", json={"priority": "low"})
    assert refused.json()["error"].startswith("priority is for API keys")


async def test_a_key_gives_its_endpoints_no_more_workers_than_its_quota(api: Managed) -> None:
    made = await api.made("/keys", name="batch", quota={"workers": 5})
    template = await api.made("/templates", name="t", imageName="ghcr.io/example/worker:1")

    async def create(workers: int) -> Any:
        body = {"templateId": template["id"], "workersMax": workers}
        return await api.http.post("/endpoints", json=body, headers=by(made))

    first, refused = (await create(3)).json(), await create(3)
    assert refused.status_code == 429
    assert "may give its endpoints 5 workers in all" in refused.json()["error"]
    assert (await create(2)).status_code == 200
    assert (await api.http.get(f"/keys/{made['id']}")).json()["used"] == {"workers": 5}
    change = {"workersMax": 4}
    assert (
        await api.http.patch(f"/endpoints/{first['id']}", json=change, headers=by(made))
    ).status_code == 429
    assert (await api.http.patch(f"/endpoints/{first['id']}", json=change)).status_code == 200, (
        "another key's"
    )
    await api.again()
    assert (await api.http.get(f"/keys/{made['id']}")).json()["used"] == {"workers": 6}, (
        "after a restart, too"
    )
    fewer = await api.http.patch(f"/endpoints/{first['id']}", json={"workersMax": 1}, headers=by(made))
    assert fewer.status_code == 200


async def test_a_join_token_is_made_and_listed_apart(api: Managed) -> None:
    made = await api.made("/keys", kind="join", name="host", maxUses=1, expiresAt=FUTURE)
    assert made["key"].startswith("jt_")
    assert made["usesLeft"] == 1
    assert "access" not in made
    assert made["id"] in {one["id"] for one in (await api.http.get("/keys?kind=join")).json()}
    assert made["id"] not in {one["id"] for one in (await api.http.get("/keys")).json()}
    assert (await api.http.get("/keys", headers=by(made))).status_code == 401
    answer = await api.http.patch(f"/keys/{made['id']}", json={"access": {"scope": "read"}})
    assert answer.status_code == 400
    assert "join token" in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"name": 5}, "name"),
        ({"maxUses": 1}, 'maxUses is for kind "join"; got 1'),
        ({"kind": "join", "maxUses": 0}, "maxUses"),
        ({"kind": "join", "access": {"scope": "read"}}, "access is for API keys"),
        ({"kind": "join", "quota": {"jobsWaiting": 1}}, "quota is for API keys"),
        ({"quota": {"jobsWaiting": 0}}, "quota.jobsWaiting"),
        ({"quota": {"jobs": 1}}, "quota.jobs"),
        ({"kind": "join", "priority": "low"}, "priority is for API keys"),
        ({"priority": "high"}, "priority"),
        ({"kind": "jion"}, "kind must be one of 'key' or 'join'"),
        ({"expiresAt": "1970-01-01T00:00:00Z"}, "expiresAt must lie in the future"),
        ({"expiresAt": 4_000_000_000}, "expiresAt"),
        ({"expiresAt": "2036-01-01T00:00:00"}, "expiresAt"),
        ({"expiresAt": "9999-12-31T23:59:59-14:00"}, "expiresAt: must lie in the years 1 to 9999 of UTC"),
        ({"expiresAt": "0001-01-01T00:00:00+14:00"}, "expiresAt: must lie in the years 1 to 9999 of UTC"),
        ({"access": {"scope": "everything"}}, "access.scope must be one of"),
        ({"access": {"scope": "read", "management": "write"}}, 'management is for scope "restricted"'),
        ({"access": {"scope": "restricted", "endpoints": {"nope": "read"}}}, "there is no nope"),
        ({"access": {"scope": "restricted", "endpoints": {"echo": "own"}}}, "access.endpoints.echo"),
        ({"key": "sk_mine"}, "key is not a known field"),
        ({"acces": {"scope": "read"}}, "acces is not a known field"),
        ({"access": {"scope": "restricted", "endpoint": {}}}, "access.endpoint is not a known field"),
    ],
)
async def test_what_is_no_key_is_refused_by_the_name_of_its_field(
    api: Managed, body: dict[str, Any], message: str
) -> None:
    answer = await api.http.post("/keys", json=body)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


@pytest.mark.parametrize(
    "access",
    [
        {"scope": "read"},
        {"scope": "restricted", "management": "write", "endpoints": {"*": "write"}},
        {"scope": "restricted", "management": "read"},
        {"scope": "restricted", "management": "none", "endpoints": {"*": "write"}},
    ],
    ids=["read", "writes", "looks", "calls"],
)
async def test_no_weaker_key_makes_or_changes_keys(api: Managed, access: dict[str, Any]) -> None:
    weak = await api.made("/keys", access=access)
    path = f"/keys/{weak['id']}"
    for method, where, body in [
        ("POST", "/keys", {}),
        ("GET", "/keys", None),
        ("GET", path, None),
        ("PATCH", path, {"access": {"scope": "all"}}),
        ("POST", path + "/update", {"access": {"scope": "all"}}),
        ("DELETE", path, None),
    ]:
        answer = await api.http.request(method, where, json=body, headers=by(weak))
        assert answer.status_code == 401, (method, where)
    assert (await api.http.get(path)).json()["access"]["scope"] == access["scope"]


async def test_management_rights_part_looking_from_changing(api: Managed) -> None:
    template = {"name": "t", "imageName": "ghcr.io/example/worker:1"}
    may = {"none": (401, 401), "read": (200, 401), "write": (200, 200)}
    for right, (looking, changing) in may.items():
        key = await api.made("/keys", access={"scope": "restricted", "management": right})
        assert (await api.http.get("/templates", headers=by(key))).status_code == looking
        assert (await api.http.post("/templates", json=template, headers=by(key))).status_code == changing
    reader = await api.made("/keys", access={"scope": "read"})
    assert (await api.http.get("/audit", headers=by(reader))).status_code == 200
    refused = await api.http.post("/templates", json=template, headers=by(reader))
    assert "this key may not change anything here" in refused.json()["error"]
    assert refused.headers["www-authenticate"] == "Bearer"


async def test_rights_at_endpoints_are_checked_there(api: Managed) -> None:
    rights = {"*": "none", "echo": "read"}
    key = await api.made("/keys", access={"scope": "restricted", "endpoints": rights})
    assert (await api.http.get(V2 + "/echo/health", headers=by(key))).status_code == 200
    assert (await api.http.get("/endpoints/echo/health", headers=by(key))).json()["workers"]["ready"] == 0
    assert (await api.http.get("/endpoints/echo", headers=by(key))).status_code == 401
    assert (await api.http.get("/endpoints/another/health", headers=by(key))).status_code == 401
    answer = await api.http.post(V2 + "/echo/run", json={"input": {}}, headers=by(key))
    assert answer.status_code == 401
    await api.http.patch(f"/keys/{key['id']}", json={"access": {"scope": "all"}})
    answer = await api.http.post(V2 + "/echo/run", json={"input": {}}, headers=by(key))
    assert answer.status_code == 200, "a change counts at once"


async def test_a_restricted_key_names_endpoints_of_both_types(api: Managed) -> None:
    template = await api.made("/templates", name="server", imageName="ghcr.io/example/server:1")
    made = await api.made("/endpoints", name="app", templateId=template["id"], type="LOAD_BALANCER")
    rights = {made["id"]: "write", "echo": "read"}
    key = await api.made("/keys", access={"scope": "restricted", "endpoints": rights})
    assert key["access"]["endpoints"] == rights
    changed = {"access": {"scope": "restricted", "endpoints": {made["id"]: "read"}}}
    answer = await api.http.patch(f"/keys/{key['id']}", json=changed)
    assert (answer.status_code, answer.json()["access"]["endpoints"]) == (200, {made["id"]: "read"})


@story
async def test_a_key_ends_when_it_expires_though_it_was_just_used() -> None:
    async with managed(endpoint()) as api:
        end = datetime.fromtimestamp(api.world.now() + 3.0, UTC).isoformat()
        key = await api.made("/keys", expiresAt=end)
        assert (await api.plane.callers.find(key["key"])).key
        await asyncio.sleep(2.9)
        assert (await api.plane.callers.find(key["key"])).key
        await asyncio.sleep(0.2)
        with pytest.raises(Unauthorized):
            await api.plane.callers.find(key["key"])


async def test_what_was_read_before_a_key_was_revoked_is_not_remembered(
    api: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await api.made("/keys")
    callers, commits = api.plane.callers, api.world.commits

    class Slow:
        async def read(self, fn: Any) -> Any:
            found = await commits.read(fn)
            monkeypatch.setattr(callers, "_commits", commits)
            assert (await api.http.delete(f"/keys/{key['id']}")).status_code == 204
            return found

    await api.plane.callers.find(api.world.key)
    monkeypatch.setattr(callers, "_commits", Slow())
    assert (await api.plane.callers.find(key["key"])).key
    with pytest.raises(Unauthorized):
        await api.plane.callers.find(key["key"])


@story
async def test_when_a_key_was_used_is_stored_once_a_minute_alongside_the_calls() -> None:
    async with managed(endpoint()) as api:
        key = await api.made("/keys")
        api.run()
        for _ in range(5):
            assert (await api.http.get(V2 + "/echo/health", headers=by(key))).status_code == 200
            await asyncio.sleep(6)
        assert "lastUsedAt" not in (await api.http.get(f"/keys/{key['id']}")).json()
        api.world.commits.full = True
        await asyncio.sleep(35)
        api.world.commits.full = False
        assert "lastUsedAt" not in (await api.http.get(f"/keys/{key['id']}")).json(), "the store was full"
        await asyncio.sleep(60)
        assert "lastUsedAt" in (await api.http.get(f"/keys/{key['id']}")).json()


@pytest.mark.parametrize("access", [{"scope": "all"}, {"scope": "read"}, RESTRICTED])
async def test_every_key_may_read_its_own_rights(api: Managed, access: dict[str, Any]) -> None:
    made = await api.made("/keys", name="ci", access=access)
    answer = await api.http.get("/self", headers=by(made))
    assert (answer.status_code, answer.json()) == (200, {"id": made["id"], "access": access})
    assert (await api.http.get("/self", headers={"Authorization": "Bearer wrong"})).status_code == 401
    assert (await api.http.post("/self", headers=by(made))).status_code in (401, 405)
