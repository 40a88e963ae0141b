"""The face in an image: where its mouth, eyes and chin are.

    image ──> detector (whole, then parts of it) ──> box, eyes ──> turned square ──> mesh of 468 points
          └─> no box: upright squares of the image ────────────────────────────────────┘

Both networks are MediaPipe's (`face_networks`). The mesh knows many drawings that the detector does not.
Where neither finds a face, `assumed_face` has the points of one, for callers who ask for that. The indices of
points are those of MediaPipe's face mesh.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from stoker.models.talking_video.portrait import face_networks
from stoker.models.talking_video.portrait.drawn_mouth import drawn_mouth

Points: TypeAlias = NDArray[np.float32]

DETECTOR, MESH = "face_detector.safetensors", "face_mesh.safetensors"
DETECTOR_SIDE: Final = 128
MESH_SIDE: Final = 192
FOUND: Final = 0.5
"""The least probability of the detector and of the mesh."""

SQUARE: Final = 1.5
"""The side of the square that the mesh reads, in the box's longer side."""

CHEEKS: Final = (234, 454)
NOSE_TIP: Final = 1


UPPER_LIP: Final = (78, 191, 80, 81, 82, 13, 312, 311, 310, 415, 308)
LOWER_LIP: Final = (78, 95, 88, 178, 87, 14, 317, 402, 318, 324, 308)
"""The inner edges of the lips, from left to right."""

LIP_TOP, LIP_BOTTOM = 0, 17
NOSE_BASE, CHIN = 2, 152
EYES: Final = (
    ((33, 246, 161, 160, 159, 158, 157, 173, 133), (33, 7, 163, 144, 145, 153, 154, 155, 133)),
    ((362, 398, 384, 385, 386, 387, 388, 466, 263), (362, 382, 381, 380, 374, 373, 390, 249, 263)),
)
"""The edges of the upper and the lower lid of both eyes, from left to right."""

BROWS: Final = (105, 334)


AVERAGE_MOUTH, AVERAGE_LINE = 0.38, 0.35
"""The width of an average mouth, and how far its line is below the middle, in widths of the face."""


def _average() -> dict[int, tuple[float, float]]:
    """Returns the points that are used, in widths of a face from its middle."""
    found: dict[int, tuple[float, float]] = {}
    found |= {NOSE_TIP: (0.0, 0.12), NOSE_BASE: (0.0, 0.2), CHIN: (0.0, 0.66)}
    found |= {LIP_TOP: (0.0, 0.29), LIP_BOTTOM: (0.0, 0.42), CHEEKS[0]: (-0.5, 0.0), CHEEKS[1]: (0.5, 0.0)}
    found |= {BROWS[0]: (-0.22, -0.26), BROWS[1]: (0.22, -0.26)}
    for lip in (UPPER_LIP, LOWER_LIP):
        half = AVERAGE_MOUTH / 2
        found |= {n: (half * (2 * k / (len(lip) - 1) - 1), AVERAGE_LINE) for k, n in enumerate(lip)}
    for side, edges in zip((-0.22, 0.22), EYES, strict=True):
        for sign, edge in zip((-1, 1), edges, strict=True):
            for k, n in enumerate(edge):
                at = 2 * k / (len(edge) - 1) - 1
                found[n] = (side + 0.1 * at, -0.1 + sign * 0.035 * (1 - at * at))
    return found


AVERAGE: Final = _average()


@dataclass(frozen=True, slots=True)
class Face:
    """A face in an image. `points` (468, 2): columns and rows of the mesh in pixels. `assumed`: no face was
    found, and these are the points of an average face."""

    points: Points
    assumed: bool = False

    @property
    def side(self) -> float:
        """Returns how far the face is turned: 0 from the front, 1 in profile."""
        left, right = (abs(float(self.points[NOSE_TIP, 0] - self.points[n, 0])) for n in CHEEKS)
        return abs(left - right) / max(left + right, 1e-6)


@dataclass(frozen=True, slots=True)
class _Box:
    """A box in pixels: the middle, the sides, and how far the eyes are turned, in radians."""

    column: float
    row: float
    side: float
    angle: float
    score: float


class FaceFinder:
    """The two networks that find a face, read from the folder of the weights."""

    def __init__(self, folder: Path) -> None:
        self._detector = face_networks.read(face_networks.Detector(), folder / DETECTOR)
        self._mesh = face_networks.read(face_networks.Mesh(), folder / MESH)

    def find(self, pixels: NDArray[np.uint8]) -> Face | None:
        """Returns the face of an image (H, W, 3) that is the surest; None if there is none."""
        parts = list(_parts(*pixels.shape[:2]))
        boxes = self._boxes(pixels, parts)
        squares = [_Box(left + side / 2, top + side / 2, side, 0.0, 0.0) for left, top, side in parts]
        for box in (*sorted(boxes, key=lambda box: -box.score), *squares):
            if (points := self._points(pixels, box)) is not None:
                return Face(points)
        return None

    def _boxes(self, pixels: NDArray[np.uint8], parts: list[tuple[int, int, int]]) -> list[_Box]:
        crops = [
            _turned(pixels, left + side / 2, top + side / 2, side, 0.0, DETECTOR_SIDE)
            for left, top, side in parts
        ]
        with torch.inference_mode():
            boxes, logits = self._detector(_batch(crops) / 127.5 - 1)
            surest, best = logits.double().max(1)
        found = zip(parts, boxes.numpy(), surest.sigmoid().tolist(), best.tolist(), strict=True)
        return [
            _box(part, values[n], _anchors()[n], score) for part, values, score, n in found if score >= FOUND
        ]

    def _points(self, pixels: NDArray[np.uint8], box: _Box) -> Points | None:
        crop = _turned(pixels, box.column, box.row, box.side, box.angle, MESH_SIDE)
        with torch.inference_mode():
            points, presence = self._mesh(_batch([crop]) / 255)
        if float(presence.sigmoid()) < FOUND:
            return None
        at = points[0, :, :2].numpy() / MESH_SIDE - 0.5
        cos, sin = np.cos(box.angle), np.sin(box.angle)
        turned = at @ np.array([[cos, sin], [-sin, cos]], np.float32)
        found: Points = (turned * box.side + (box.column, box.row)).astype(np.float32)
        return found


def _box(part: tuple[int, int, int], values: Points, anchor: Points, score: float) -> _Box:
    """Returns the box that the detector found in a part of the image, turned like the eyes."""
    column, row, side = part
    scaled = values / DETECTOR_SIDE
    (x, y), (width, height) = scaled[:2] + anchor, scaled[2:4]
    (left_x, left_y), (right_x, right_y) = scaled[4:6] + anchor, scaled[6:8] + anchor
    angle = float(np.arctan2(right_y - left_y, right_x - left_x))
    return _Box(column + x * side, row + y * side, SQUARE * max(width, height) * side, angle, score)


def assumed_face(pixels: NDArray[np.uint8]) -> Face:
    """Returns the face of an image (H, W, 3) in which no face was found: an upright face around the line that
    the drawing has for a mouth; without such a line, a little above the middle."""
    height, width = pixels.shape[:2]
    size, middle = 0.42 * min(height, width), np.array([width / 2, 0.42 * height], np.float32)
    if (mouth := drawn_mouth(pixels)) is not None:
        size = min(mouth.width / AVERAGE_MOUTH, 0.9 * min(height, width))
        middle = np.array([mouth.column, mouth.row - AVERAGE_LINE * size], np.float32)
    points = np.zeros((468, 2), np.float32)
    for n, (right, down) in AVERAGE.items():
        points[n] = middle + size * np.array([right, down], np.float32)
    if mouth is not None:
        lips = [*UPPER_LIP, *LOWER_LIP]
        points[lips, 1] = mouth.rows(points[lips, 0])
    return Face(points, assumed=True)


def _parts(height: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Returns squares of the image, (left, top, side): first the whole image, then smaller squares, for small
    faces."""
    side = max(height, width)
    yield (width - side) // 2, (height - side) // 2, side
    for part in (0.6, 0.36):
        small = int(side * part)
        for row in np.linspace(0, max(height - small, 0), 3 if height > small else 1):
            for column in np.linspace(0, max(width - small, 0), 3 if width > small else 1):
                yield int(column), int(row), small


def _turned(
    pixels: NDArray[np.uint8], column: float, row: float, side: float, angle: float, size: int
) -> NDArray[np.float32]:
    """Returns a square of the image, scaled to `size`; outside the image it is black."""
    scale = side / size
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    half = size / 2
    affine: tuple[float, ...] = (
        cos,
        -sin,
        column - cos * half + sin * half,
        sin,
        cos,
        row - sin * half - cos * half,
    )
    image = Image.fromarray(pixels)
    if scale > 2:  # bilinear sampling alone would skip pixels
        factor = int(scale)
        image = image.reduce(factor)
        affine = tuple(value / factor for value in affine)
    turned = image.transform((size, size), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR)
    return np.asarray(turned, np.float32)


@functools.cache
def _anchors() -> Points:
    """Returns the middles of the detector's 896 anchors: two in each cell of 8 pixels, six in each of 16."""
    found = []
    for cell, each in ((8, 2), (16, 6)):
        at = (np.arange(DETECTOR_SIDE // cell) + 0.5) * cell / DETECTOR_SIDE
        rows, columns = np.meshgrid(at, at, indexing="ij")
        found.append(np.repeat(np.stack([columns, rows], -1).reshape(-1, 2), each, axis=0))
    return np.concatenate(found).astype(np.float32)


def _batch(crops: list[NDArray[np.float32]]) -> torch.Tensor:
    return torch.from_numpy(np.stack(crops).transpose(0, 3, 1, 2))
