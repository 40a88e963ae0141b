"""Scores lip sync from the pixels of a finished video. Shares nothing with what drew it.

The opening of the mouth is what is neither skin nor lip in its region: dark, or as white as teeth.
The audio's track comes from the phonemes that its synthesizer (flite) says it spoke, and when.
"""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

FPS = 25
JAW = {
    **dict.fromkeys(("pau", "m", "b", "p"), 0.0),
    **dict.fromkeys(("f", "v"), 0.1),
    **dict.fromkeys(("s", "z", "sh", "ch", "jh", "zh", "w", "y"), 0.2),
    **dict.fromkeys(("t", "d", "n", "l", "k", "g", "ng", "hh", "th", "dh", "r", "uw"), 0.3),
    **dict.fromkeys(("iy", "ih", "uh", "er"), 0.4),
    **dict.fromkeys(("ax", "ey", "ow", "eh"), 0.6),
    **dict.fromkeys(("ah", "ao", "oy"), 0.8),
    **dict.fromkeys(("aa", "ae", "aw", "ay"), 1.0),
}
"""How far each phoneme of flite's American English opens the mouth."""


def phoneme_track(times: Path, frames: int) -> NDArray[np.float64]:
    """From lines of `name:end`: the mean opening in each frame, over three frames as jaws move."""
    fine = np.zeros(frames * 10)
    begin = 0.0
    for part in times.read_text().split():
        name, _, end = part.rpartition(":")
        fine[round(begin * FPS * 10) : round(float(end) * FPS * 10)] = JAW[name]
        begin = float(end)
    track = fine.reshape(frames, 10).mean(axis=1)
    return np.convolve(np.pad(track, 1, mode="edge"), (0.25, 0.5, 0.25), "valid")


def openings(video: Path, region: tuple[int, int, int, int]) -> NDArray[np.float64]:
    """The open part of the region (left, top, right, bottom) in each frame."""
    left, top, right, bottom = region
    found = []
    with av.open(str(video)) as file:
        for frame in file.decode(video=0):
            pixels = frame.to_ndarray(format="rgb24")[top:bottom, left:right].astype(int)
            dark, white = pixels.max(axis=2) < 120, pixels.min(axis=2) > 178
            found.append((dark | white).mean())
    return np.array(found)


def best_offset(opening: NDArray[np.float64], track: NDArray[np.float64]) -> tuple[int, float]:
    """The offset in frames, and the correlation there; positive if the mouth is late."""
    scores = {}
    for late in range(-6, 7):
        mouth = opening[6 + late : len(opening) - 6 + late]
        scores[late] = float(np.corrcoef(mouth, track[6:-6])[0, 1])
    best = max(scores, key=lambda late: scores[late])
    return best, scores[best]
