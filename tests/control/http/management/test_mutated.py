"""Bodies that were right once, damaged by the hundred: each gets a documented answer, and nothing breaks."""

from __future__ import annotations

import copy
import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.control.http.calls.document.mutations import NASTY, RAW
from tests.control.http.management.managed import Managed, managed

IMAGE = "ghcr.io/example/worker:1.2"
QUICK = 400
MANY = 5_000


class Damage:
    """Draws requests from the document's own examples. Request `n` of a seed is always the same one."""

    def __init__(self, document: dict[str, Any], ids: dict[str, str]) -> None:
        self._ids = ids
        self.documented: dict[tuple[str, str], set[int]] = {}
        self._examples: list[tuple[str, str, dict[str, Any]]] = []
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                self.documented[method, path] = {int(status) for status in operation["responses"]}
                if "requestBody" in operation:
                    shape = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
                    examples = document["components"]["schemas"][shape.rpartition("/")[2]]["examples"]
                    self._examples += [(method, path, example) for example in examples]

    def draw(self, rng: Random) -> tuple[str, str, str, bytes]:
        """Method, path as it is documented, path, body."""
        method, path, example = rng.choice(self._examples)
        body = copy.deepcopy(example)
        for _ in range(rng.randint(1, 3)):
            _damage(body, rng)
        sent = rng.choice(RAW) if rng.random() < 0.05 else _cut(json.dumps(body).encode(), rng)
        named = path
        for name, known in self._ids.items():
            named = named.replace("{" + name + "}", rng.choice([known, known, "nobody", "-", "%F0%9F%98%80"]))
        return method, path, named, sent


def _damage(body: dict[str, Any], rng: Random) -> None:
    name = rng.choice([*body, rng.choice(["extra", "", "id", "é"])])
    inner = body.get(name)
    if isinstance(inner, dict) and inner and rng.random() < 0.5:
        inner[rng.choice([*inner, "x"])] = copy.deepcopy(rng.choice(NASTY))
    elif isinstance(inner, list) and rng.random() < 0.5:
        inner.append(copy.deepcopy(rng.choice(NASTY)))
    elif name in body and rng.random() < 0.2:
        del body[name]
    else:
        body[name] = copy.deepcopy(rng.choice(NASTY))


def _cut(sent: bytes, rng: Random) -> bytes:
    if rng.random() < 0.9:
        return sent
    at = rng.randrange(len(sent) + 1)
    return sent[:at] + rng.choice([b"", b"\x00", b'"', b"}", b"\xff", b","]) + sent[at + 1 :]


async def ids(api: Managed) -> dict[str, str]:
    template = (await api.made("/templates", name="t", imageName=IMAGE))["id"]
    volume = await api.made("/networkvolumes", name="v", size=1, dataCenterId="EU-RO-1")
    registry = await api.made("/containerregistryauth", name="r", username="u", password="p")
    return {
        "templateId": template,
        "endpointId": (await api.made("/endpoints", templateId=template))["id"],
        "networkVolumeId": volume["id"],
        "containerRegistryAuthId": registry["id"],
        "keyId": (await api.made("/keys", name="k"))["id"],
        "podId": "nobody",
        "nodeId": "nobody",
        "name": "some_secret",
    }


async def examine(requests: int, seed: int) -> None:
    async with managed() as api:
        document = (await api.http.get("/openapi.json")).json()
        damage, rng, statuses = Damage(document, await ids(api)), Random(seed), Counter[int]()
        for _ in range(requests):
            method, documented, path, body = damage.draw(rng)
            headers = {"Content-Type": "application/json"}
            answer = await api.http.request(method, path, content=body, headers=headers)
            statuses[answer.status_code] += 1
            where = f"{method} {path} {body!r}: {answer.status_code} {answer.text}"
            assert answer.status_code in damage.documented[method, documented], where
            assert answer.status_code < 500, where
            if answer.status_code >= 400:
                assert set(answer.json()) == {"error", "message", "status"}, where
        assert statuses[400] > requests / 2
        assert statuses[200], "some damage is none"


async def test_some() -> None:
    await examine(QUICK, seed=1)


@pytest.mark.slow
async def test_many() -> None:
    await examine(MANY, seed=2)
