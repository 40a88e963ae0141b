"""Templates that name weights: what the nodes of their endpoints get to fetch, by the lock of control."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.control.config.settings import PlaneSettings
from stoker.wire.messages import Device, LockedWeights, WeightsFile
from stoker.wire.messages.weights import HELD, MOST, ROOM
from tests.control.http.management.managed import Managed, managed
from tests.control.plane_world import endpoint, story

IMAGE = "ghcr.io/example/worker:1.2"


def locked(name: str, sha256: str = "ab" * 32) -> tuple[LockedWeights, ...]:
    files = (WeightsFile("model.safetensors", 24_000_000_000, sha256),)
    return (LockedWeights(name, f"huggingface:o/{name}", "c0ffee", files),)


SETTINGS = PlaneSettings(weights={"flux": locked("flux"), "ink": locked("ink"), "flux-tiny": ()})


def weights_of(api: Managed, made: dict[str, Any]) -> tuple[LockedWeights, ...]:
    found = api.plane.endpoints.by_id.get(made["id"])
    assert found is not None
    return found.run.weights


async def test_an_endpoint_has_those_of_its_template_and_a_new_version_with_others() -> None:
    async with managed(settings=SETTINGS) as api:
        names = ["ink", "flux-tiny", "flux", "ink"]
        template = await api.made("/templates", name="t", imageName=IMAGE, weights=names)
        assert template["weights"] == names
        made = await api.made("/endpoints", templateId=template["id"])
        assert weights_of(api, made) == locked("ink") + locked("flux")
        path = f"/templates/{template['id']}"
        changed = await api.http.patch(path, json={"weights": ["flux"]})
        assert changed.json()["weights"] == ["flux"]
        assert weights_of(api, made) == locked("flux")
        assert (await api.http.get(f"/endpoints/{made['id']}")).json()["version"] == 2
        await api.http.patch(path, json={"weights": []})
        assert weights_of(api, made) == ()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["flux", "flx"],
            'weights must be entries of weights.lock; it has no "flx", but flux, flux-tiny, ink',
        ),
        (["../flux"], "match pattern"),
        ("flux", "valid list"),
    ],
)
async def test_a_name_that_is_not_locked_is_refused(names: object, message: str) -> None:
    async with managed(settings=SETTINGS) as api:
        body = {"name": "t", "imageName": IMAGE, "weights": names}
        answer = await api.http.post("/templates", json=body)
        assert (answer.status_code, message in answer.json()["message"]) == (400, True), answer.text
        template = await api.made("/templates", name="t", imageName=IMAGE)
        answer = await api.http.patch(f"/templates/{template['id']}", json={"weights": names})
        assert (answer.status_code, message in answer.json()["message"]) == (400, True), answer.text
        assert template["weights"] == []


async def test_a_control_whose_lock_has_other_contents_makes_a_new_version_of_what_names_them() -> None:
    async with managed(settings=SETTINGS) as api:
        template = await api.made("/templates", name="t", imageName=IMAGE, weights=["ink", "flux"])
        made = await api.made("/endpoints", templateId=template["id"])
        plain = await api.made("/templates", name="plain", imageName=IMAGE)
        other = await api.made("/endpoints", templateId=plain["id"])
        await api.again()
        assert (await api.http.get(f"/endpoints/{made['id']}")).json()["version"] == 1
        new = locked("flux", "cd" * 32)
        api.world.settings = replace(SETTINGS, weights={"flux": new})
        await api.again()
        assert weights_of(api, made) == locked("ink") + new, "an entry that is gone stays as it was"
        assert (await api.http.get(f"/endpoints/{made['id']}")).json()["version"] == 2
        assert (await api.http.get(f"/endpoints/{other['id']}")).json()["version"] == 1


@story
async def test_the_node_that_holds_them_gets_the_worker_and_their_files() -> None:
    facts = {"containers": "docker 28.0.1", "containers_cdi": "yes", HELD: "", ROOM: "9" * 12, MOST: "9" * 12}
    gpu = (Device("GPU-0", "gpu", "NVIDIA H200"),)
    async with managed(endpoint(workers_max=0), settings=SETTINGS) as api, asyncio.TaskGroup() as tasks:
        api.run()
        empty, holding = api.world.agent(node="a"), api.world.agent(node="b")
        await empty.connect(tasks, devices=gpu, facts=facts)
        await holding.connect(tasks, devices=gpu, facts=facts | {HELD: locked("flux")[0].key})
        template = await api.made("/templates", name="t", imageName=IMAGE, weights=["flux"])
        await api.made("/endpoints", templateId=template["id"], workersMin=1, workersMax=1)
        await holding.ready_workers()
        (spec,) = holding.specs.values()
        assert spec.weights == locked("flux")
        for agent in (empty, holding):
            agent.stream.end("the test is over")
