"""Workers in real containers, and proof that none is left."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from docker import APIClient

from stoker.agent.workers.containers import spawner
from stoker.agent.workers.containers.engine import CALL_S, ContainerEngine
from stoker.agent.workers.containers.plan import ContainerLimits
from stoker.agent.workers.containers.spawner import HostFolder
from tests.agent.workers.containers.container_host import Host
from tests.container_engine_here import PATIENCE_S, STOCK, dockerd, make_image, patient, podman

BY_ENVIRONMENT = {"docker": "STOKER_TEST_DOCKER", "podman": "STOKER_TEST_PODMAN"}
"""Each may name an engine that has the image already: for whoever works on these tests."""


@pytest.fixture(scope="session", params=["docker", "podman"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    if value := os.environ.get(BY_ENVIRONMENT[request.param]):
        yield value
        return
    try:
        with {"docker": dockerd, "podman": podman}[request.param]() as where:
            make_image(where)
            yield where
    except RuntimeError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def shared_engine(address: str) -> Iterator[ContainerEngine]:
    engine = patient(address)
    yield engine
    engine.close()


@pytest.fixture
def engine(address: str, shared_engine: ContainerEngine) -> ContainerEngine:
    client = APIClient(address, version=shared_engine.client.api_version, timeout=CALL_S)
    return ContainerEngine(client, shared_engine.facts)


@pytest_asyncio.fixture
async def host(
    shared_engine: ContainerEngine, engine: ContainerEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Host]:
    """It waits for its engine at its end: what that takes is no test's affair."""
    monkeypatch.setattr(spawner, "CLOSE_S", PATIENCE_S)
    volumes = tmp_path / "volumes"
    volumes.mkdir()
    limits = ContainerLimits(memory_bytes=256 << 20, pids=64, nproc=4096)
    made = Host(engine, tmp_path / "data", limits=limits, volumes=HostFolder(volumes, volumes))
    yield made
    await made.spawner.close()
    assert await asyncio.to_thread(shared_engine.client.containers, all=True) == []


@pytest.fixture
def stock() -> None:
    if not STOCK.is_dir():
        pytest.skip(f"there is no {STOCK}; .ci/peers makes it")
