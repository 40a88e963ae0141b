"""Where podman finds an init: tried once for all, also by containers that are made at the same moment."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from stoker.agent.workers.containers.engine import INITS, ContainerEngine
from stoker.agent.workers.containers.errors import EngineError
from stoker.agent.workers.containers.plan import ContainerLimits, ContainerPlan, EngineFacts

PLAN = ContainerPlan("sha256:1", {}, {}, ContainerLimits())
TOGETHER = 3
NO_INIT = (
    "container-init binary not found on the host: stat: no such file or directory",
    'lookup init binary: could not find "catatonit" in one of [/usr/libexec/podman]',
)
"""What podman 5 says: of a path that it was given, and where it looks itself."""


class Answer:
    def __init__(self, text: str) -> None:
        self.text = text

    def json(self) -> dict[str, str]:
        return {"Id": "c1"}


class Podman:
    """Has an init at `there` alone. The first `TOGETHER` requests are all refused before one is answered."""

    base_url = "http://podman"

    def __init__(self, there: str | None) -> None:
        self.there = there
        self.inits: list[str | None] = []
        self._first = threading.Barrier(TOGETHER)

    def post(self, _: str, json: dict[str, Any], timeout: float) -> Answer:
        assert timeout > 0
        init = json.get("init_path")
        self.inits.append(init)
        if len(self.inits) <= TOGETHER:
            self._first.wait(60.0)
        return Answer("" if init == self.there else NO_INIT[init is None])

    def _raise_for_status(self, answer: Answer) -> None:
        if answer.text:
            raise OSError(answer.text)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("there", INITS[1:])
async def test_containers_made_at_the_same_moment_skip_no_init(there: str) -> None:
    podman: Any = Podman(there)
    engine = ContainerEngine(podman, EngineFacts("podman", "4.3.1"))
    made = await asyncio.gather(*(engine.create(PLAN, f"c{n}") for n in range(TOGETHER)))
    assert made == ["c1"] * TOGETHER
    before = len(podman.inits)
    await engine.create(PLAN, "later")
    assert podman.inits[before:] == [there], "it is known by now"
    engine.close()


async def test_no_init_anywhere_is_reported_and_looked_for_again() -> None:
    podman: Any = Podman("/usr/bin/installed-later")
    engine = ContainerEngine(podman, EngineFacts("podman", "4.3.1"))
    reported = await asyncio.gather(
        *(engine.create(PLAN, f"c{n}") for n in range(TOGETHER)), return_exceptions=True
    )
    assert all(isinstance(one, EngineError) and NO_INIT[False] in str(one) for one in reported), reported
    podman.there = INITS[1]
    assert await engine.create(PLAN, "later") == "c1"
    engine.close()
