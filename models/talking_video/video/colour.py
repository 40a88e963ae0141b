"""The colours of a long video, kept close to those of the image.

The last decoded frames of each chunk are encoded again for the next chunk, and colours drift a little each
time. So the mean and deviation of each CIELAB channel of every frame are set to those of the reference image
(as InfiniteTalk's authors do, after Reinhard et al., "Color Transfer between Images", 2001). Conversions:
sRGB (IEC 61966-2-1), CIE 1976 L*a*b*, white D65.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

_TO_XYZ: Final = torch.tensor(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
_WHITE: Final = _TO_XYZ.sum(dim=1)
_EDGE: Final = 6.0 / 29.0
_LEAST: Final = 1e-3
"""A channel with a smaller deviation is not scaled, since it holds nothing but noise."""


@dataclass(frozen=True, slots=True)
class Colours:
    """Mean and deviation of L*, a* and b*, each (3, 1, 1)."""

    mean: torch.Tensor
    deviation: torch.Tensor


def colours_of(frame: torch.Tensor) -> Colours:
    """Returns the colours of a frame (3, H, W) from -1 to 1."""
    lab = to_lab(frame.unsqueeze(0))[0]
    return Colours(lab.mean((-2, -1), keepdim=True), lab.std((-2, -1), keepdim=True))


def matched(frames: torch.Tensor, target: Colours) -> torch.Tensor:
    """Frames (n, 3, H, W) from -1 to 1, each changed to the target's mean and deviation."""
    lab = to_lab(frames)
    mean, deviation = lab.mean((-2, -1), keepdim=True), lab.std((-2, -1), keepdim=True)
    factor = torch.where(deviation > _LEAST, target.deviation / deviation.clamp(min=_LEAST), 1.0)
    return from_lab((lab - mean) * factor + target.mean)


def to_lab(frames: torch.Tensor) -> torch.Tensor:
    """Converts (n, 3, H, W): sRGB from -1 to 1 to L*a*b*."""
    coded = frames.float() / 2 + 0.5
    linear = torch.where(coded > 0.04045, ((coded.clamp(min=0) + 0.055) / 1.055) ** 2.4, coded / 12.92)
    xyz = torch.einsum("ij,njhw->nihw", _TO_XYZ.to(frames.device), linear)
    ratio = xyz / _WHITE.to(frames.device).view(3, 1, 1)
    root = torch.where(ratio > _EDGE**3, ratio.clamp(min=0) ** (1 / 3), ratio / (3 * _EDGE**2) + 4 / 29)
    x, y, z = root.unbind(1)
    return torch.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], dim=1)


def from_lab(lab: torch.Tensor) -> torch.Tensor:
    """Converts (n, 3, H, W): L*a*b* to sRGB from -1 to 1; colours outside sRGB are clipped.

    A negative root of Z becomes zero, and those of X and Y are kept, as in scikit-image, which the authors
    use: otherwise dark saturated yellows, which few screens show, would become redder.
    """
    light, red, blue = lab.unbind(1)
    y = (light + 16) / 116
    root = torch.stack([y + red / 500, y, (y - blue / 200).clamp(min=0)], dim=1)
    ratio = torch.where(root > _EDGE, root**3, 3 * _EDGE**2 * (root - 4 / 29))
    xyz = ratio * _WHITE.to(lab.device).view(3, 1, 1)
    linear = torch.einsum("ij,njhw->nihw", torch.linalg.inv(_TO_XYZ).to(lab.device), xyz)
    coded = torch.where(linear > 0.0031308, 1.055 * linear.clamp(min=0) ** (1 / 2.4) - 0.055, 12.92 * linear)
    return (coded * 2 - 1).clamp(-1.0, 1.0)
