"""Network volumes over HTTP, and how nodes hear of them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import update

from stoker.control.rules.types import EndpointVersion
from stoker.control.store.resources.volumes import REMEMBERED_S, list_volumes
from stoker.control.store.tables.resources import volumes
from stoker.wire.messages import Desired, RegistryAuth, VolumeSpec, VolumeUsed
from tests.control.http.management.managed import V2, Managed, managed
from tests.control.plane_world import endpoint, story
from tests.control.scripted_agent import ScriptedAgent

VOLUMES = "/networkvolumes"
REQUEST = {"name": "my network volume", "size": 50, "dataCenterId": "EU-RO-1"}
ROOT = {"volumes": "yes: at /runpod-volume"}


async def attached(api: Managed, volume: str, **fields: Any) -> dict[str, Any]:
    """An endpoint that has it."""
    template = await api.made("/templates", name=f"of {volume}", imageName="ghcr.io/a/b:1", isServerless=True)
    values = {"templateId": template["id"], "name": "with a volume", "networkVolumeId": volume, **fields}
    return await api.made("/endpoints", **values)


async def test_one_is_created_listed_read_grown_and_deleted(api: Managed) -> None:
    answer = await api.http.post(VOLUMES, json=REQUEST)
    assert answer.status_code == 200
    made = answer.json()
    assert made == REQUEST | {"id": made["id"], "networkVolumeId": made["id"]}
    path = f"{VOLUMES}/{made['id']}"
    assert (await api.http.get(VOLUMES)).json() == [made]
    assert (await api.http.get(path)).json() == made

    grown = await api.http.patch(path, json={"size": 100})
    assert grown.status_code == 200
    assert grown.json() == made | {"size": 100}
    named = await api.http.post(f"{path}/update", json={"name": "another"})
    assert named.json() == made | {"size": 100, "name": "another"}
    await api.again()
    assert (await api.http.get(path)).json() == named.json()

    gone = await api.http.delete(path)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await api.http.get(VOLUMES)).json() == []
    assert (await api.http.get(path)).status_code == 404
    assert (await api.http.patch(path, json={"size": 200})).status_code == 404
    assert (await api.http.delete(path)).status_code == 400


@pytest.mark.parametrize("size", [0, 50, 4000])
@pytest.mark.parametrize("method", ["PATCH", "POST"])
async def test_sizes_that_may_be(api: Managed, size: int, method: str) -> None:
    made = await api.made(VOLUMES, **REQUEST | {"size": size})
    path = f"{VOLUMES}/{made['id']}" + ("/update" if method == "POST" else "")
    assert (await api.http.request(method, path, json={"size": size})).status_code == 200
    assert (await api.http.request(method, path, json={"size": 4000})).json()["size"] == 4000


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": -1}, "size: "),
        ({"size": 4001}, "size: "),
        ({"size": 1.5}, "size: "),
        ({"size": "50"}, "size: "),
        ({"size": None}, "size: "),
        ({"name": 5}, "name: "),
        ({"dataCenterId": "MARS-1"}, "dataCenterId must hold names out of: EU-RO-1,"),
        ({"dataCenterId": 7}, "dataCenterId: "),
    ],
)
async def test_a_bad_body_names_the_field(api: Managed, changes: dict[str, Any], message: str) -> None:
    answer = await api.http.post(VOLUMES, json=REQUEST | changes)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(message)
    assert (await api.http.get(VOLUMES)).json() == []


@pytest.mark.parametrize("field", REQUEST)
async def test_every_field_is_required(api: Managed, field: str) -> None:
    answer = await api.http.post(VOLUMES, json={name: REQUEST[name] for name in REQUEST if name != field})
    assert answer.status_code == 400
    assert answer.json()["error"] == f"{field} is required and missing"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 49}, "size may only grow: volume"),
        ({"size": 4001}, "size: "),
        ({"name": 5}, "name: "),
    ],
)
async def test_a_bad_change_changes_nothing(api: Managed, changes: dict[str, Any], message: str) -> None:
    made = await api.made(VOLUMES, **REQUEST)
    path = f"{VOLUMES}/{made['id']}"
    for method, address in (("PATCH", path), ("POST", f"{path}/update")):
        answer = await api.http.request(method, address, json=changes)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(message)
    assert (await api.http.get(path)).json() == made


async def test_ids_that_are_none(api: Managed) -> None:
    for bad in ("A B", "-x", "x" * 64):
        for method in ("GET", "PATCH", "DELETE"):
            answer = await api.http.request(
                method, f"{VOLUMES}/{bad}", json={} if method == "PATCH" else None
            )
            assert answer.status_code == (400 if method == "DELETE" else 404), method
    assert (await api.http.get(f"{VOLUMES}/unknown")).status_code == 404
    assert (await api.http.patch(f"{VOLUMES}/unknown", json={})).status_code == 404
    answer = await api.http.delete(f"{VOLUMES}/unknown")
    assert answer.status_code == 400
    assert answer.json()["error"] == "no network volume 'unknown': there is nothing to delete"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_no_key_no_answer(api: Managed, method: str) -> None:
    path = f"{VOLUMES}/x" if method == "DELETE" else VOLUMES
    answer = await api.http.request(method, path, headers={"authorization": "Bearer sk_wrong"})
    assert answer.status_code == 401


async def test_one_that_is_attached_is_kept(api: Managed) -> None:
    made = await api.made(VOLUMES, **REQUEST)
    user = await attached(api, made["id"])
    answer = await api.http.delete(f"{VOLUMES}/{made['id']}")
    assert answer.status_code == 400
    assert answer.json()["error"] == (
        f"network volume {made['id']} is attached to endpoint {user['id']} (with a volume)"
    )
    await api.http.delete(f"/endpoints/{user['id']}")
    assert (await api.http.delete(f"{VOLUMES}/{made['id']}")).status_code == 204


async def test_two_changes_at_once_never_shrink_it(api: Managed) -> None:
    made = await api.made(VOLUMES, **REQUEST)
    path = f"{VOLUMES}/{made['id']}"
    answers = await asyncio.gather(
        api.http.patch(path, json={"size": 200}), api.http.patch(path, json={"size": 100})
    )
    assert sorted(answer.status_code for answer in answers) == [200, 400]
    assert (await api.http.get(path)).json()["size"] == 200


# -- what nodes hear, and tell


class Node:
    """A scripted agent that remembers the volumes it is told of."""

    def __init__(self, api: Managed, tasks: asyncio.TaskGroup, name: str = "node-1") -> None:
        self.agent: ScriptedAgent = api.world.agent(node=name)
        self.api, self.tasks = api, tasks
        self.volumes: dict[str, VolumeSpec] = {}

    async def connect(self, **facts: str) -> None:
        self._note((await self.agent.connect(self.tasks, facts=facts)).desired)

    def _note(self, reported: Desired | None) -> None:
        if reported is not None:
            self.volumes = {spec.volume: spec for spec in reported.volumes}

    async def receive(self, seconds: float = 3.0) -> dict[str, VolumeSpec]:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._note((await self.agent.receive()).desired)
        return self.volumes


@story
async def test_a_node_with_a_root_receives_every_volume_and_its_deletion() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        first = await api.made(VOLUMES, **REQUEST)
        with_root, without = Node(api, tasks), Node(api, tasks, "node-2")
        await with_root.connect(**ROOT)
        await without.connect(volumes="no: no volume root")
        assert await with_root.receive() == {first["id"]: VolumeSpec(first["id"], 50 * 10**9)}
        second = await api.made(VOLUMES, **REQUEST | {"size": 1})
        assert (await with_root.receive()).keys() == {first["id"], second["id"]}
        await api.http.patch(f"{VOLUMES}/{second['id']}", json={"size": 2})
        assert (await with_root.receive())[second["id"]].size_bytes == 2 * 10**9
        await api.http.delete(f"{VOLUMES}/{first['id']}")
        assert (await with_root.receive())[first["id"]].gone
        await with_root.agent.report(VolumeUsed(first["id"], 0, gone=True))
        assert await without.receive() == {}
        for node in (with_root, without):
            await node.agent.leaves()


@story
async def test_a_node_that_was_away_receives_the_deletion_for_a_month() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        made = await api.made(VOLUMES, **REQUEST)
        await api.http.delete(f"{VOLUMES}/{made['id']}")
        api.world.moved += REMEMBERED_S - 60
        await api.again()
        node = Node(api, tasks)
        await node.connect(**ROOT)
        assert (await node.receive())[made["id"]].gone
        await node.agent.leaves()


async def test_it_is_forgotten_after_a_month_once_it_is_billed(api: Managed) -> None:
    def known() -> int:
        return len(list_volumes(api.world.store.writer))

    made = await api.made(VOLUMES, **REQUEST)
    await api.http.delete(f"{VOLUMES}/{made['id']}")
    api.world.moved += REMEMBERED_S + 60
    await api.again()
    assert known() == 1
    billed = update(volumes).values(billed_to=api.world.now())
    await api.world.commits.commit(lambda conn: conn.execute(billed).rowcount)
    await api.again()
    assert known() == 0


@story
async def test_what_is_measured_is_reported() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        made = await api.made(VOLUMES, **REQUEST)
        path = f"{VOLUMES}/{made['id']}"
        node = Node(api, tasks)
        await node.connect(**ROOT)
        await node.agent.report(VolumeUsed(made["id"], 12_345), VolumeUsed("another", 1))
        await node.receive()
        body = (await api.http.get(path)).json()
        assert body["usedBytes"] == 12_345
        assert body["usedAt"].startswith("1970-01-12T")
        await api.http.patch(path, json={"size": 51})
        await api.again()
        assert (await api.http.get(path)).json() == body | {"size": 51}
        await node.agent.leaves()


@story
async def test_workers_go_where_their_volume_is_and_their_jobs_say_why_they_wait() -> None:
    run = EndpointVersion("/h/echo.py:handler", volume="weights")
    async with managed(endpoint(run=run, workers_min=1)) as api, asyncio.TaskGroup() as tasks:
        api.run()
        without = Node(api, tasks, "node-2")
        await without.connect(volumes="no: no volume root")
        job = await api.http.post(V2 + "/echo/run", json={"input": {}})
        await without.receive()
        status = await api.http.get(f"{V2}/echo/status/{job.json()['id']}")
        assert (
            "has no place for volume weights (start its agent with --volume-root)" in status.json()["reason"]
        )
        with_root = Node(api, tasks)
        await with_root.connect(**ROOT)
        await with_root.receive()
        (spec,) = with_root.agent.specs.values()
        assert spec.volume == "weights"
        assert without.agent.specs == {}
        for node in (with_root, without):
            await node.agent.leaves()


@story
async def test_an_overfull_volume_gets_no_more_workers_until_it_has_grown() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        made = await api.made(VOLUMES, **REQUEST)
        user = await attached(api, made["id"], computeType="CPU")
        node = Node(api, tasks)
        await node.connect(**ROOT)
        await node.agent.report(VolumeUsed(made["id"], 51 * 10**9))
        await node.receive()
        job = await api.http.post(f"{V2}/{user['id']}/run", json={"input": {}})
        await node.receive(10)
        status = await api.http.get(f"{V2}/{user['id']}/status/{job.json()['id']}")
        assert (
            f"is closed to volume {made['id']}, which holds 51.0 GB and has a size of 50 GB"
            in status.json()["reason"]
        )
        assert user["id"] not in {spec.endpoint for spec in node.agent.specs.values()}
        await api.http.patch(f"{VOLUMES}/{made['id']}", json={"size": 51})
        await node.receive(10)
        assert user["id"] in {spec.endpoint for spec in node.agent.specs.values()}
        await node.agent.leaves()


@story
async def test_a_volume_of_another_data_center_is_not_used() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        made = await api.made(VOLUMES, **REQUEST)
        user = await attached(api, made["id"], computeType="CPU", workersMin=1)
        far, near = Node(api, tasks, "node-2"), Node(api, tasks)
        await far.connect(**ROOT, data_center="HERE-1")
        await far.receive()
        assert user["id"] not in {spec.endpoint for spec in far.agent.specs.values()}
        local = await api.made(VOLUMES, **REQUEST | {"dataCenterId": "HERE-1"})
        assert local["dataCenterId"] == "HERE-1"
        await near.connect(**ROOT, data_center="EU-RO-1")
        await near.receive()
        assert user["id"] in {spec.endpoint for spec in near.agent.specs.values()}
        for node in (far, near):
            await node.agent.leaves()


@story
async def test_a_pod_keeps_its_volume_its_registry_auth_and_its_secret() -> None:
    async with managed() as api, asyncio.TaskGroup() as tasks:
        api.run()
        node = Node(api, tasks)
        await node.connect(**ROOT, containers="docker 28.0.1", containers_cdi="yes")
        volume = await api.made(VOLUMES, **REQUEST)
        login = {"name": "creds", "username": "me", "password": "hunter2"}
        registry = await api.made("/containerregistryauth", **login)
        await api.http.put("/secrets/db", json={"value": "hunter3"})
        pod = await api.made(
            "/pods",
            name="notebook",
            imageName="ghcr.io/a/b:1",
            computeType="CPU",
            networkVolumeId=volume["id"],
            containerRegistryAuthId=registry["id"],
            env={"DB": "pg://{{ RUNPOD_SECRET_db }}"},
        )
        assert pod["env"] == {"DB": "pg://{{ RUNPOD_SECRET_db }}"}
        await node.receive()
        (spec,) = node.agent.pods.values()
        assert (spec.volume, spec.env["DB"]) == (volume["id"], "pg://hunter3")
        assert set(spec.hidden) == {"hunter3", spec.env["RUNPOD_API_KEY"]}
        assert spec.registry == RegistryAuth("me", "hunter2")

        used = [f"{VOLUMES}/{volume['id']}", f"/containerregistryauth/{registry['id']}", "/secrets/db"]
        for path in used:
            answer = await api.http.delete(path)
            assert answer.status_code == 400
            assert answer.json()["error"].endswith(f" pod {pod['id']} (notebook)")
        await api.http.delete(f"/pods/{pod['id']}")
        for path in used:
            assert (await api.http.delete(path)).status_code == 204, path
        await node.agent.leaves()
