"""The measures of a face that its drawing needs: the slits of mouth and eyes, and distances. Pure."""

from __future__ import annotations

from dataclasses import dataclass

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
from stoker.models.talking_video.portrait.slits import Slit, eye_as_seen, mouth_as_seen, slit


@dataclass(frozen=True, slots=True)
class Measures:
    """Distances in pixels: of the upper lip to the nose, of the lower lip to the chin; the heights of both
    lips; the width of the face. `eyes`: those that can blink."""

    mouth: Slit
    eyes: tuple[Slit, ...]
    to_nose: float
    to_chin: float
    lips: tuple[float, float]
    width: float
    middle: Points
    chin: Points

    @property
    def marked(self) -> bool:
        """Returns False where the image shows one colour where a mouth or an eye should be: the networks know
        faces by outlines alone, too, and miss the lines of bare drawings."""
        return all(one.marked for one in (self.mouth, *self.eyes))


def measured(face: Face, pixels: NDArray[np.uint8]) -> Measures:
    """Returns the measures of a face in its image (H, W, 3). Of a face that is assumed, only eyes that the
    image shows can blink."""
    points = face.points
    mouth = mouth_as_seen(slit(points, UPPER_LIP, LOWER_LIP), pixels)
    heights = mouth.reference.of(points[[NOSE_BASE, LIP_TOP, LIP_BOTTOM, CHIN]])[:, 1]
    upper, lower = (
        float(mouth.upper.over(np.zeros(1, np.float32))[0]),
        float(mouth.lower.over(np.zeros(1, np.float32))[0]),
    )
    eyes = []
    for edges, brow in zip(EYES, BROWS, strict=True):
        eye = slit(points, *edges)
        to_brow = max(float(-eye.reference.of(points[[brow]])[0, 1]), 0.1 * mouth.width)
        seen = eye_as_seen(eye, pixels, to_brow)
        if not face.assumed:
            eyes.append(seen or eye)
        elif seen is not None and seen.marked:
            eyes.append(seen)
    least = 0.1 * mouth.width
    return Measures(
        mouth,
        tuple(eyes),
        to_nose=max(upper - float(heights[0]), 2 * least),
        to_chin=max(float(heights[3]) - lower, 4 * least),
        lips=(max(upper - float(heights[1]), least), max(float(heights[2]) - lower, least)),
        width=float(np.linalg.norm(points[CHEEKS[0]] - points[CHEEKS[1]])),
        middle=points[[*CHEEKS, *BROWS, CHIN, CHIN]].mean(axis=0),
        chin=points[CHIN],
    )
