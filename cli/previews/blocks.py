"""Pictures of half blocks, of which the upper and the lower half are a pixel each. Pure.

The cursor begins at the upper left of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator

from stoker.cli.previews.pictures import Pixels

UPPER = "▀"
_LEVELS = (0, 95, 135, 175, 215, 255)
"""The levels of red, green and blue in the cube of 216 among 256 colours."""

Colour = tuple[int, int, int]


def blocks(pixels: Pixels, *, true_colour: bool) -> str:
    """Returns the picture, two rows of pixels in a line; of an odd number of rows the last is left out."""
    lines = (_line(pixels, row, true_colour) for row in range(0, pixels.height - 1, 2))
    return f"\x1b[0m\x1b[B\x1b[{pixels.width}D".join(lines) + "\x1b[0m"


def _line(pixels: Pixels, row: int, true_colour: bool) -> str:
    found, last = [], ""
    for upper, lower in zip(_row(pixels, row), _row(pixels, row + 1), strict=True):
        style = f"\x1b[38;{_code(upper, true_colour)};48;{_code(lower, true_colour)}m"
        found.append(UPPER if style == last else f"{style}{UPPER}")
        last = style
    return "".join(found)


def _row(pixels: Pixels, row: int) -> Iterator[Colour]:
    begin = row * pixels.width * 3
    for at in range(begin, begin + pixels.width * 3, 3):
        yield pixels.rgb[at], pixels.rgb[at + 1], pixels.rgb[at + 2]


def _code(colour: Colour, true_colour: bool) -> str:
    if true_colour:
        return f"2;{colour[0]};{colour[1]};{colour[2]}"
    red, green, blue = map(_level, colour)
    return f"5;{16 + 36 * red + 6 * green + blue}"


def _level(value: int) -> int:
    return min(range(6), key=lambda level: abs(_LEVELS[level] - value))
