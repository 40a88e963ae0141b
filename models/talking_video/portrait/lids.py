"""The upper lids of a blink: skin from below the eye, drawn over it down to its lower edge; lashes. Pure.

    pixel above the moving edge ──> as far below the eye, mirrored ──> a little darker above
    pixel at the edge           ──> the darkest colour of the eye and its brow

The skin above an eye is narrow, and often shadow, lashes or brow; that below it is skin, also in drawings.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.slits import Pixels, Slit

Numbers: TypeAlias = NDArray[np.floating[Any]]

BELOW, FLATTER = 0.1, 0.55
"""How far below the eye its lid's skin is taken, in widths of the eye, and how much nearer together."""

SOFT: Final = 0.13
"""Over which height the lid begins above the eye, in widths of it."""

OVER, WIDER = 0.03, 1.06
"""How far a closed lid reaches below the lower edge, and how much wider than the eye it is."""

LASHES: Final = 0.026
"""Half the thickness of the lashes."""

DARKEST: Final = 5.0
"""The part of the pixels around an eye and its brow, in percent, that are nearly as dark as its lashes."""


def lash_colour(eye: Slit, pixels: Pixels) -> NDArray[np.float32]:
    """Returns the colour (3,) of the lashes, of 255."""
    at = np.linspace(-0.9, 0.5, 29, dtype=np.float32) * eye.width
    seen = eye.reference.seen(pixels, *np.meshgrid(at[8:], at)).reshape(-1, 3)
    bright = seen.mean(axis=1)
    found: NDArray[np.float32] = 0.8 * seen[bright <= np.percentile(bright, DARKEST)].mean(axis=0)
    return found


def lid(eye: Slit, closed: float, u: Numbers, v: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Returns how much of the pixels at (u, v), in the eye's frame of reference, is lid; the height that its
    skin is taken from; how bright it is; and how much of the pixels is lashes."""
    wide = WIDER * eye.width
    upper, lower = eye.upper.over(u / WIDER), eye.lower.over(u / WIDER)
    swell = np.sqrt(np.clip(1 - np.square(2 * u / wide), 0, 1))
    edge = upper + closed * (lower - upper + OVER * wide * swell)
    begin = upper - SOFT * wide * swell
    covered = np.clip(edge - v + 0.5, 0, 1) * np.clip((v - begin) / (SOFT * wide) + 0.02, 0, 1) * (swell > 0)
    covered *= np.clip(8 * closed, 0, 1)
    skin = lower + BELOW * wide + FLATTER * (edge - v)
    bright = 1 - 0.05 * np.clip((edge - v) / (0.5 * wide), 0, 1)
    thick = np.maximum(LASHES * wide * np.sqrt(swell), 0.6)
    lashes = np.clip(thick - np.abs(v - edge) + 0.5, 0, 1) * np.clip(4 * swell, 0, 1) * min(4 * closed, 1)
    return covered, skin, bright, 0.75 * lashes
