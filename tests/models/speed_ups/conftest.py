"""The files of flux-tiny, once for all tests of speed-ups, and what it draws with the plain pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.models.text_to_image import tiny
from tests.models.speed_ups import pictures


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("speed-ups") / "flux-tiny"
    tiny.build(folder)
    return folder


@pytest.fixture
def flux(tiny_folder: Path) -> Any:
    """A pipeline of this test's own, unchanged."""
    return pictures.flux(tiny_folder)


@pytest.fixture(scope="session")
def plain(tiny_folder: Path) -> Any:
    """What the unchanged pipeline draws."""
    return pictures.picture(pictures.flux(tiny_folder))


@pytest.fixture
def dynamo() -> Iterator[Any]:
    """torch's compiler, as it is before anything was compiled."""
    import torch

    torch._dynamo.reset()
    yield torch._dynamo
    torch._dynamo.reset()
