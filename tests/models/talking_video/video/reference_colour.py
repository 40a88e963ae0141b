"""L*a*b* to sRGB as scikit-image computes it (`skimage.color.lab2rgb`), with which InfiniteTalk's authors
bring colours back: written again in float64, with its numbers. Of the roots only that of Z is cut at zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

TO_XYZ = np.array(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def roots(lab: Array) -> Array:
    """Of X, Y and Z beside the white, before anything is cut: (..., 3)."""
    light, red, blue = np.moveaxis(lab, -1, 0)
    y = (light + 16.0) / 116.0
    return np.stack([red / 500.0 + y, y, y - blue / 200.0], axis=-1)


def shown(lab: Array) -> Array:
    """(..., 3), from -1 to 1."""
    root = roots(lab)
    root[..., 2] = np.maximum(root[..., 2], 0.0)
    xyz = np.where(root > 0.2068966, root**3, (root - 16.0 / 116.0) / 7.787) * WHITE
    linear = xyz @ np.linalg.inv(TO_XYZ).T
    coded = np.where(linear > 0.0031308, 1.055 * np.maximum(linear, 0) ** (1 / 2.4) - 0.055, linear * 12.92)
    out: Array = np.clip(coded, 0.0, 1.0) * 2.0 - 1.0
    return out
