"""The shape of the mouth in each frame, from the visemes of the audio. Pure.

visemes, 100 a second ──> shape of each, weighted by its probability ──> a short blur ──> 25 a second
                                                      closed lips are kept through the blur
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from stoker.models.talking_video.portrait.visemes import SOUNDS

STEPS_PER_FRAME: Final = 4

SHAPES: Final = {
    "sil": (0.0, 0.0),
    "pbm": (0.0, 0.0),
    "fv": (0.12, 0.1),
    "th": (0.25, 0.0),
    "tdnl": (0.3, 0.1),
    "kgh": (0.35, 0.0),
    "sh": (0.28, -0.4),
    "sz": (0.16, 0.25),
    "r": (0.3, -0.3),
    "a": (1.0, 0.05),
    "e": (0.62, 0.3),
    "i": (0.38, 0.5),
    "o": (0.7, -0.55),
    "u": (0.32, -0.8),
}
"""How far the lips are apart, from 0 to 1, and how wide the mouth is, from -1 (round) to 1 (spread)."""

_TABLE: Final = np.array([SHAPES[sound] for sound in SOUNDS], np.float32)
_BLUR: Final = np.array([1, 2, 3, 4, 3, 2, 1], np.float32) / 16
"""Over 70 ms: lips move about so fast."""

_CLOSED: Final = (SOUNDS.index("sil"), SOUNDS.index("pbm"))


def mouth_shapes(visemes: NDArray[np.float32], frames: int) -> NDArray[np.float32]:
    """Returns the opening and the width in each frame, (frames, 2), from the probabilities (steps, visemes).
    Frames after the last step are those of silence, as are steps without any probability."""
    shapes = visemes @ _TABLE
    blurred = np.stack([_blurred(shapes[:, n]) for n in range(2)], axis=1)
    closed = visemes[:, list(_CLOSED)].max(axis=1)
    blurred[:, 0] *= 1 - np.clip(2 * closed - 1, 0, 1)
    whole = np.zeros((frames * STEPS_PER_FRAME, 2), np.float32)
    known = min(len(whole), len(blurred))
    whole[:known] = blurred[:known]
    found: NDArray[np.float32] = whole.reshape(frames, STEPS_PER_FRAME, 2).mean(axis=1)
    return found


def _blurred(values: NDArray[np.float32]) -> NDArray[np.float32]:
    if not len(values):
        return values
    padded = np.pad(values, len(_BLUR) // 2, mode="edge")
    return np.convolve(padded, _BLUR, "valid").astype(np.float32)
