"""One loaded flux-tiny for all tests of the image model; torch on one thread, and no network. And the GPU,
where there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stoker.models.text_to_image import tiny
from stoker.models.weights import Entry, lock_from_folder
from stoker.worker import Device
from stoker.worker.testing import LocalJob

os.environ["HF_HUB_OFFLINE"] = "1"

SMALL = {"width": 256, "height": 256, "num_inference_steps": 2, "seed": 1}


@pytest.fixture(autouse=True)
def _the_same_draws() -> None:
    """What a test draws without a seed does not depend on which tests ran before it in this process."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture
def gpu() -> Device:
    import torch

    if not torch.cuda.is_available():
        pytest.skip(f"there is no NVIDIA GPU that torch {torch.__version__} can use")
    found = torch.cuda.get_device_properties(0)
    return Device(uuid=f"GPU-{found.uuid}", kind="gpu", name=found.name)


@pytest.fixture(scope="session")
def weights_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def model(weights_dir: Path) -> Any:
    """The image model's handler, set up on the CPU as a worker does it."""
    import torch

    from stoker.models.text_to_image.handler import TextToImage

    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_WEIGHTS_DIR", str(weights_dir))
        patch.setenv("STOKER_PIPELINE", "flux-tiny")
        handler = TextToImage()
        handler.setup(Device())
    return handler


@pytest.fixture
def paint(model: Any, tmp_path: Path) -> Callable[..., LocalJob]:
    """Run one job: a small image, unless the input says otherwise."""

    def run(**overrides: Any) -> LocalJob:
        return LocalJob(model.run, {"prompt": "a lighthouse", **SMALL, **overrides}).run()

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of flux-tiny in a folder of this test's own."""
    weights_folder = tmp_path / "models" / "flux-tiny"
    tiny.build(weights_folder)
    return weights_folder


@pytest.fixture
def entry(folder: Path) -> Entry:
    """What locks them; as if they came from a hub, so that they are never made anew."""
    blank = Entry("flux-tiny", "huggingface:somebody/flux-tiny", "Apache-2.0", (), "0" * 40)
    return lock_from_folder(blank, folder)
