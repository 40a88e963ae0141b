"""Endpoints over HTTP: created, read, changed, deleted, and what becomes of their jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.control.config.settings import PlaneSettings
from tests.control.http.management.managed import V2, Managed, managed

IMAGE = "ghcr.io/example/worker:1.2"


async def template(api: Managed, **fields: Any) -> str:
    made = await api.made("/templates", **{"name": "t", "imageName": IMAGE, "isServerless": True, **fields})
    return str(made["id"])


async def made(api: Managed, **fields: Any) -> dict[str, Any]:
    return await api.made("/endpoints", **{"templateId": await template(api), **fields})


async def test_defaults_are_shown(api: Managed) -> None:
    body = await made(api, name="e")
    defaults = {
        "name": "e",
        "type": "QUEUE",
        "origin": "api",
        "version": 1,
        "computeType": "GPU",
        "executionTimeoutMs": 600_000,
        "gpuCount": 1,
        "gpuTypeIds": [],
        "idleTimeout": 5,
        "scalerType": "QUEUE_DELAY",
        "scalerValue": 4,
        "workersMin": 0,
        "workersMax": 3,
        "userId": "default",
        "env": {},
        "networkVolumeIds": [],
    }
    assert {name: body[name] for name in defaults} == defaults
    assert "EU-RO-1" in body["dataCenterIds"]
    assert body["createdAt"].endswith("Z")


async def test_an_empty_name_is_none(api: Managed) -> None:
    """As in stoker.toml, where an endpoint without a name is shown by its id."""
    templates = [await api.made("/templates", name=name, imageName=IMAGE) for name in ("caption", "")]
    named, nameless = [await api.made("/endpoints", templateId=one["id"], name="") for one in templates]
    assert (named["name"], nameless["name"]) == ("caption", nameless["id"])
    own = await api.made("/endpoints", templateId=templates[0]["id"], name="own")
    changed = await api.http.patch(f"/endpoints/{own['id']}", json={"name": ""})
    assert changed.json()["name"] == "caption"


async def test_a_list_holds_those_of_the_file_too(api: Managed) -> None:
    body = await made(api)
    listed = (await api.http.get("/endpoints")).json()
    assert [(one["id"], one["origin"]) for one in listed] == [("echo", "file"), (body["id"], "api")]


@pytest.mark.parametrize(("method", "path"), [("PATCH", ""), ("POST", "/update")])
async def test_in_place_changes_make_no_version_and_others_do(api: Managed, method: str, path: str) -> None:
    body = await made(api)
    address = f"/endpoints/{body['id']}{path}"
    in_place = {
        "executionTimeoutMs": 60_000,
        "flashboot": True,
        "idleTimeout": 60,
        "name": "other",
        "quota": {"jobsWaiting": 7},
        "scalerType": "REQUEST_COUNT",
        "scalerValue": 1,
        "workersMax": 5,
        "workersMin": 1,
    }
    changed = (await api.http.request(method, address, json=in_place)).json()
    assert changed == body | in_place
    again = (await api.http.request(method, address, json={"gpuCount": 1})).json()
    assert again["version"] == 1, "nothing changed"
    anew = (await api.http.request(method, address, json={"gpuTypeIds": ["NVIDIA A40"]})).json()
    assert (anew["version"], anew["gpuTypeIds"]) == (2, ["NVIDIA A40"])
    assert (await api.http.get(f"/endpoints/{body['id']}")).json() == anew


@pytest.mark.parametrize(
    "change",
    [
        {"allowedCudaVersions": ["12.8"]},
        {"cpuFlavorIds": ["cpu3c"]},
        {"dataCenterIds": ["EU-RO-1"]},
        {"gpuCount": 2},
        {"gpuTypeIds": ["NVIDIA A40"]},
        {"minCudaVersion": "12.1"},
        {"nodeLabels": {"zone": "a"}},
        {"vcpuCount": 4},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_everything_else_makes_a_version(api: Managed, change: dict[str, Any]) -> None:
    body = await made(api)
    changed = (await api.http.patch(f"/endpoints/{body['id']}", json=change)).json()
    assert changed["version"] == 2
    assert {name: changed[name] for name in change} == change


async def test_a_changed_template_makes_versions_of_its_endpoints(api: Managed) -> None:
    body = await made(api)
    for change, version in [
        ({"readme": "words", "name": "new", "isPublic": True, "volumeInGb": 1, "volumeMountPath": "/v"}, 1),
        ({"env": {"MODE": "fast"}}, 2),
        ({"env": {"MODE": "fast"}}, 2),
        ({"ports": ["80/http"]}, 3),
        ({"concurrency": 4}, 4),
    ]:
        answer = await api.http.patch(f"/templates/{body['templateId']}", json=change)
        assert answer.status_code == 200, answer.text
        now = (await api.http.get(f"/endpoints/{body['id']}")).json()
        assert now["version"] == version, change
    assert now["env"] == {"MODE": "fast"}


async def test_a_bound_template_is_kept_and_hidden_from_plain_lists(api: Managed) -> None:
    body = await made(api)
    path = f"/templates/{body['templateId']}"
    refused = await api.http.delete(path)
    assert (refused.status_code, body["id"] in refused.json()["message"]) == (400, True)
    assert (await api.http.get("/templates")).json() == []
    bound = await api.http.get("/templates", params={"includeEndpointBoundTemplates": "true"})
    assert [one["id"] for one in bound.json()] == [body["templateId"]]

    assert (await api.http.delete(f"/endpoints/{body['id']}")).status_code == 204
    assert (await api.http.delete(path)).status_code == 204


async def test_what_is_included_is_requested(api: Managed) -> None:
    body = await made(api)
    path = f"/endpoints/{body['id']}"
    assert not {"template", "workers"} & (await api.http.get(path)).json().keys()
    more = (await api.http.get(path, params={"includeTemplate": "true", "includeWorkers": "true"})).json()
    assert (more["template"]["id"], more["workers"]) == (body["templateId"], [])


async def test_it_survives_another_control_process(api: Managed) -> None:
    body = await made(api, workersMin=1, flashboot=True, gpuTypeIds=["NVIDIA A40"])
    await api.again()
    assert (await api.http.get(f"/endpoints/{body['id']}")).json() == body
    changed = await api.http.patch(f"/endpoints/{body['id']}", json={"workersMax": 9})
    assert changed.json() == body | {"workersMax": 9}


async def test_a_cpu_endpoint_is_one(api: Managed) -> None:
    body = await made(api, computeType="CPU", cpuFlavorIds=["cpu3c", "cpu5g"], vcpuCount=8)
    assert (body["computeType"], body["instanceIds"]) == ("CPU", ["cpu3c-8-16", "cpu5g-8-32"])
    stored = api.plane.endpoints.by_id.get(body["id"])
    assert stored is not None
    needs = stored.run.needs
    assert (needs.compute, needs.vcpus, needs.memory_bytes) == ("CPU", 8, 16_000_000_000)


async def test_an_endpoint_of_the_file_is_the_files_to_change(api: Managed) -> None:
    for answer in (
        await api.http.patch("/endpoints/echo", json={"workersMax": 1}),
        await api.http.post("/endpoints/echo/update", json={}),
        await api.http.delete("/endpoints/echo"),
    ):
        assert answer.status_code == 400
        assert "configuration file" in answer.json()["message"]


async def test_a_deleted_endpoints_jobs_end(api: Managed) -> None:
    body = await made(api)
    url = f"{V2}/{body['id']}"
    job = (await api.http.post(f"{url}/run", json={"input": {}})).json()["id"]
    assert (await api.http.delete(f"/endpoints/{body['id']}")).status_code == 204

    assert (await api.http.get(f"{url}/status/{job}")).status_code == 404
    assert (await api.http.post(f"{url}/run", json={"input": {}})).status_code == 404
    row = api.world.store.writer.run("SELECT state, reason FROM jobs WHERE id = :id", {"id": job}).fetchone()
    assert tuple(row) == ("CANCELLED", "the endpoint was deleted")
    again = await api.http.delete(f"/endpoints/{body['id']}")
    assert (again.status_code, "was deleted" in again.json()["message"]) == (404, True)
    assert (await api.http.get("/endpoints")).json()[0]["id"] == "echo"


async def test_a_load_balancing_endpoint_is_listed_and_takes_no_jobs(api: Managed) -> None:
    told = await made(api, type="LOAD_BALANCER")
    assert told["type"] == "LOAD_BALANCER"
    assert (told["scalerType"], told["scalerValue"]) == ("REQUEST_COUNT", 4)
    refused = await api.http.post(f"{V2}/{told['id']}/run", json={"input": {}})
    assert (refused.status_code, "not allowed for QB API" in refused.text) == (400, True)
    handler = {"name": "with a handler", "imageName": IMAGE, "isServerless": True, "handler": "/app/h.py:run"}
    given = await api.made("/templates", **handler)
    body = {"templateId": given["id"], "type": "LOAD_BALANCER"}
    refused = await api.http.post("/endpoints", json=body)
    assert (refused.status_code, "runs an HTTP server and no handler" in refused.text) == (400, True)


async def test_the_worker_for_functions_has_no_path() -> None:
    async with managed(settings=PlaneSettings(functions=True)) as api:
        image = {"imageName": "local:stoker.functions"}
        queue = await template(api, **image)
        server = await template(api, name="server", dockerStartCmd=["python"], **image)
        for made_from, kind, handler in (
            (queue, "QUEUE", "stoker.worker.functions.handler:Functions"),
            (server, "LOAD_BALANCER", ""),
        ):
            found = await api.made("/endpoints", templateId=made_from, type=kind)
            stored = api.plane.endpoints.by_id.get(found["id"])
            assert stored is not None
            assert (stored.run.handler, stored.run.image) == (handler, "")


async def test_a_local_path_must_be_in_the_roots(tmp_path: Path) -> None:
    handler = tmp_path / "roots" / "echo.py"
    handler.parent.mkdir()
    handler.write_text("")
    (tmp_path / "outside.py").write_text("")
    (handler.parent / "linked.py").symlink_to(tmp_path / "outside.py")
    settings = PlaneSettings(local_roots=(str(handler.parent),), local_base=str(tmp_path))
    async with managed(settings=settings) as api:
        made_from = await template(api, imageName="local:roots/echo.py:handler")
        found = await api.made("/endpoints", templateId=made_from)
        stored = api.plane.endpoints.by_id.get(found["id"])
        assert stored is not None
        assert stored.run.handler == f"{handler}:handler"
        for image in (
            "local:outside.py:handler",
            "local:echo.py:handler",
            "local:roots/../outside.py:handler",
            "local:roots/linked.py:handler",
            "local:roots/none.py:handler",
            "local:roots/echo.py",
            f"local:{tmp_path}/outside.py:handler",
        ):
            body = {"name": "other", "imageName": image}
            refused = await api.http.post("/templates", json=body)
            assert (refused.status_code, refused.json()["message"][:9]) == (400, "imageName"), image


async def test_a_volume_is_named_by_either_field_and_unset_by_null(api: Managed) -> None:
    one, other = [
        (await api.made("/networkvolumes", name=name, size=1, dataCenterId="EU-RO-1"))["id"]
        for name in ("one", "other")
    ]
    body = await made(api, networkVolumeId=one)
    path = f"/endpoints/{body['id']}"
    assert (body["networkVolumeId"], body["networkVolumeIds"]) == (one, [one])
    changed = (await api.http.patch(path, json={"networkVolumeIds": [other]})).json()
    assert (changed["networkVolumeId"], changed["version"]) == (other, 2)
    refused = await api.http.patch(path, json={"networkVolumeIds": [one, other]})
    assert (refused.status_code, "may hold one id" in refused.json()["message"]) == (400, True)
    unset = (await api.http.patch(path, json={"networkVolumeIds": None})).json()
    assert ("networkVolumeId" in unset, unset["networkVolumeIds"], unset["version"]) == (False, [], 3)


async def test_what_has_no_default_is_unset_by_null(api: Managed) -> None:
    body = await made(api, gpuMemoryMb=16_000, minCudaVersion="12.1")
    path = f"/endpoints/{body['id']}"
    changed = (await api.http.patch(path, json={"gpuMemoryMb": None, "minCudaVersion": None})).json()
    assert not {"gpuMemoryMb", "minCudaVersion"} & changed.keys()
    assert (await api.http.patch(path, json={"gpuCount": None})).status_code == 400


async def test_another_template_is_taken_at_once(api: Managed) -> None:
    body = await made(api)
    other = await template(api, name="u", env={"MODE": "other"})
    changed = (await api.http.patch(f"/endpoints/{body['id']}", json={"templateId": other})).json()
    assert (changed["templateId"], changed["env"], changed["version"]) == (other, {"MODE": "other"}, 2)
    assert (await api.http.delete(f"/templates/{body['templateId']}")).status_code == 204


async def test_a_secret_is_shown_by_its_name_alone(api: Managed) -> None:
    answer = await api.http.put("/secrets/db", json={"value": "hunter2"})
    assert answer.status_code == 200
    env = {"URL": "pg://{{ STOKER_SECRET_db }}@host"}
    made_from = await template(api, env=env)
    body = await api.made("/endpoints", templateId=made_from)
    shown = await api.http.get(f"/endpoints/{body['id']}?includeTemplate=true&includeWorkers=true")
    assert (shown.json()["env"], shown.json()["template"]["env"]) == (env, env)
    assert "hunter2" not in shown.text
