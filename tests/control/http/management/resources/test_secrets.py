"""Named secrets over HTTP, and how they reach workers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from stoker.control.rules.types import EndpointVersion
from stoker.control.store.database.opening import open_store
from stoker.control.store.database.secrets import random_secrets
from stoker.control.store.resources.named_secrets import put_secret, read_secrets
from stoker.wire.messages import WorkerSpec
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.plane_world import endpoint, story

VALUE = "value-that-nobody-sees"


async def put(api: Managed, name: str, value: str = VALUE) -> Any:
    return await api.http.put(f"/secrets/{name}", json={"value": value})


async def test_one_is_put_listed_changed_and_deleted(api: Managed) -> None:
    first = await put(api, "token")
    assert first.status_code == 200
    assert first.json() == {
        "name": "token",
        "createdAt": first.json()["createdAt"],
        "changedAt": first.json()["createdAt"],
    }
    api.world.moved += 60.0
    second = (await put(api, "token", "another")).json()
    assert second["createdAt"] == first.json()["createdAt"] < second["changedAt"]
    await put(api, "Another_1")
    listed = (await api.http.get("/secrets")).json()
    assert [one["name"] for one in listed] == ["Another_1", "token"]
    assert listed[1] == second
    gone = await api.http.delete("/secrets/token")
    assert (gone.status_code, gone.content) == (204, b"")
    assert [one["name"] for one in (await api.http.get("/secrets")).json()] == ["Another_1"]


@pytest.mark.parametrize("name", ["1st", "a-b", "a.b", "x" * 129, "%20", "ä"])
async def test_what_cannot_name_one(api: Managed, name: str) -> None:
    assert (await put(api, name)).status_code == 400
    assert (await api.http.delete(f"/secrets/{name}")).status_code == 400
    assert (await put(api, "x" * 128)).status_code == 200


@pytest.mark.parametrize("body", [{}, {"value": 7}, {"value": ""}, {"value": [VALUE]}, [VALUE], VALUE])
async def test_a_bad_body_is_refused_and_not_repeated(api: Managed, body: Any) -> None:
    answer = await api.http.put("/secrets/token", json=body)
    assert answer.status_code == 400
    assert VALUE not in answer.text
    assert (await api.http.get("/secrets")).json() == []


async def test_a_value_is_so_long_at_most(api: Managed) -> None:
    assert (await put(api, "long", "x" * 64 * 1024)).status_code == 200
    for value in ("x" * (64 * 1024 + 1), "ä" * (32 * 1024 + 1)):
        answer = await put(api, "longer", value)
        assert answer.status_code == 400
        assert "xxx" not in answer.text
        assert "ää" not in answer.text


async def test_unknown_ones_and_no_key(api: Managed) -> None:
    answer = await api.http.delete("/secrets/unknown")
    assert (answer.status_code, answer.json()["error"]) == (404, "no secret 'unknown'")
    for method, path in (("GET", "/secrets"), ("PUT", "/secrets/a"), ("DELETE", "/secrets/a")):
        answer = await api.http.request(method, path, headers={"authorization": "Bearer sk_wrong"})
        assert answer.status_code == 401


async def test_what_names_a_secret_that_there_is_not(api: Managed) -> None:
    requested = {"name": "t", "imageName": "ghcr.io/a/b:1", "env": {"HF": "{{ RUNPOD_SECRET_token }}"}}
    answer = await api.http.post("/templates", json=requested)
    assert answer.status_code == 400
    why, where = answer.json()["error"].split("; ")
    assert why == "env.HF names the secret 'token', and there is none of this name"
    assert where == "store it first, under /v1/secrets/token"
    await put(api, "token")
    made = await api.made("/templates", **requested)
    assert made["env"] == {"HF": "{{ RUNPOD_SECRET_token }}"}
    answer = await api.http.delete("/secrets/token")
    assert answer.status_code == 400
    assert f"in use by template {made['id']} (t)" in answer.json()["error"]
    answer = await api.http.patch(f"/templates/{made['id']}", json={"env": {"A": "{{STOKER_SECRET_b}}"}})
    assert answer.status_code == 400
    await api.http.patch(f"/templates/{made['id']}", json={"env": {}})
    assert (await api.http.delete("/secrets/token")).status_code == 204


async def test_nothing_ever_shows_a_value(api: Managed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    responses = [await put(api, "token"), await put(api, "token", VALUE + "2")]
    responses += [await api.http.get("/secrets"), await api.http.get("/secrets/token")]
    responses.append(await api.http.delete("/secrets/token"))
    texts = [str(one.headers) + one.text for one in responses] + [
        record.getMessage() for record in caplog.records
    ]
    assert not [text for text in texts if VALUE in text]


def test_the_file_holds_no_clear_text(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store.db", secrets=random_secrets())
    store.writer.begin()
    put_secret(store.writer, "default", "token", VALUE, 1.0)
    store.writer.commit()
    assert read_secrets(store.writer) == {"default": {"token": VALUE}}
    store.close()
    assert VALUE.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


# -- how they reach workers

NAMED = EndpointVersion("/h/echo.py:handler", env={"URL": "pg://{{ STOKER_SECRET_db }}@host", "MODE": "x"})


async def desired_worker(agent: Any) -> WorkerSpec:
    while not agent.specs:
        await agent.receive()
    (spec,) = agent.specs.values()
    return spec


@story
async def test_a_worker_waits_for_its_secret_reports_it_and_gets_it() -> None:
    async with managed(endpoint(run=NAMED, workers_min=1)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        agent = api.world.agent()
        await agent.connect(tasks)
        await asyncio.sleep(5)
        echo = api.plane.endpoints.find("default", "echo")
        assert api.plane.scaling.reason(echo) == (
            "no capacity: env.URL names the secret 'db', and there is none of this name"
        )
        assert api.plane.cluster.workers == {}
        assert (await put(api, "db", "me:hunter2")).status_code == 200
        spec = await desired_worker(agent)
        assert spec.env == {"URL": "pg://me:hunter2@host", "MODE": "x"}
        assert spec.hidden == ("me:hunter2",)
        assert "hunter2" not in repr(api.plane.endpoints.find("default", "echo"))
        await agent.leaves()


@story
async def test_a_changed_secret_reaches_the_next_worker_only() -> None:
    async with (
        managed(endpoint(run=NAMED, workers_min=1, workers_max=2)) as api,
        asyncio.TaskGroup() as tasks,
    ):
        await put(api, "db", "old")
        api.run()
        agent = api.world.agent()
        await agent.connect(tasks)
        first = await desired_worker(agent)
        await put(api, "db", "new")
        answer = await api.http.delete("/secrets/db")
        assert answer.status_code == 400
        assert "in use by endpoint echo (echo)" in answer.json()["error"]
        for _ in range(2):
            await api.http.post(V2 + "/echo/run", json={"input": {}})
        while len(agent.specs) < 2:
            await agent.receive()
        second = next(spec for name, spec in agent.specs.items() if name != first.worker)
        assert agent.specs[first.worker].env["URL"] == "pg://old@host"
        assert second.env["URL"] == "pg://new@host"
        await agent.leaves()
