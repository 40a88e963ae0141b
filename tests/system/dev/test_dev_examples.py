"""The example apps of the documentation run as they stand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.dev.dev_server import FUNCTIONS, DevServer, serving
from tests.system.stack import Stack, running

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running(tmp_path_factory.mktemp("platform"), FUNCTIONS) as stack:
        yield stack


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path, platform: Stack) -> Iterator[DevServer]:
    folder = tmp_path / request.param
    shutil.copytree(EXAMPLES / request.param, folder, ignore=shutil.ignore_patterns("__pycache__"))
    with serving(folder, stack=platform) as found:
        yield found


@pytest.mark.parametrize("server", ["queue"], indirect=True)
def test_queue(server: DevServer) -> None:
    text = "all of these words"
    assert server.output("/words/count/runsync", text=text) == {"words": 4, "longest": "these"}
    server.shows("live-count-words 4 words")
    assert server.output("/words/split/runsync", text=text) == text.split()
    server.shows('live-split-words chunk "all"')


@pytest.mark.parametrize("server", ["load_balanced"], indirect=True)
def test_load_balanced(server: DevServer) -> None:
    assert server.http.get("/shop/items/lamp").json() == {"name": "lamp", "count": 0}
    added = server.http.post("/shop/items", json={"name": "lamp", "count": 3})
    assert (added.status_code, added.json()) == (200, {"name": "lamp", "count": 3})


@pytest.mark.parametrize("server", ["mixed"], indirect=True)
@pytest.mark.slow
def test_mixed(server: DevServer) -> None:
    described = server.http.post("/api/features", json={"text": "One two"})
    assert described.json() == {"features": [2.0, 7.0, 1.0]}
    scored = server.output("/model/runsync", text="One two")
    assert scored["device"] in {"cpu", "cuda"}
    assert scored == server.output("/model/runsync", text="One two"), "the model is loaded once"


def test_every_example_is_run() -> None:
    assert {folder.name for folder in EXAMPLES.iterdir()} == {"queue", "load_balanced", "mixed"}
