"""An engine that goes and comes back while workers run: their ends are seen, others run when it is back."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import APIError

from stoker.agent.workers.containers.plan import ContainerLimits
from tests.agent.workers.containers.container_host import Host, containers_left
from tests.container_engine_here import PATIENCE_S, Dockerd, EngineHere, Podman, make_image, patient

pytestmark = pytest.mark.slow

SLEEPS = {
    "kind": "protocol",
    "command": ("python", "-c", "import time; print('runs', flush=True); time.sleep(600)"),
}


@pytest.fixture
def collected() -> Iterator[None]:
    """The package leaves its sockets to the collector when nobody listens: they go when nothing of the test
    holds them any more, nor a call that nobody waits for."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(("call to the container engine", "container ")):
            thread.join(PATIENCE_S)
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", [Dockerd, Podman])
async def test_an_engine_that_stops_and_starts(
    kind: type[EngineHere], tmp_path: Path, collected: None
) -> None:
    try:
        engine = kind()
    except RuntimeError as why:
        pytest.skip(str(why))
    with engine:
        try:
            engine.start()
        except RuntimeError as why:
            pytest.skip(str(why))
        make_image(engine.address)
        found = await asyncio.to_thread(patient, engine.address)
        host = Host(found, tmp_path / "data", limits=ContainerLimits(nproc=4096))
        await survives(host, engine)
        assert await asyncio.to_thread(containers_left, engine.address) == []


def _are_more_than_one(address: str) -> bool:
    """Podman lists nothing while a container is there whose network namespace ended with the engine."""
    try:
        return len(containers_left(address)) > 1
    except APIError as error:
        if "network namespace" not in str(error):
            raise
        return True


async def survives(host: Any, engine: EngineHere) -> None:
    first = host.start(**SLEEPS)
    await first.until(lambda: host.lines == ["runs"])
    await asyncio.to_thread(engine.stop)
    ended = await first.exited()
    assert ended.status != 0, ended

    meanwhile = await host.start(**SLEEPS).exited()
    assert "the container engine cannot be reached" in meanwhile.reason, (
        "a start that fails, not one that hangs"
    )

    await asyncio.to_thread(engine.start)
    again = host.start(**SLEEPS)
    await again.until(lambda: host.lines == ["runs", "runs"] or again.exit)
    assert again.exit is None
    async with asyncio.timeout(60):  # the one before it goes soon, however its engine left it
        while await asyncio.to_thread(_are_more_than_one, engine.address):
            pass
    await host.spawner.close()
