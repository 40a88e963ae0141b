"""The networks that find a face give what LiteRT gives for the published files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stoker.models.talking_video.portrait.face_networks import Block, Detector, Mesh, padded, read
from stoker.models.talking_video.portrait.landmarks import DETECTOR, MESH


@pytest.fixture(scope="module")
def recorded() -> dict[str, torch.Tensor]:
    """A photo for both networks and the output of LiteRT, recorded by `training.landmarks`."""
    return load_file(Path(__file__).with_name("face_networks.safetensors"))


def test_the_detector_gives_what_litert_gives(folder: Path, recorded: dict[str, torch.Tensor]) -> None:
    with torch.inference_mode():
        boxes, scores = read(Detector(), folder / DETECTOR)(recorded["whole"][None] / 127.5 - 1)
    assert recorded["scores"].max() > 2  # there is a face
    torch.testing.assert_close(boxes[0], recorded["boxes"], atol=2e-3, rtol=0)
    torch.testing.assert_close(scores[0], recorded["scores"], atol=2e-3, rtol=0)


def test_the_mesh_gives_what_litert_gives(folder: Path, recorded: dict[str, torch.Tensor]) -> None:
    with torch.inference_mode():
        points, presence = read(Mesh(), folder / MESH)(recorded["face"][None] / 255)
    assert recorded["presence"] > 2
    torch.testing.assert_close(points[0], recorded["points"], atol=2e-3, rtol=0)
    torch.testing.assert_close(presence, recorded["presence"], atol=2e-3, rtol=0)


def test_half_the_padding_is_where_tensorflow_has_it() -> None:
    image = torch.ones(1, 1, 2, 2)
    assert padded(image, 3)[0, 0].tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]
    assert padded(image, 5)[0, 0, 1].tolist() == [0, 1, 1, 0, 0]


def test_a_block_that_halves_keeps_the_greatest_of_four() -> None:
    block = Block(1, 2, torch.nn.Identity(), stride=2).requires_grad_(False)
    for weight in block.parameters():
        weight.zero_()
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    assert block(image).tolist() == [[[[5, 7], [13, 15]], [[0, 0], [0, 0]]]]
