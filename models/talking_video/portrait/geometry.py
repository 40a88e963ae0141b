"""The measures of a face that its drawing needs: the lines of lips and lids, and distances. Pure.

A *frame of reference* has its origin in the middle of the mouth or the eye, its first axis along it and its
second down the face; its unit is a pixel. Lines are given as heights over the first axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.landmarks import (
    BROWS,
    CHEEKS,
    CHIN,
    EYES,
    LIP_BOTTOM,
    LIP_TOP,
    LOWER_LIP,
    NOSE_BASE,
    UPPER_LIP,
    Face,
    Points,
)

CLOSED: Final = 0.1
"""Lips that are nearer than this, in widths of the mouth, are closed."""

NEAR: Final = 0.16
"""How far from where the mesh sees it the line of closed lips may be, in widths of the mouth."""

DARKER: Final = 0.85
"""The line of closed lips has at most this part of their brightness."""


@dataclass(frozen=True, slots=True)
class Reference:
    """The frame of reference of a mouth or an eye: `origin` (2,) in the image; `along` and `down` (2,) are
    unit vectors."""

    origin: Points
    along: Points
    down: Points

    def of(self, points: Points) -> Points:
        """Points of the image (..., 2) in this frame."""
        found: Points = (points - self.origin) @ np.stack([self.along, self.down], axis=1)
        return found


@dataclass(frozen=True, slots=True)
class Line:
    """Heights over ascending positions."""

    at: NDArray[np.float32]
    heights: NDArray[np.float32]

    def over(self, positions: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = np.interp(positions, self.at, self.heights).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Slit:
    """A mouth or an eye: the lines of its upper and its lower edge, which meet at `left` and `right`."""

    reference: Reference
    upper: Line
    lower: Line
    left: float
    right: float

    @property
    def width(self) -> float:
        return self.right - self.left


@dataclass(frozen=True, slots=True)
class Measures:
    """Distances in pixels: of the upper lip to the nose, of the lower lip to the chin; the heights of both
    lips; and of each eye to its brow."""

    mouth: Slit
    eyes: tuple[Slit, Slit]
    to_nose: float
    to_chin: float
    lips: tuple[float, float]
    to_brows: tuple[float, float]
    width: float
    middle: Points
    chin: Points


def measured(face: Face, pixels: NDArray[np.uint8]) -> Measures:
    """`pixels` (H, W, 3): the image of the face."""
    points = face.points
    mouth = _closed(_slit(points, UPPER_LIP, LOWER_LIP), pixels)
    eyes = (_slit(points, *EYES[0]), _slit(points, *EYES[1]))
    heights = mouth.reference.of(points[[NOSE_BASE, LIP_TOP, LIP_BOTTOM, CHIN]])[:, 1]
    upper, lower = (
        float(mouth.upper.over(np.zeros(1, np.float32))[0]),
        float(mouth.lower.over(np.zeros(1, np.float32))[0]),
    )
    brows = tuple(
        float(-eye.reference.of(points[[brow]])[0, 1]) for eye, brow in zip(eyes, BROWS, strict=True)
    )
    least = 0.1 * mouth.width
    return Measures(
        mouth,
        eyes,
        to_nose=max(upper - float(heights[0]), 2 * least),
        to_chin=max(float(heights[3]) - lower, 4 * least),
        lips=(max(upper - float(heights[1]), least), max(float(heights[2]) - lower, least)),
        to_brows=(max(brows[0], least), max(brows[1], least)),
        width=float(np.linalg.norm(points[CHEEKS[0]] - points[CHEEKS[1]])),
        middle=points[[*CHEEKS, *BROWS, CHIN, CHIN]].mean(axis=0),
        chin=points[CHIN],
    )


def _closed(mouth: Slit, pixels: NDArray[np.uint8]) -> Slit:
    """Moves the line of closed lips to the darkest line near where the mesh sees it, which it misses in many
    drawings. An open mouth is returned as it is."""
    across = np.linspace(-0.35, 0.35, 15, dtype=np.float32) * mouth.width
    upper, lower = mouth.upper.over(across), mouth.lower.over(across)
    if float((lower - upper).max()) > CLOSED * mouth.width:
        return mouth
    shifts = np.linspace(-NEAR, NEAR, 33, dtype=np.float32) * mouth.width
    heights = (upper + lower) / 2 + shifts[:, None]
    reference = mouth.reference
    at = reference.origin + across[None, :, None] * reference.along + heights[..., None] * reference.down
    columns = np.clip(at[..., 0].round().astype(int), 0, pixels.shape[1] - 1)
    rows = np.clip(at[..., 1].round().astype(int), 0, pixels.shape[0] - 1)
    brightness = pixels[rows, columns].mean(axis=(1, 2))
    darkest = int(brightness.argmin())
    shift = float(shifts[darkest]) if brightness[darkest] < DARKER * np.median(brightness) else 0.0
    whole = mouth.upper.at
    line = Line(whole, ((mouth.upper.heights + mouth.lower.over(whole)) / 2 + shift).astype(np.float32))
    return Slit(reference, line, line, mouth.left, mouth.right)


def _slit(points: Points, upper: tuple[int, ...], lower: tuple[int, ...]) -> Slit:
    left, right = points[upper[0]], points[upper[-1]]
    along = (right - left) / max(float(np.linalg.norm(right - left)), 1e-3)
    reference = Reference((left + right) / 2, along, np.array([-along[1], along[0]], np.float32))
    lines = [_line(reference.of(points[list(edge)])) for edge in (upper, lower)]
    half = float(np.linalg.norm(right - left)) / 2
    return Slit(reference, lines[0], lines[1], -half, half)


def _line(points: Points) -> Line:
    order = np.argsort(points[:, 0])
    return Line(points[order, 0], points[order, 1])
