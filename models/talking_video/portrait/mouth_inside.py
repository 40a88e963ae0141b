"""The inside of an open mouth, drawn: a row of upper teeth, the dark behind it, and the tongue. Pure.

    upper lip ──> its shadow ──> teeth, which stay where the head is ──> dark ──> tongue ──> lower lip

Lengths are in widths of the mouth, positions across in halves of it.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.floating[Any]]

DARK, TONGUE, TEETH = (44.0, 14.0, 17.0), (156.0, 74.0, 76.0), (236.0, 229.0, 214.0)

TEETH_END: Final = (0.0, 0.3, 0.53, 0.72, 0.88, 1.0)
"""Where each tooth of a side ends; those further back are seen from their edge."""

BITE, ARCH = 0.065, 0.045
"""How far below the line of closed lips the front teeth end, and how much less the last ones do."""

SHOWN: Final = 0.66
"""The part of the opening that teeth cover at most."""

ROUNDED: Final = 0.009
"""How much shorter a tooth is at its sides."""

BETWEEN: Final = 0.14
"""How much darker the lines between teeth are."""


def inside_colours(across: Numbers, below: Numbers, gap: Numbers, raised: Numbers, size: float) -> Numbers:
    """Returns the colours (3, h, w), of 255, between the lips. `below`: how far pixels are below the upper
    lip; `gap`: how much further the lips are apart there than when they are closed; `raised`: how far the
    upper lip is above the line of closed lips; in pixels. `size`: the width of the mouth."""
    aside = np.abs(across)
    teeth, shade = _teeth(aside, below, gap, raised, size)
    wide_open = smooth((gap - 0.1 * size) / (0.2 * size))
    top = gap * (0.62 + 0.3 * np.square(across))
    tongue = 0.85 * wide_open * smooth((below - top) / np.maximum(0.22 * gap, 1))
    light = (0.5 + 0.5 * smooth(below / (0.07 * size))) * (0.6 + 0.4 * smooth(gap / (0.1 * size)))
    found = np.empty((3, *across.shape), np.float32)
    for n in range(3):
        behind = DARK[n] + tongue * (TONGUE[n] - DARK[n])
        found[n] = (behind + teeth * (TEETH[n] * shade - behind)) * light
    return found


def _teeth(
    aside: Numbers, below: Numbers, gap: Numbers, raised: Numbers, size: float
) -> tuple[Numbers, Numbers]:
    """Returns how much of each pixel is a tooth, and how bright it is."""
    number = np.interp(aside, TEETH_END, np.arange(len(TEETH_END)))
    within = number - np.floor(number)
    end = raised + size * (BITE - ARCH * np.square(aside) - ROUNDED * (2 * within - 1) ** 4)
    end = np.minimum(end, SHOWN * gap)
    teeth = np.clip(end - below + 0.5, 0, 1) * smooth(8 * (0.97 - aside))
    widths = np.diff(TEETH_END)[np.minimum(number.astype(int), len(TEETH_END) - 2)] * size / 2
    line = np.clip(1.2 - np.minimum(within, 1 - within) * widths, 0, 1)
    shade = (1 - BETWEEN * line) * (0.45 + 0.55 * smooth(1.5 * (1.05 - aside)))
    return teeth, shade


def smooth(values: Numbers) -> Numbers:
    """Returns a curve from 0 to 1 without a kink; 0 below 0 and 1 above 1."""
    inner = np.clip(values, 0, 1)
    found: Numbers = inner * inner * (3 - 2 * inner)
    return found
