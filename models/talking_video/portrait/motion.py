"""Motion of a face besides speaking: it blinks, and its head moves a little. Pure; the seed decides.

The same seed gives the same motion. A blink takes a quarter of a second, two to six seconds after the one
before; the head follows two slow waves for each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.sampling.chunks import FPS

BLINK: Final = np.array([0.45, 1.0, 1.0, 0.72, 0.36, 0.12], np.float32)
"""How far the eyes are closed in the frames of a blink: they close faster than they open."""

TURN: Final = 0.014
"""The largest turn of the head to one side, in radians."""

SHIFT: Final = 0.012
"""Its largest shift, in widths of the face."""


@dataclass(frozen=True, slots=True)
class Motion:
    """The motion in each frame: how far the eyes are closed, from 0 to 1; the turn of the head in radians;
    its shift to the right and down in widths of the face."""

    closed: NDArray[np.float32]
    turn: NDArray[np.float32]
    right: NDArray[np.float32]
    down: NDArray[np.float32]


def motion(seed: int, frames: int) -> Motion:
    """Returns the motion of each frame. The first frame is the image itself: no turn, no shift, open eyes."""
    rng = np.random.default_rng(seed)
    turn, right, down = (_wave(rng, frames) for _ in range(3))
    return Motion(_blinks(rng, frames), TURN * turn, SHIFT * right, SHIFT * down)


def _blinks(rng: np.random.Generator, frames: int) -> NDArray[np.float32]:
    closed = np.zeros(frames + len(BLINK), np.float32)
    at = int(rng.uniform(1.0, 3.0) * FPS)
    while at < frames:
        closed[at : at + len(BLINK)] = BLINK
        at += int(rng.uniform(2.0, 6.0) * FPS)
    return closed[:frames]


def _wave(rng: np.random.Generator, frames: int) -> NDArray[np.float32]:
    """Returns two sines of 3 to 9 seconds, from -1 to 1, which begin at 0."""
    at = np.arange(frames) / FPS
    found = np.zeros(frames)
    for part in (0.65, 0.35):
        seconds, sign = rng.uniform(3.0, 9.0), rng.choice((-1.0, 1.0))
        found += sign * part * np.sin(2 * np.pi * at / seconds)
    return found.astype(np.float32)
