"""The two networks that find a face: MediaPipe's BlazeFace for short range and its face mesh (Apache-2.0).

    detector  (n, 3, 128, 128), -1 to 1 ──> 17 blocks, 8 x 8 in the end ──> 896 boxes and their scores
    mesh      (n, 3, 192, 192), 0 to 1 ──> trunk, 6 x 6 ─┬─> 468 points
                                                         └─> presence

The layers and the weights are Google's as published; `training.landmarks` writes the weights to safetensors.
The output is that of the published files in LiteRT, up to the rounding of float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import torch
from torch.nn import Conv2d, PReLU, ReLU, Sequential
from torch.nn import functional as F

BOX_VALUES, POINTS = 16, 468
AnyNetwork = TypeVar("AnyNetwork", bound=torch.nn.Module)


class Block(torch.nn.Module):
    """A convolution of each channel on its own, then one across channels, added to the input. With a stride
    of 2 the input is halved by the greatest of four; its missing channels are zero."""

    def __init__(self, before: int, after: int, activation: torch.nn.Module, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.more = stride, after - before
        self.depthwise = Conv2d(before, before, 3, stride, padding=1 if stride == 1 else 0, groups=before)
        self.pointwise = Conv2d(before, after, 1)
        self.activation = activation

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        kept, read = image, image
        if self.stride == 2:
            kept, read = F.max_pool2d(image, 2), padded(image, 3)
        if self.more:
            kept = F.pad(kept, (0, 0, 0, 0, 0, self.more))
        found: torch.Tensor = self.activation(kept + self.pointwise(self.depthwise(read)))
        return found


def padded(image: torch.Tensor, kernel: int) -> torch.Tensor:
    """Returns an image of even sides with the zeros that a convolution of stride 2 halves it with: one more
    on the right and below than on the left and above, as TensorFlow pads, but torch does not."""
    before, after = (kernel - 2) // 2, (kernel - 1) // 2
    return F.pad(image, (before, after, before, after))


class Detector(torch.nn.Module):
    """The network that finds faces: for each anchor the values of a box, in pixels, and a logit."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Conv2d(3, 24, 5, stride=2)
        self.fine = Sequential(
            *(_relu(24, 24), _relu(24, 28), _relu(28, 32, 2), _relu(32, 36), _relu(36, 42), _relu(42, 48, 2)),
            *(_relu(48, 56), _relu(56, 64), _relu(64, 72), _relu(72, 80), _relu(80, 88)),
        )
        self.coarse = Sequential(_relu(88, 96, 2), *(_relu(96, 96) for _ in range(4)))
        self.fine_scores, self.coarse_scores = Conv2d(88, 2, 1), Conv2d(96, 6, 1)
        self.fine_boxes, self.coarse_boxes = Conv2d(88, 2 * BOX_VALUES, 1), Conv2d(96, 6 * BOX_VALUES, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns boxes (n, 896, BOX_VALUES) and scores (n, 896)."""
        fine = self.fine(F.relu(self.first(padded(image, 5))))
        coarse = self.coarse(fine)
        scores = _by_anchor(self.fine_scores(fine), 1), _by_anchor(self.coarse_scores(coarse), 1)
        boxes = (
            _by_anchor(self.fine_boxes(fine), BOX_VALUES),
            _by_anchor(self.coarse_boxes(coarse), BOX_VALUES),
        )
        return torch.cat(boxes, 1), torch.cat(scores, 1)[..., 0]


class Mesh(torch.nn.Module):
    """The network that finds the points of a face: in pixels, and a logit for the presence of a face."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.activation = Conv2d(3, 16, 3, stride=2), PReLU(16)
        self.trunk = Sequential(
            *(_prelu(16, 16), _prelu(16, 16)),
            *(_prelu(16, 32, 2), _prelu(32, 32), _prelu(32, 32)),
            *(_prelu(32, 64, 2), _prelu(64, 64), _prelu(64, 64)),
            *(_prelu(64, 128, 2), _prelu(128, 128), _prelu(128, 128)),
            *(_prelu(128, 128, 2), _prelu(128, 128), _prelu(128, 128)),
        )
        self.points = Sequential(_prelu(128, 128, 2), _prelu(128, 128), _prelu(128, 128), *_head(3 * POINTS))
        self.presence = Sequential(_prelu(128, 128, 2), *_head(1))

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns columns, rows and depths (n, POINTS, 3), and presences (n,)."""
        seen = self.trunk(self.activation(self.first(padded(image, 3))))
        return self.points(seen).reshape(-1, POINTS, 3), self.presence(seen).reshape(-1)


def read(network: AnyNetwork, path: Path) -> AnyNetwork:
    """Returns the network with the weights of a safetensors file."""
    from safetensors.torch import load_file

    network.load_state_dict({name: value.float() for name, value in load_file(path).items()})
    return network.eval().requires_grad_(False)


def _relu(before: int, after: int, stride: int = 1) -> Block:
    return Block(before, after, ReLU(), stride)


def _prelu(before: int, after: int, stride: int = 1) -> Block:
    return Block(before, after, PReLU(after), stride)


def _head(values: int) -> tuple[torch.nn.Module, ...]:
    return Conv2d(128, 32, 1), PReLU(32), _prelu(32, 32), Conv2d(32, values, 3)


def _by_anchor(found: torch.Tensor, values: int) -> torch.Tensor:
    """Returns (n, anchors, values): the anchors of a cell follow each other, as do the cells of a row."""
    return found.permute(0, 2, 3, 1).reshape(len(found), -1, values)
