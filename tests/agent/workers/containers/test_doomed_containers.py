"""What an engine could not remove: nothing gets a GPU that it may have, and nothing else waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stoker.agent.pods.containers import PodContainers
from stoker.agent.pods.interfaces import PodFailed
from stoker.agent.workers.containers import engine as container_engine
from stoker.agent.workers.containers.connect import connect
from stoker.agent.workers.containers.engine import ContainerEngine
from stoker.agent.workers.containers.errors import EngineError
from stoker.agent.workers.containers.images import Images
from stoker.agent.workers.containers.plan import ContainerLimits, ContainerPlan
from stoker.wire.messages import Device, PodSpec
from tests.agent.workers.containers.scripted_engine import ScriptedEngine, scripted

ONE, OTHER = "nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-2"
STUCK = "could not kill: it hangs in the driver"
STAYS = f"an earlier container that may have its GPU stays: {STUCK}"


def plan(*devices: str) -> ContainerPlan:
    return ContainerPlan("sha256:1", {}, {}, ContainerLimits(), devices=devices)


@pytest_asyncio.fixture
async def fake_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedEngine]:
    """Its first container, c1, is on the first GPU and cannot be removed; nobody tries that unasked."""
    monkeypatch.setattr(container_engine, "SWEEP_S", 1000.0)
    with scripted(tmp_path) as engine:
        engine.script["/info"] = lambda call: call.answer({"CDISpecDirs": ["/etc/cdi"]})
        engine.script["DELETE /containers/c1"] = engine.refuse(STUCK)
        yield engine


@pytest_asyncio.fixture
async def engine(fake_engine: ScriptedEngine) -> AsyncIterator[ContainerEngine]:
    made = await asyncio.to_thread(connect, [fake_engine.address])
    assert await made.create(plan(ONE), "first") == "c1"
    with pytest.raises(EngineError, match=STUCK):
        await made.remove("c1")
    yield made
    await made.stop()


async def test_only_what_wants_its_gpu_is_refused(
    engine: ContainerEngine, fake_engine: ScriptedEngine
) -> None:
    for devices in ((ONE,), (OTHER, ONE)):
        with pytest.raises(EngineError) as refused:
            await engine.create(plan(*devices), "second")
        assert str(refused.value) == STAYS
    assert await engine.create(plan(OTHER), "on another") == "c2"
    assert await engine.create(plan(), "on the processor") == "c3"
    fake_engine.script.clear()
    assert await engine.create(plan(ONE), "second") == "c4"


async def test_one_on_the_processor_is_in_nobodys_way(
    engine: ContainerEngine, fake_engine: ScriptedEngine
) -> None:
    fake_engine.script["DELETE"] = fake_engine.refuse(STUCK)
    made = await engine.create(plan(), "on the processor")
    with pytest.raises(EngineError, match=STUCK):
        await engine.remove(made)
    assert await engine.create(plan(OTHER), "on another")


async def test_of_what_an_earlier_agent_left_nobody_knows_its_gpus(fake_engine: ScriptedEngine) -> None:
    fake_engine.containers.add("c1")
    later = await asyncio.to_thread(connect, [fake_engine.address])
    with pytest.raises(EngineError, match=STUCK):
        await later.remove_all("agent-1")
    with pytest.raises(EngineError, match=STAYS):
        await later.create(plan(OTHER), "on any")
    assert await later.create(plan(), "on the processor")
    await later.stop()


async def test_two_that_want_its_gpu_at_once_both_wait_for_its_end(
    engine: ContainerEngine, fake_engine: ScriptedEngine
) -> None:
    """The second came while the first was having it removed, and found nothing in its way."""

    def held(call: Any) -> None:
        fake_engine.released.wait(60)
        call.answer({"message": STUCK}, 500)

    fake_engine.script["DELETE /containers/c1"] = held
    tries = len([one for one in fake_engine.calls if one.startswith("DELETE")])
    first = asyncio.create_task(engine.create(plan(ONE), "first of two"))
    await asyncio.to_thread(fake_engine.until, "DELETE", tries + 1)
    second = asyncio.create_task(engine.create(plan(ONE), "second of two"))
    await asyncio.sleep(0)  # it has begun
    fake_engine.released.set()
    answers = await asyncio.gather(first, second, return_exceptions=True)
    assert [str(one) for one in answers] == [STAYS, STAYS]


async def test_two_that_want_its_gpu_at_once_remove_it_once(
    engine: ContainerEngine, fake_engine: ScriptedEngine
) -> None:
    """An engine refuses a removal while another is under way."""

    def held(call: Any) -> None:
        fake_engine.script["DELETE /containers/c1"] = fake_engine.refuse(
            "removal is already in progress", 409
        )
        fake_engine.released.wait(60)
        call.answer(None, 204)

    fake_engine.script["DELETE /containers/c1"] = held
    tries = len([one for one in fake_engine.calls if one.startswith("DELETE")])
    first = asyncio.create_task(engine.create(plan(ONE), "first of two"))
    await asyncio.to_thread(fake_engine.until, "DELETE", tries + 1)
    second = asyncio.create_task(engine.create(plan(ONE), "second of two"))
    await asyncio.sleep(0)
    fake_engine.released.set()
    assert sorted(await asyncio.gather(first, second)) == ["c2", "c3"]


async def test_no_pod_starts_on_its_gpu(
    engine: ContainerEngine, fake_engine: ScriptedEngine, tmp_path: Path
) -> None:
    devices = tuple(Device(f"GPU-{n}", "gpu", "H100", n) for n in (1, 2))
    pods = PodContainers(engine, Images(engine, tmp_path / "images.json"), "agent-1", devices)
    with pytest.raises(PodFailed, match=STAYS):
        await pods.start(PodSpec("p1", 1, "RUNNING", "an/image", devices=("GPU-1",)))
    assert "POST /containers/stoker-p1/start" not in fake_engine.calls
    await pods.start(PodSpec("p2", 1, "RUNNING", "an/image", devices=("GPU-2",)))
    assert "POST /containers/stoker-p2/start" in fake_engine.calls
