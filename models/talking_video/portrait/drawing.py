"""The drawing of a frame: the image, with its mouth, its eyes and its head as they are requested.

    pixel of the frame ──head──> pixel of the still face ──lids, lips, jaw──> pixel of the image
                                        └─ between the lips: the inside of the mouth, drawn

Each pixel near the face looks up where in the image it comes from, so nothing is pasted and no edge shows.
The lower lip takes the jaw with it; the upper lid stretches the skin above it. What an open mouth of the
image shows is replaced by the drawn inside, so that it can close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.geometry import Measures, Slit

Numbers: TypeAlias = NDArray[np.floating[Any]]

GAP: Final = 0.44
"""How far the lips are apart at most, in widths of the mouth, and which part of it is the lower lip's way."""
LOWER_PART: Final = 0.78

SPREAD, ROUND = 0.12, 0.3
"""How much wider a spread mouth is, and how much narrower a round one."""

CHIN_PART: Final = 0.6
"""The chin's way, in that of the lower lip."""

HEAD_STILL, HEAD_MOVES = 1.55, 0.85
"""From the middle of the face, in widths of it: where nothing moves, and up to where all of it does."""

DARK, TONGUE, TEETH = (46.0, 14.0, 18.0), (158.0, 72.0, 76.0), (236.0, 230.0, 218.0)


@dataclass(frozen=True, slots=True)
class Pose:
    """The pose of a frame: `opening` of the mouth from 0 to 1, `width` from -1 (round) to 1 (spread); how far
    the eyes are `closed`; the `turn` of the head in radians, its shift in widths of the face."""

    opening: float = 0.0
    width: float = 0.0
    closed: float = 0.0
    turn: float = 0.0
    right: float = 0.0
    down: float = 0.0


class Portrait:
    """A portrait to draw: `pixels` (H, W, 3) and the measures of the face in it."""

    def __init__(self, pixels: NDArray[np.uint8], measures: Measures) -> None:
        self._measures = measures
        self._image = torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 127.5 - 1
        height, width = pixels.shape[:2]
        reach = HEAD_STILL * measures.width
        low, high = measures.middle - reach, measures.middle + reach
        self._left, self._top = (int(np.clip(value, 0, None)) for value in low)
        right, bottom = int(min(high[0] + 1, width)), int(min(high[1] + 1, height))
        self._columns, self._rows = np.meshgrid(
            np.arange(self._left, right, dtype=np.float32), np.arange(self._top, bottom, dtype=np.float32)
        )
        far = np.hypot(self._columns - measures.middle[0], self._rows - measures.middle[1]) / measures.width
        self._moves = _smooth((HEAD_STILL - far) / (HEAD_STILL - HEAD_MOVES))
        self._light = self._brightness(pixels)

    def _brightness(self, pixels: NDArray[np.uint8]) -> float:
        """Returns the brightness of the face, by which the inside of the mouth is lit: 1 for a bright
        face."""
        near = np.hypot(self._columns - self._measures.middle[0], self._rows - self._measures.middle[1])
        height, width = near.shape
        part = pixels[self._top : self._top + height, self._left : self._left + width]
        return float(np.clip(part[near < 0.4 * self._measures.width].mean() / 170, 0.3, 1.1))

    def draw(self, pose: Pose) -> torch.Tensor:
        """Returns the frame (3, H, W), from -1 to 1. May be called by several threads at once."""
        columns, rows = self._head(pose)
        for eye, to_brow in zip(self._measures.eyes, self._measures.to_brows, strict=True):
            _lid(eye, to_brow, pose.closed, columns, rows)
        window = self._mouth_window()
        inside, colours = self._mouth(pose, columns[window], rows[window])
        found = self._sampled(columns, rows)
        mouth = found[:, window[0], window[1]]
        mouth += torch.from_numpy(inside) * (torch.from_numpy(colours) - mouth)
        frame = self._image.clone()
        height, width = columns.shape
        frame[:, self._top : self._top + height, self._left : self._left + width] = found
        return frame

    def _head(self, pose: Pose) -> tuple[Numbers, Numbers]:
        """Returns where the pixels of the frame are on the still face: the head turns about the chin."""
        measures = self._measures
        right, down = self._columns - measures.chin[0], self._rows - measures.chin[1]
        cos, sin = math.cos(pose.turn) - 1, math.sin(pose.turn)
        columns = self._columns + self._moves * (right * cos + down * sin - pose.right * measures.width)
        rows = self._rows + self._moves * (down * cos - right * sin - pose.down * measures.width)
        return columns, rows

    def _mouth_window(self) -> tuple[slice, slice]:
        """Returns the part of the face that speaking moves."""
        measures = self._measures
        column, row = measures.mouth.reference.origin
        side, up, down = 1.4 * measures.mouth.width, 1.5 * measures.to_nose, 2.6 * measures.to_chin
        height, width = self._columns.shape
        rows = slice(*(int(np.clip(at - self._top, 0, height)) for at in (row - up, row + down)))
        columns = slice(*(int(np.clip(at - self._left, 0, width)) for at in (column - side, column + side)))
        return rows, columns

    def _mouth(self, pose: Pose, columns: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
        """Moves lips and jaw in place; how much of each pixel is the inside of the mouth, and its colour."""
        mouth, measures = self._measures.mouth, self._measures
        u, v = _within(mouth, columns, rows)
        half = mouth.width / 2
        scale = 1 + (SPREAD if pose.width > 0 else ROUND) * pose.width
        near = np.exp(-np.square(u / (1.5 * half)) - np.square(v / (1.4 * half)))
        source_u = u * (1 + near * (1 / scale - 1))
        gap = GAP * mouth.width * pose.opening
        profile = np.sqrt(np.clip(1 - np.square(source_u / half), 0, 1))
        upper, lower = mouth.upper.over(source_u), mouth.lower.over(source_u)
        meet = 0.6 * upper + 0.4 * lower
        top, bottom = meet - (1 - LOWER_PART) * gap * profile, meet + LOWER_PART * gap * profile
        source_v = np.where(
            v < (top + bottom) / 2,
            v + (upper - top) * _smooth(1 - (top - v) / (0.9 * measures.to_nose)),
            v + self._jaw(u, v - bottom, lower - bottom, LOWER_PART * gap, half),
        )
        _put_back(mouth, source_u, source_v, columns, rows)
        inside = np.clip(v - top + 0.5, 0, 1) * np.clip(bottom - v + 0.5, 0, 1)
        inside *= np.clip((bottom - top) / 1.5, 0, 1)
        return inside.astype(np.float32), self._inside(source_u / half, v - top, bottom - top)

    def _jaw(self, u: Numbers, below: Numbers, lip: Numbers, drop: float, half: float) -> Numbers:
        """Returns where the pixels `below` the edge of the lower lip come from: the lip by its own way, and
        the jaw, which is wider, by that of its middle."""
        to_chin = self._measures.to_chin
        of_lip = _smooth(1 - below / (1.6 * self._measures.lips[1]))
        fading = np.where(
            below < to_chin,
            1 - (1 - CHIN_PART) * below / to_chin,
            CHIN_PART * _smooth(1 - (below - to_chin) / (1.2 * to_chin)),
        )
        wide = _smooth(1 - np.abs(u) / (2.3 * half))
        found: Numbers = of_lip * lip - (1 - of_lip) * drop * wide * fading
        return found

    def _inside(self, u: Numbers, below: Numbers, gap: Numbers) -> Numbers:
        """Returns the colours (3, h, w) between the lips: teeth above, the tongue below, dark between
        them."""
        size = self._measures.mouth.width
        teeth = np.clip((np.minimum(0.17 * size, 0.5 * gap) - below) / 1.5, 0, 1) * _smooth(
            2.6 * (0.86 - np.abs(u))
        )
        tongue = _smooth((below - 0.55 * gap) / np.maximum(0.3 * gap, 1)) * _smooth(1.6 * (0.9 - np.abs(u)))
        colours = np.empty((3, *u.shape), np.float32)
        shade = 0.55 + 0.45 * _smooth(below / (0.08 * size))
        for n in range(3):
            colour = DARK[n] + tongue * 0.8 * (TONGUE[n] - DARK[n])
            colours[n] = (colour + teeth * (TEETH[n] - colour)) * (shade * self._light / 127.5) - 1
        return colours

    def _sampled(self, columns: Numbers, rows: Numbers) -> torch.Tensor:
        """Returns the image's colours at these positions, between pixels by bilinear interpolation."""
        height, width = self._image.shape[1:]
        grid = np.stack([columns * (2 / (width - 1)) - 1, rows * (2 / (height - 1)) - 1], axis=-1)
        found: torch.Tensor = torch.nn.functional.grid_sample(
            self._image[None], torch.from_numpy(grid)[None], padding_mode="border", align_corners=True
        )[0]
        return found


def _lid(eye: Slit, to_brow: float, closed: float, columns: Numbers, rows: Numbers) -> None:
    """Moves the upper lid in place: the skin from half-way to the brow down to its edge is stretched."""
    if closed <= 0:
        return
    column, row = eye.reference.origin
    near = (np.abs(columns - column) < eye.width) & (np.abs(rows - row) < eye.width)
    u, v = _within(eye, columns[near], rows[near])
    upper, lower = eye.upper.over(u), eye.lower.over(u)
    top = upper - 0.45 * to_brow
    edge = upper + 1.12 * closed * np.clip(lower - upper, 0, None) * (np.abs(u) < eye.width / 2)
    covered = (v > top) & (v < edge)
    part = np.clip((v - top) / np.maximum(edge - top, 1e-3), 0, 1)
    source = np.where(covered, top + part * (upper - top), v)
    moved_columns, moved_rows = columns[near], rows[near]
    _put_back(eye, u, source, moved_columns, moved_rows)
    columns[near], rows[near] = moved_columns, moved_rows


def _within(slit: Slit, columns: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Returns the coordinates of pixels in the frame of reference of a mouth or an eye."""
    (x, y), along, down = slit.reference.origin, slit.reference.along, slit.reference.down
    right, below = columns - x, rows - y
    return right * along[0] + below * along[1], right * down[0] + below * down[1]


def _put_back(slit: Slit, u: Numbers, v: Numbers, columns: Numbers, rows: Numbers) -> None:
    """Reverses `_within`, in place."""
    (x, y), along, down = slit.reference.origin, slit.reference.along, slit.reference.down
    columns[...] = x + u * along[0] + v * down[0]
    rows[...] = y + u * along[1] + v * down[1]


def _smooth(values: Numbers) -> Numbers:
    """Returns a curve from 0 to 1 without a kink; 0 below 0 and 1 above 1."""
    inner = np.clip(values, 0, 1)
    found: Numbers = inner * inner * (3 - 2 * inner)
    return found
