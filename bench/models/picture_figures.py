"""Measures of how much two pictures differ: PSNR and SSIM, of 8-bit pixels as arrays (H, W, 3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

WINDOW = 8
"""Pixels: the side of the squares in which structure is compared."""


def psnr_db(picture: Any, exact: Any) -> float:
    """The peak signal-to-noise ratio in decibels; infinite for equal pictures."""
    error = float(np.mean((picture.astype(float) - exact.astype(float)) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255.0**2 / error)


def ssim(picture: Any, exact: Any) -> float:
    """The structural similarity of the grey values, 1 for equal pictures: the mean over squares of
    WINDOW pixels that do not overlap (Wang et al. 2004, with uniform weights)."""
    first, second = (_squares(one.astype(float).mean(axis=2)) for one in (picture, exact))
    means = first.mean(axis=1), second.mean(axis=1)
    variances = first.var(axis=1), second.var(axis=1)
    together = ((first - means[0][:, None]) * (second - means[1][:, None])).mean(axis=1)
    low, high = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    likeness = (2 * means[0] * means[1] + low) * (2 * together + high)
    scale = (means[0] ** 2 + means[1] ** 2 + low) * (variances[0] + variances[1] + high)
    return float((likeness / scale).mean())


def _squares(grey: Any) -> Any:
    """(squares, pixels of a square); what is left over at the edges is not compared."""
    rows, columns = grey.shape[0] // WINDOW, grey.shape[1] // WINDOW
    cut = grey[: rows * WINDOW, : columns * WINDOW].reshape(rows, WINDOW, columns, WINDOW)
    return cut.transpose(0, 2, 1, 3).reshape(rows * columns, WINDOW * WINDOW)
