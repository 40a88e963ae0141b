"""Finds the line that a drawing has for a mouth, where the networks find no face.

    image ──> small and grey ──> dark lines that lie ──> the strongest that ends at both sides of it

A line is dark where the rows above and below are brighter. A horizon, the edge of a table or the outline of a
face goes on beyond any window, and is not a mouth. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIDE: Final = 160
"""The shorter side of the image that is looked at, in pixels."""

THICK: Final = (2, 4, 6)
"""How far the rows above and below are, in pixels of it."""

DARK: Final = 20.0
"""The least difference of brightness, of 255, between a line and what is above and below."""

BEND: Final = 4
"""How far a line may bend up or down, in pixels of it."""

WIDTHS: Final = (0.1, 0.14, 0.19, 0.25, 0.33)
"""The widths that are tried, in shorter sides of the image."""

COVERED, FREE = 0.85, 0.35
"""The part of a window that the line must cover, and the part of its surroundings that it may."""

ROWS: Final = (0.3, 0.92)
"""Where mouths are: from here to there, in heights of the image."""


@dataclass(frozen=True, slots=True)
class DrawnMouth:
    """A line in pixels of the image: its middle, and its width."""

    column: float
    row: float
    width: float


def drawn_mouth(pixels: NDArray[np.uint8]) -> DrawnMouth | None:
    """Returns the mouth of an image (H, W, 3), or None."""
    height, width = pixels.shape[:2]
    scale = min(height, width) / SIDE
    small = Image.fromarray(pixels).convert("L").resize((round(width / scale), round(height / scale)))
    lines = _lines(np.asarray(small, np.float32))
    bent, around = _highest(lines, BEND), _highest(lines, 3 * BEND)
    found = [one for part in WIDTHS if (one := _best(bent, around, round(part * SIDE))) is not None]
    if not found:
        return None
    _, row, first, wide = max(found)
    at = slice(first, first + wide)
    near = lines[max(row - BEND, 0) : row + BEND + 1, at]
    rows = np.arange(max(row - BEND, 0), max(row - BEND, 0) + len(near), dtype=np.float32)
    middle = float((near.sum(axis=1) @ rows) / max(float(near.sum()), 1e-6))
    return DrawnMouth((first + wide / 2) * scale, (middle + 0.5) * scale, wide * scale)


def _lines(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns how much darker each pixel is than what is above and below it; 0 outside of ROWS."""
    found = np.zeros_like(grey)
    for far in THICK:
        around = np.minimum(grey[: -2 * far], grey[2 * far :])
        found[far:-far] = np.maximum(found[far:-far], around - grey[far:-far])
    found[found < DARK] = 0
    first, last = (round(part * len(grey)) for part in ROWS)
    found[:first] = found[last:] = 0
    return found


def _highest(lines: NDArray[np.float32], far: int) -> NDArray[np.float32]:
    """Returns the highest value within so many rows of each pixel."""
    padded = np.pad(lines, ((far, far), (0, 0)))
    found: NDArray[np.float32] = np.stack([padded[n : n + len(lines)] for n in range(2 * far + 1)]).max(
        axis=0
    )
    return found


def _best(
    bent: NDArray[np.float32], around: NDArray[np.float32], wide: int
) -> tuple[float, int, int, int] | None:
    """Returns the strongest line of this width that does not go on at its sides, also not upwards or
    downwards (`around`): its score, row, first column and width."""
    margin = max(wide // 4, 3)
    if wide + 2 * margin >= bent.shape[1]:
        return None
    covered = _means((bent > 0).astype(np.float32), wide)
    beside = _means((around > 0).astype(np.float32), margin)
    strength = _means(np.minimum(bent, 4 * DARK), wide)
    inner = slice(margin, bent.shape[1] - wide - margin + 1)
    left = beside[:, : inner.stop - inner.start]
    right = beside[:, margin + wide :][:, : inner.stop - inner.start]
    ends = (left <= FREE) & (right <= FREE)
    scores = np.where(ends & (covered[:, inner] >= COVERED), strength[:, inner] * np.sqrt(wide), 0)
    row, column = np.unravel_index(int(scores.argmax()), scores.shape)
    best = float(scores[row, column])
    return (best, int(row), int(column) + margin, wide) if best > 0 else None


def _means(values: NDArray[np.float32], wide: int) -> NDArray[np.float32]:
    """Returns the mean of each window of so many columns, by its first."""
    sums = np.pad(np.cumsum(values, axis=1), ((0, 0), (1, 0)))
    found: NDArray[np.float32] = ((sums[:, wide:] - sums[:, :-wide]) / wide).astype(np.float32)
    return found
