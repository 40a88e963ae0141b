"""The pipeline with its own weights, a drawing and a photo."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from stoker.models.talking_video.portrait import weights
from stoker.models.talking_video.portrait.engine import TalkMini

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk-mini")
    weights.build(folder)
    return folder


@pytest.fixture(scope="session")
def talk_mini(folder: Path) -> TalkMini:
    torch.set_num_threads(1)
    return TalkMini(folder, "cpu")


@pytest.fixture(scope="session")
def drawing(tmp_path_factory: pytest.TempPathFactory) -> NDArray[np.uint8]:
    """The face of the demo: (640, 640, 3). Its mouth is at column 320, row 414."""
    sys.path.insert(0, str(ROOT / "deploy"))
    try:
        import talking_picture
    finally:
        sys.path.remove(str(ROOT / "deploy"))
    path = tmp_path_factory.mktemp("drawing") / "face.png"
    talking_picture.draw_face(path)
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.fixture(scope="session")
def photo() -> NDArray[np.uint8]:
    """Eileen Collins, photographed by NASA (public domain): (640, 640, 3). She smiles and shows her teeth."""
    return np.asarray(Image.open(HERE / "astronaut.jpg").resize((640, 640), Image.Resampling.LANCZOS))
