"""Clients with static types read every answer: counts are integers in JSON, and prices are numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stoker.control.rules.pods import Pod
from stoker.wire.messages import DeviceSample
from tests.control.http.management.pods.pod_world import CPU, FACTS, GPUS, IMAGE, joined, once, sent_spec

PRICES = {
    "adjustedCostPerHr",
    "amount",
    "costPerHr",
    "currentPricePerGpu",
    "highPerformanceStorageAmount",
    "securePrice",
}
PARTS = {"gpuMemoryShare", "power", "share"}
"""Measured, or a part of a whole."""
VCPUS = [("8", 8), ("1.5", 1), ("0.5", 1)]
INCLUDED = {
    "includeMachine": True,
    "includeTemplate": True,
    "includeWorkers": True,
    "includeNetworkVolume": True,
}


class Fraction(float):
    """A number that was written with a point or an exponent."""


def numbers(text: str) -> Iterator[tuple[str, object]]:
    """Every value, by the name of its field."""
    return _within("", json.loads(text, parse_float=Fraction))


def _within(name: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _within(key, one)
    elif isinstance(value, list):
        for one in value:
            yield from _within(name, one)
    else:
        yield name, value


def check(text: str) -> set[str]:
    """The names of prices that are told."""
    for name, value in numbers(text):
        if name in PRICES:
            assert isinstance(value, int | float), (name, value)
        elif name not in PARTS:
            assert not isinstance(value, Fraction), (name, value)
    return {name for name, _ in numbers(text)} & PRICES


def an_hour(pod: Pod) -> int | None:
    return 180_000_000


@pytest.mark.parametrize(("vcpus", "whole"), VCPUS)
def test_every_answer_of_a_pod(vcpus: str, whole: int) -> None:
    @once
    async def story() -> None:
        facts = FACTS | {"vcpus": vcpus, "memory_bytes": "25200000000"}
        async with joined("node-1", facts=facts) as (api, (agent,), _):
            api.management.billing.pod_hour = an_hour
            answers = [await api.http.post("/pods", json={"imageName": IMAGE, "name": "a pod"})]
            path = f"/pods/{answers[0].json()['id']}"
            await agent.report_pod(await sent_spec(agent, path.rpartition("/")[2]), "running")
            await agent.listen(0.1)
            acts = ("restart", "reset", "stop", "start")
            answers += [await api.http.post(f"{path}/{action}") for action in acts]
            answers.append(await api.http.patch(path, json={"name": "x"}))
            answers.append(await api.http.post(f"{path}/update", json={"volumeInGb": 30}))
            answers.append(await api.http.get(path))
            answers.append(await api.http.get(path, params=INCLUDED))
            answers.append(await api.http.get("/pods", params=INCLUDED))
            for answer in answers:
                assert answer.status_code in (200, 201), answer.text
                assert check(answer.text) >= {"costPerHr", "adjustedCostPerHr"}
                body = answer.json()[0] if isinstance(answer.json(), list) else answer.json()
                assert (body["vcpuCount"], body["memoryInGb"], body["costPerHr"]) == (whole, 25, 0.18)
            assert answers[-1].json()[0]["machine"]["cpuCount"] == whole

    story()


@once
async def test_every_other_answer() -> None:
    devices = (*GPUS, CPU)
    async with joined("node-1", devices=devices, facts=FACTS | {"volumes": "yes"}) as (api, (agent,), _):
        sample = DeviceSample("GPU-0", memory_used=1 << 30, utilisation=50, temperature=60, power=211.5)
        api.plane.cluster.nodes["node-1"].note([sample])
        template = (await api.made("/templates", name="t", imageName=IMAGE))["id"]
        volume = await api.made("/networkvolumes", name="v", size=50, dataCenterId="EU-RO-1")
        fields = {"templateId": template, "networkVolumeId": volume["id"], "workersMin": 1}
        await api.made("/endpoints", **fields, gpuMemoryMb=1024)
        await api.made("/keys", name="k", kind="join", maxUses=3)
        await agent.ready_workers()
        seen = set()
        for path in (
            "/endpoints?includeWorkers=true&includeTemplate=true",
            "/templates?includeEndpointBoundTemplates=true",
            "/networkvolumes",
            "/pods?includeWorkers=true",
            "/nodes",
            "/keys",
            "/keys?kind=join",
            "/audit",
        ):
            answer = await api.http.get(path)
            assert answer.status_code == 200, answer.text
            check(answer.text)
            seen |= {name for name, value in numbers(answer.text) if isinstance(value, int)}
        assert {"size", "usesLeft", "memoryInBytes", "gpuMemoryMb", "containerDiskInGb", "count"} <= seen
