"""The drawing of a frame: the image, with its mouth, its eyes and its head as they are requested.

    pixel of the frame ──head──> pixel of the still face ──lips, jaw──> pixel of the image
                                        ├─ between the lips: the inside of the mouth, drawn
                                        └─ in a blink: lids

Each pixel near the face looks up where in the image it comes from, so nothing is pasted and no edge shows.
The lower lip takes the jaw with it. What an open mouth of the image shows is replaced by the drawn inside, so
that it can close.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.geometry import Measures
from stoker.models.talking_video.portrait.lids import lash_colour, lid
from stoker.models.talking_video.portrait.mouth_inside import inside_colours, smooth
from stoker.models.talking_video.portrait.slits import Slit

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

PARTED: Final = 0.016
"""How far the lips of an image that shows them open are apart when they are closed, in widths of the mouth:
the line between them."""


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
        if measures.mouth.hollow is not None:
            pixels = measures.mouth.hollow.covered(pixels)
        self._image = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1) / 127.5 - 1
        height, width = pixels.shape[:2]
        reach = HEAD_STILL * measures.width
        low, high = measures.middle - reach, measures.middle + reach
        self._left, self._top = (int(np.clip(value, 0, None)) for value in low)
        right, bottom = int(min(high[0] + 1, width)), int(min(high[1] + 1, height))
        self._columns, self._rows = np.meshgrid(
            np.arange(self._left, right, dtype=np.float32), np.arange(self._top, bottom, dtype=np.float32)
        )
        far = np.hypot(self._columns - measures.middle[0], self._rows - measures.middle[1]) / measures.width
        self._moves = smooth((HEAD_STILL - far) / (HEAD_STILL - HEAD_MOVES))
        self._light = self._brightness(pixels)
        self._lashes = [lash_colour(eye, pixels) / 127.5 - 1 for eye in measures.eyes]

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
        window = self._mouth_window()
        at, inside, colours = self._mouth(pose, columns[window], rows[window])
        found = self._sampled(columns, rows)
        if pose.closed > 0:
            self._blink(pose.closed, columns, rows, found)
        mouth = found[:, *window][:, *at]
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

    def _mouth(
        self, pose: Pose, columns: Numbers, rows: Numbers
    ) -> tuple[tuple[slice, slice], Numbers, Numbers]:
        """Moves lips and jaw in place. Returns where in these pixels the inside of the mouth is, how much of
        each is inside, and its colour."""
        mouth, measures = self._measures.mouth, self._measures
        u, v = _within(mouth, columns, rows)
        half = mouth.width / 2
        source_u = u * (1 + self._narrowed(u, v, half) * (1 / _scale(pose.width) - 1))
        gap = GAP * mouth.width * pose.opening
        swell = np.sqrt(np.clip(1 - np.square(source_u / half), 0, 1))
        upper, lower = mouth.upper.over(source_u), mouth.lower.over(source_u)
        closed_top, closed_bottom = self._closed(upper, lower, swell)
        top = closed_top - (1 - LOWER_PART) * gap * swell * np.sqrt(swell)
        bottom = closed_bottom + LOWER_PART * gap * swell * np.sqrt(np.sqrt(swell))
        source_v = np.where(
            v < (top + bottom) / 2,
            v + (upper - top) * smooth(1 - (top - v) / (0.9 * measures.to_nose)),
            v + self._jaw(u, v - bottom, lower - bottom, LOWER_PART * gap, half),
        )
        _put_back(mouth, source_u, source_v, columns, rows)
        inside = np.clip(v - top + 0.5, 0, 1) * np.clip(bottom - v + 0.5, 0, 1)
        inside *= np.clip((bottom - top if mouth.parted else gap * swell) / 1.5, 0, 1)
        at = _bounds(inside)
        raised = (closed_top + closed_bottom) / 2 - top
        opened = bottom - top - (closed_bottom - closed_top)
        colours = inside_colours(source_u[at] / half, (v - top)[at], opened[at], raised[at], mouth.width)
        return at, inside[at].astype(np.float32), colours * np.float32(self._light**0.75 / 127.5) - 1

    def _closed(self, upper: Numbers, lower: Numbers, swell: Numbers) -> tuple[Numbers, Numbers]:
        """Returns the edges of closed lips: those of the line that the image shows, or of a thin one."""
        if not self._measures.mouth.parted:
            return upper, lower
        meet, thick = 0.6 * upper + 0.4 * lower, PARTED / 2 * self._measures.mouth.width * swell
        return meet - thick, meet + thick

    def _narrowed(self, u: Numbers, v: Numbers, half: float) -> Numbers:
        """Returns how much of the mouth's change of width the pixels follow: none at the nose, or beside the
        part that speaking moves."""
        near = np.exp(-np.square(u / (1.5 * half)) - np.square(v / (1.4 * half)))
        found: Numbers = near * smooth(1 + v / self._measures.to_nose) * smooth(2.5 - np.abs(u) / half)
        return found

    def _blink(self, closed: float, columns: Numbers, rows: Numbers, found: torch.Tensor) -> None:
        """Draws the lids over the eyes of `found`, in place. It is the image at these positions."""
        for eye, lashes in zip(self._measures.eyes, self._lashes, strict=True):
            at = self._around(eye)
            u, v = _within(eye, columns[at], rows[at])
            covered, skin, bright, dark = lid(eye, closed, u, v)
            source_columns, source_rows = np.empty_like(u), np.empty_like(v)
            _put_back(eye, u, skin, source_columns, source_rows)
            drawn = (self._sampled(source_columns, source_rows).numpy() + 1) * bright - 1
            part = found[:, *at].numpy()
            part += covered * (drawn - part)
            part += dark * (lashes[:, None, None] - part)

    def _around(self, eye: Slit) -> tuple[slice, slice]:
        """Returns the part of the face with this eye in it, also where the head has moved."""
        (column, row), height, width = eye.reference.origin, *self._columns.shape
        rows, columns = (
            slice(*(int(np.clip(at - first + side * eye.width, 0, size)) for side in (-1, 1)))
            for at, first, size in ((row, self._top, height), (column, self._left, width))
        )
        return rows, columns

    def _jaw(self, u: Numbers, below: Numbers, lip: Numbers, drop: float, half: float) -> Numbers:
        """Returns where the pixels `below` the edge of the lower lip come from: the lip by its own way, and
        the jaw, which is wider, by that of its middle."""
        to_chin = self._measures.to_chin
        wide = smooth(1 - np.abs(u) / (2.3 * half))
        over = np.maximum(1.6 * self._measures.lips[1], 2.2 * drop * wide)  # in less, the skin would fold
        of_lip = smooth(1 - below / over)
        fading = np.where(
            below < to_chin,
            1 - (1 - CHIN_PART) * below / to_chin,
            CHIN_PART * smooth(1 - (below - to_chin) / (1.2 * to_chin)),
        )
        found: Numbers = of_lip * lip - (1 - of_lip) * drop * wide * fading
        return found

    def _sampled(self, columns: Numbers, rows: Numbers) -> torch.Tensor:
        """Returns the image's colours at these positions, between pixels by bilinear interpolation."""
        height, width = self._image.shape[1:]
        grid = np.stack([columns * (2 / (width - 1)) - 1, rows * (2 / (height - 1)) - 1], axis=-1)
        found: torch.Tensor = torch.nn.functional.grid_sample(
            self._image[None], torch.from_numpy(grid)[None], padding_mode="border", align_corners=True
        )[0]
        return found


def _scale(width: float) -> float:
    """Returns how wide the mouth is, in its own width, from -1 (round) to 1 (spread)."""
    return 1 + (SPREAD if width > 0 else ROUND) * width


def _bounds(inside: Numbers) -> tuple[slice, slice]:
    """Returns the smallest rectangle outside of which all is 0."""
    rows, columns = (np.flatnonzero(inside.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return slice(0), slice(0)
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


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
