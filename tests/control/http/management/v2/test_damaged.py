"""Bodies of management v2 that were right once, damaged: each has a documented answer, and nothing breaks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.control.http.management.managed import V2, managed
from tests.control.http.management.test_mutated import MANY, QUICK, Damage
from tests.control.http.management.v2.second_shape import make

IMAGE = "ghcr.io/example/worker:1.2"


async def examine(requests: int, seed: int) -> None:
    async with managed() as api:
        document = (await api.http.get(V2 + "/openapi.json")).json()
        template = await make(api, "/templates", name="t", image=IMAGE, serverless=True)
        scaling = {"type": "QUEUE_DELAY", "queueDelay": 4}
        body = {
            "name": "e",
            "type": "QUEUE",
            "image": IMAGE,
            "gpu": {"pools": ["ADA_24"]},
            "scaling": scaling,
        }
        ids = {
            "templateId": template["id"],
            "endpointId": (await make(api, "/serverless", **body))["id"],
            "volumeId": (await make(api, "/network-volumes", name="v", size=10, dataCenter="EU-RO-1"))["id"],
            "registryId": (await make(api, "/registries", name="r", username="u", password="p"))["id"],
            "podId": (await api.made("/pods", imageName=IMAGE, desiredStatus="EXITED"))["id"],
        }
        damage, rng, statuses = Damage(document, ids), Random(seed), Counter[int]()
        for _ in range(requests):
            method, documented, path, sent = damage.draw(rng)
            headers = {"Content-Type": "application/json"}
            answer = await api.http.request(method, V2 + path, content=sent, headers=headers)
            statuses[answer.status_code] += 1
            where = f"{method} {path} {sent!r}: {answer.status_code} {answer.text}"
            assert answer.status_code in damage.documented[method, documented], where
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json", where
                assert answer.json()["detail"], where
        assert statuses[422] > requests / 2
        assert statuses[200], "some damage is none"


async def test_some() -> None:
    await examine(QUICK, seed=1)


@pytest.mark.slow
async def test_many() -> None:
    await examine(MANY, seed=2)
