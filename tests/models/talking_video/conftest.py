"""talk-tiny, made and loaded once for all tests of the video model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.models.talking_video import tiny


@pytest.fixture(scope="session")
def talk_tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder; not to be written to."""
    folder = tmp_path_factory.mktemp("talk") / "talk-tiny"
    tiny.build(folder)
    return folder


@pytest.fixture(scope="session")
def talker(talk_tiny: Path) -> Any:
    """Its parts on the CPU, torch on one thread: sums in one order give the same bytes."""
    import torch

    from stoker.models.talking_video import loading

    torch.set_num_threads(1)
    return loading.load(talk_tiny, "cpu")
