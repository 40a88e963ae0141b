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

from stoker.models.text_to_image.mini.completion import MOST_IN_A_PAIR, OPPOSITE, can_be_seen
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
GRID: Final = 16
"""So many steps of the shorter side make the grid that objects stand on: a step is half a token of a picture
of 256 x 256."""
SIDES: Final = (12, 8, 6, 4)
"""The sides of objects in steps; small and big ones have others."""
FILLED: Final = 0.8
"""The part of its cell that the side of an object takes at most."""


@dataclass(frozen=True, slots=True)
class Group:
    """Objects of one kind in a scene. `position` is empty for the middle, `size` for the usual one."""

    drawable: Drawable
    colour: str
    count: int
    position: str = ""
    size: str = ""


@dataclass(frozen=True, slots=True)
class Scene:
    """A scene to draw. `background` is a colour or a scenery. Of two groups each has a half."""

    groups: tuple[Group, ...]
    background: str

    @property
    def kind(self) -> str:
        """Returns "alone" for one object in the middle, "placed" for one elsewhere or in another size;
        "several"; "groups"."""
        first = self.groups[0]
        if len(self.groups) > 1:
            return "groups"
        if first.count > 1:
            return "several"
        return "placed" if first.position or first.size else "alone"


@dataclass(frozen=True, slots=True)
class Box:
    """The place of one object: its centre and its side, in pixels."""

    x: float
    y: float
    side: float


def is_held_out(drawable: Drawable, colour: str, count: int) -> bool:
    """Returns whether a combination is kept for the scores; the same on every machine."""
    return random.Random(f"{drawable.name} {colour} {count}").random() < HELD_OUT


def scene(rng: random.Random) -> Scene:
    """Returns a random scene without a combination that is held out."""
    background = rng.choice(tuple(SCENERY)) if rng.random() < 0.45 else rng.choice(tuple(COLOURS))
    if rng.random() < 0.25:
        side = rng.choice(POSITIONS)
        first = group(rng, background, position=side, most=MOST_IN_A_PAIR)
        second = group(rng, background, position=OPPOSITE[side], most=MOST_IN_A_PAIR)
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


def boxes(group: Group, width: int, height: int) -> list[Box]:
    """Returns where the objects of a group stand in an image of this size. The boxes follow from the group:
    what a prompt leaves open is learnt as a blur of all that it may be, and the shapes of objects with it."""
    step = min(width, height) / GRID
    left, top, right, bottom = REGIONS[group.position]
    wide, high = (right - left) * width / step, (bottom - top) * height / step
    count = group.count
    longer = 1 if wide > high else -1
    columns = max(range(1, count + 1), key=lambda n: (min(wide / n, high / math.ceil(count / n)), longer * n))
    rows = math.ceil(count / columns)
    cell = min(wide / columns, high / rows)
    usual = next((side for side in SIDES if side <= FILLED * cell), SIDES[-1])
    side = _resized(usual, group)
    aside = side / 2 if count > 1 and cell <= side else 0.0
    across, down = _pitch(columns, wide, cell, side), _pitch(rows, high, cell, side)
    found = []
    for index in range(count):
        row, column = divmod(index, columns)
        in_row = min(columns, count - row * columns)
        x = left * width / step + wide / 2 + (column - (in_row - 1) / 2) * across
        y = top * height / step + high / 2 + (row - (rows - 1) / 2) * down
        x += (aside if index % 2 else -aside) * (columns == 1)
        y += (aside if index % 2 else -aside) * (rows == 1)
        begins = (math.floor(x - side / 2), math.floor(y - side / 2))
        found.append(Box((begins[0] + side / 2) * step, (begins[1] + side / 2) * step, side * step))
    return found


def _resized(usual: int, group: Group) -> int:
    """Returns the side for the size that a group names. Only an object alone can be big: several would
    touch."""
    if group.size == "small":
        return max(SIDES[-1], 6 if usual == SIDES[0] else usual - 2)
    return usual + 2 if group.size == "big" and group.count == 1 else usual


def _pitch(number: int, room: float, cell: float, side: int) -> float:
    """Returns the distance between the middles of so many in a row."""
    if number == 1:
        return 0.0
    return min(room / number, 1.25 * cell) if cell >= side + 2 else (room - side) / (number - 1)
