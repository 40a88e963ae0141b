"""A folder of weights, and a hub on loopback that has some."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.agent.weights.fetching import Fetcher
from stoker.agent.weights.sources import Hub
from stoker.agent.weights.store import WeightsStore
from tests.agent.weights_folder import FILES, made_store
from tests.servers.weights_server import WeightsServer, weights_server


@pytest.fixture
def server() -> Iterator[WeightsServer]:
    with weights_server() as running:
        running.hub(FILES)
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "weights"


@pytest.fixture
def store(folder: Path) -> WeightsStore:
    return made_store(folder)


@pytest.fixture
def fetcher(store: WeightsStore, server: WeightsServer) -> Fetcher:
    return Fetcher(store, Hub(server.url))
