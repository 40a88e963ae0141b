"""Finds the line that a drawing has for a mouth, where the networks find no face.

    image ──> small and grey ──> dark lines that lie ──> the strongest that ends at both sides of it
                                        ^                       │ it is a part of something larger
                                        └────── without that <──┘

A line is dark where the rows above and below are brighter; it is straight, or bends as a smile does. A
horizon, the edge of a table or the outline of a face is larger than any part of it that looks like a mouth,
and is not one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE: Final = 160
"""The shorter side of the image that is looked at, in pixels."""

THICK: Final = (2, 4, 6)
"""How far the rows above and below are, in pixels of it."""

DARK: Final = 20.0
"""The least difference of brightness, of 255, between a line and what is above and below."""

NEAR: Final = 4
"""How far a line may be above or below its parabola, in pixels of it."""

BENDS: Final = (0.0, 0.2, 0.4, -0.2)
"""The depths of parabolas that are tried, in widths of the mouth: how far the middle is below the ends."""

STRAIGHTER: Final = 0.3
"""How much a bend costs: a line may lie near several parabolas."""

WIDTHS: Final = (0.1, 0.14, 0.19, 0.25, 0.33, 0.42)
"""The widths that are tried, in shorter sides of the image."""

COVERED, FREE = 0.85, 0.35
"""The part of a window that the line must cover, and the part of its surroundings that it may."""

ROWS: Final = (0.3, 0.92)
"""Where mouths are: from here to there, in heights of the image."""

WIDER, HIGH = 1.5, 0.75
"""The most that the ink of a mouth reaches, in widths of its line: at its sides, and upwards."""

TRIES: Final = 12
"""How many lines are looked at."""

MEANS: Final = (2 / 3, np.pi / 4)
"""The means of the curves that bend: a parabola's and half an ellipse's, whose ends are 0 and whose middle is
1."""


@dataclass(frozen=True, slots=True)
class DrawnMouth:
    """A line in pixels of the image: its mean column and row, its width, and how far its middle is below its
    ends: `bend` as a parabola's, and `arch` more as half an ellipse's, whose ends are steep."""

    column: float
    row: float
    width: float
    bend: float
    arch: float

    def rows(self, columns: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns the rows of the line at these columns."""
        _, bend, arch = _terms(np.clip(2 * (columns - self.column) / self.width, -1, 1))
        below = self.bend * (bend - MEANS[0]) + self.arch * (arch - MEANS[1])
        found: NDArray[np.float32] = (self.row + below).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True, order=True)
class _Found:
    """A line in pixels of the small image, of which `row` has the ends."""

    score: float
    row: int
    first: int
    width: int
    bend: int


def drawn_mouth(pixels: NDArray[np.uint8]) -> DrawnMouth | None:
    """Returns the mouth of an image (H, W, 3), or None."""
    height, width = pixels.shape[:2]
    scale = min(height, width) / SIDE
    small = Image.fromarray(pixels).convert("L").resize((round(width / scale), round(height / scale)))
    grey = np.asarray(small, np.float32)
    lines = _lines(grey)
    ink = (lines > 0) | (_lines(grey.T).T > 0)
    first, last = (round(part * len(grey)) for part in ROWS)
    lines[:first] = lines[last:] = 0
    for _ in range(TRIES):
        if (best := _strongest(lines)) is None:
            return None
        whole = _whole(ink, lines, best)
        columns, rows = (np.flatnonzero(whole.any(axis=axis)) for axis in (0, 1))
        if np.ptp(columns) <= WIDER * best.width and np.ptp(rows) <= HIGH * best.width:
            return _measured(lines, best, scale)
        lines[whole] = 0
    return None


def _strongest(lines: NDArray[np.float32]) -> _Found | None:
    near = _highest(lines, NEAR)
    tried = [(round(part * SIDE), round(bend * part * SIDE)) for part in WIDTHS for bend in BENDS]
    found = [one for wide, bend in tried if (one := _best(near, wide, bend)) is not None]
    return max(found, default=None)


def _whole(ink: NDArray[np.bool_], lines: NDArray[np.float32], found: _Found) -> NDArray[np.bool_]:
    """Returns all the ink that is connected with the middle of the line."""
    third = slice(found.width // 3, -(found.width // 3))
    rows, columns = (part[:, third] for part in _beside(lines, found))
    grown = np.zeros((ink.shape[0] + 2, ink.shape[1] + 2), np.bool_)
    inner = grown[1:-1, 1:-1]
    darkest = lines[rows, columns].argmax(axis=0)
    inner[np.take_along_axis(rows, darkest[None], 0), columns[0]] = True
    before = 0
    while (count := int(grown.sum())) > before:
        before = count
        wider = grown[:-2] | grown[1:-1] | grown[2:]
        inner |= (wider[:, :-2] | wider[:, 1:-1] | wider[:, 2:]) & ink
    return inner


def _measured(lines: NDArray[np.float32], found: _Found, scale: float) -> DrawnMouth:
    """Returns the curve through the line's own rows, near the parabola found, in pixels of the image."""
    rows, columns = _beside(lines, found)
    dark = lines[rows, columns]
    weight = np.maximum(dark.sum(axis=0), 1e-6)
    middles = (rows * dark).sum(axis=0) / weight
    seen = np.minimum(weight, 4 * DARK)
    terms = _terms(_across(found.width))
    end, bend, arch = np.linalg.lstsq((terms * seen).T, middles * seen, rcond=None)[0]
    row = end + bend * MEANS[0] + arch * MEANS[1]
    measures = found.first + found.width / 2, row + 0.5, found.width, bend, arch
    return DrawnMouth(*(float(one) * scale for one in measures))


def _beside(lines: NDArray[np.float32], found: _Found) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows and the columns of the pixels near the parabola, by how far below it they are."""
    below = np.arange(-NEAR, NEAR + 1)[:, None]
    rows = np.clip(found.row + _parabola(found.width, found.bend) + below, 0, len(lines) - 1)
    return rows, np.broadcast_to(found.first + np.arange(found.width), rows.shape)


def _terms(across: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the curves that a line is composed of: straight, a parabola, half an ellipse."""
    below = 1 - np.square(across, dtype=np.float64)
    return np.stack([np.ones_like(below), below, np.sqrt(below)])


def _across(wide: int) -> NDArray[np.float64]:
    """Returns where each column is, from -1 at the left end to 1 at the right one."""
    return (np.arange(wide) + 0.5) * 2 / wide - 1


def _parabola(wide: int, bend: int) -> NDArray[np.int64]:
    """Returns how far each column is below the ends."""
    found: NDArray[np.int64] = np.rint(bend * (1 - _across(wide) ** 2)).astype(np.int64)
    return found


def _lines(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns how much darker each pixel is than what is above and below it; 0 where that is little."""
    found = np.zeros_like(grey)
    for far in THICK:
        around = np.minimum(grey[: -2 * far], grey[2 * far :])
        found[far:-far] = np.maximum(found[far:-far], around - grey[far:-far])
    found[found < DARK] = 0
    return found


def _highest(lines: NDArray[np.float32], far: int) -> NDArray[np.float32]:
    """Returns the highest value within so many rows of each pixel."""
    padded = np.pad(lines, ((far, far), (0, 0)))
    found: NDArray[np.float32] = np.stack([padded[n : n + len(lines)] for n in range(2 * far + 1)]).max(
        axis=0
    )
    return found


def _best(near: NDArray[np.float32], wide: int, bend: int) -> _Found | None:
    """Returns the strongest line of this width and bend that does not go on at its sides."""
    margin = max(wide // 4, 3)
    if wide + 2 * margin >= near.shape[1]:
        return None
    covered = _along((near > 0).astype(np.float32), wide, bend)
    strength = _along(np.minimum(near, 4 * DARK), wide, bend)
    beside = _along((near > 0).astype(np.float32), margin, 0)
    inner = slice(margin, near.shape[1] - wide - margin + 1)
    left = beside[:, : inner.stop - inner.start]
    right = beside[:, margin + wide :][:, : inner.stop - inner.start]
    ends = (left <= FREE) & (right <= FREE)
    scores = np.where(ends & (covered[:, inner] >= COVERED), strength[:, inner] * np.sqrt(wide), 0)
    row, column = np.unravel_index(int(scores.argmax()), scores.shape)
    best = float(scores[row, column]) * (1 - STRAIGHTER * abs(bend) / wide)
    return _Found(best, int(row), int(column) + margin, wide, bend) if best > 0 else None


def _along(values: NDArray[np.float32], wide: int, bend: int) -> NDArray[np.float32]:
    """Returns the mean along each parabola, by the row of its ends and its first column; 0 where it leaves
    the image."""
    found = np.zeros((values.shape[0], values.shape[1] - wide + 1), np.float32)
    padded = np.pad(values, ((abs(bend), abs(bend)), (0, 0)))
    for column, below in enumerate(_parabola(wide, bend)):
        first = abs(bend) + below
        found += padded[first : first + len(values), column : column + found.shape[1]]
    found /= wide
    return found
