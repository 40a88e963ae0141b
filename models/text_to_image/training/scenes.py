"""Scenes to train on: what they show, where, and in which colours. All chance comes from the caller's
generator.

A scene has one or two groups. A group is one to four of an object, in one colour, spread over a region of the
image; the region is the whole image, or the half that a position names.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final

from stoker.models.text_to_image.mini.vocabulary import COLOURS, DRAWABLES, POSITIONS, SCENERY, Drawable

HELD_OUT: Final = 0.1
"""The share of combinations of an object, a colour and a count that are never trained on."""

REGIONS: Final = {
    "": (0.0, 0.0, 1.0, 1.0),
    "left": (0.0, 0.0, 0.5, 1.0),
    "right": (0.5, 0.0, 1.0, 1.0),
    "top": (0.0, 0.0, 1.0, 0.5),
    "bottom": (0.0, 0.5, 1.0, 1.0),
}
SCALE: Final = {"": 0.86, "small": 0.5, "big": 1.0}
GRID: Final = 16
"""So many steps of the shorter side make the grid that objects stand on. The places and sizes that a prompt
leaves open are few, so that a small network can know the picture of each."""
OPPOSITE: Final = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}


@dataclass(frozen=True, slots=True)
class Group:
    """`position` is empty for the middle, `size` for the usual one."""

    drawable: Drawable
    colour: str
    count: int
    position: str = ""
    size: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """`background` is a colour or a scenery. Of two groups each has a half."""

    groups: tuple[Group, ...]
    background: str

    @property
    def is_single(self) -> bool:
        return len(self.groups) == 1 and self.groups[0].count == 1


@dataclass(frozen=True, slots=True)
class Box:
    """Where one object stands: its centre and its side, in pixels."""

    x: float
    y: float
    side: float


def is_held_out(drawable: Drawable, colour: str, count: int) -> bool:
    """Whether a combination is kept for the scores; the same on every machine."""
    return random.Random(f"{drawable.name} {colour} {count}").random() < HELD_OUT


def scene(rng: random.Random) -> Scene:
    """A random scene without a combination that is held out."""
    background = rng.choice(tuple(SCENERY)) if rng.random() < 0.45 else rng.choice(tuple(COLOURS))
    if rng.random() < 0.25:
        side = rng.choice(POSITIONS)
        first = group(rng, background, position=side, most=2)
        second = group(rng, background, position=OPPOSITE[side], most=2)
        return Scene((first, second), background)
    position = rng.choice(POSITIONS) if rng.random() < 0.5 else ""
    return Scene((group(rng, background, position),), background)


def group(rng: random.Random, background: str, position: str, most: int = 4) -> Group:
    while True:
        drawable, count = rng.choice(DRAWABLES), rng.choice((1, 1, 2, 3, 4)[: most + 1])
        usual = rng.random() < 0.25
        colour = rng.choice(drawable.colours if usual else tuple(COLOURS))
        size = rng.choice(("small", "big")) if rng.random() < 0.2 else ""
        if can_be_seen(colour, background) and not is_held_out(drawable, colour, count):
            return Group(drawable, colour, count, position, size)


def can_be_seen(colour: str, background: str) -> bool:
    """Whether the two colours differ enough; every colour can be seen before a scenery."""
    if background in SCENERY:
        return True
    return math.dist(COLOURS[colour], COLOURS[background]) > 110


def boxes(group: Group, width: int, height: int, rng: random.Random) -> list[Box]:
    """Where the objects of a group stand in an image of this size: in the rows and columns that let them be
    largest, all moved and resized alike, a little and at random, on a grid."""
    left, top, right, bottom = REGIONS[group.position]
    wide, high = (right - left) * width, (bottom - top) * height
    columns = max(range(1, group.count + 1), key=lambda n: min(wide / n, high / math.ceil(group.count / n)))
    rows = math.ceil(group.count / columns)
    cell, step = min(wide / columns, high / rows), min(width, height) / GRID
    usual = int(cell * SCALE[group.size] * rng.uniform(0.88, 1.0) / step)
    side = step * max(1, min(usual, int(cell / step) - 1))
    room = max(step, 0.6 * (cell - side))
    move_x, move_y = rng.random(), rng.random()
    found = []
    for index in range(group.count):
        row, column = divmod(index, columns)
        in_row = min(columns, group.count - row * columns)
        x = left * width + wide / 2 + (column - (in_row - 1) / 2) * min(wide / columns, 1.25 * cell)
        y = top * height + high / 2 + (row - (rows - 1) / 2) * min(high / rows, 1.25 * cell)
        found.append(Box(_moved(x, side, room, step, move_x), _moved(y, side, room, step, move_y), side))
    return found


def _moved(middle: float, side: float, room: float, step: float, move: float) -> float:
    """The middle of a side that begins on the grid, at this part of the room, which is a step or more."""
    begin = (middle - side / 2 - room / 2) / step
    first, last = math.ceil(begin - 1e-9), math.floor(begin + room / step + 1e-9)
    return (first + int(move * (last - first + 1))) * step + side / 2
