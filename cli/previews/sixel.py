"""Pictures in sixels: bands of six rows, drawn once for each of their colours. Pure.

Colours are of a cube of 6 levels each: a preview shows positions and hues. The cursor begins at the upper
left of the picture.
"""

from __future__ import annotations

from itertools import groupby

from stoker.cli.previews.pictures import Pixels

LEVELS = 6
ROWS = 6
_SHORTEST_RUN = 4
"""A run of fewer sixels is shorter without a count."""

_NEAREST = bytes(round(value * (LEVELS - 1) / 255) for value in range(256))


def sixel(pixels: Pixels) -> str:
    """Returns the picture, a pixel of the terminal for each of its own."""
    colours = _colours(pixels)
    palette = "".join(f"#{colour};2;{_percents(colour)}" for colour in sorted(set(colours)))
    rows = [
        colours[begin : begin + pixels.width]
        for begin in range(0, pixels.width * pixels.height, pixels.width)
    ]
    bands = (_band(rows[begin : begin + ROWS]) for begin in range(0, pixels.height, ROWS))
    return f'\x1bP0;1q"1;1;{pixels.width};{pixels.height}{palette}{"-".join(bands)}\x1b\\'


def _colours(pixels: Pixels) -> bytes:
    """Returns the number of each pixel's colour."""
    levels = pixels.rgb.translate(_NEAREST)
    channels = zip(levels[::3], levels[1::3], levels[2::3], strict=True)
    return bytes(LEVELS * LEVELS * red + LEVELS * green + blue for red, green, blue in channels)


def _percents(colour: int) -> str:
    levels = (colour // (LEVELS * LEVELS), colour // LEVELS % LEVELS, colour % LEVELS)
    return ";".join(str(level * 100 // (LEVELS - 1)) for level in levels)


def _band(rows: list[bytes]) -> str:
    """Returns up to six rows. A sixel has a bit for each row in which it has this colour."""
    found: dict[int, bytearray] = {}
    for bit, row in enumerate(rows):
        for column, colour in enumerate(row):
            if colour not in found:
                found[colour] = bytearray(len(row))
            found[colour][column] |= 1 << bit
    return "$".join(f"#{colour}{_runs(bits)}" for colour, bits in found.items())


def _runs(bits: bytearray) -> str:
    parts = []
    for value, run in groupby(bits):
        count, sign = len(list(run)), chr(63 + value)
        parts.append(sign * count if count < _SHORTEST_RUN else f"!{count}{sign}")
    return "".join(parts)
