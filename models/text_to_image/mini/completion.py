"""The completion of prompts in known words, as `flux-mini` was trained: what a prompt leaves open would be
drawn as a blur of all that it may be.

    "a cat", seed 7 ──> "a orange cat in a meadow"
    "a red car and a house" ──> "a red car on the left on a beach", "a brown house on the right on a beach"

The seed chooses colours and the background, so that each seed makes another picture; the same seed, the same.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from stoker.models.text_to_image.mini.vocabulary import (
    BY_NAME,
    COLOURS,
    COUNTS,
    DRAWABLES,
    POSITIONS,
    SCENERY,
    SIZES,
)

MOST_GROUPS: Final = 2
"""So many kinds of objects a picture shows, each drawn by a sentence of its own: see `two_kinds`. Scenes with
two are trained on, too, but not learnt yet."""
MOST_IN_A_PAIR: Final = 2
"""Of two groups in a sentence each has at most so many objects."""

FAINT: Final = {
    "meadow": ("green", "cyan"),
    "beach": ("yellow", "cyan"),
    "night": ("black", "blue", "purple"),
    "snow": ("white", "gray"),
    "desert": ("orange", "yellow"),
    "sunset": ("orange", "purple"),
    "sea": ("blue", "cyan"),
}
"""Colours in which an object stands out least before a scenery. A prompt may name them, chance does not."""

OPPOSITE: Final = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}

_NAMES: Final = {one.name: one.name for one in DRAWABLES} | {one.plural: one.name for one in DRAWABLES}


@dataclass(slots=True)
class Part:
    """Objects of one kind, as a text names them; fields that the text leaves open are empty."""

    name: str
    count: int = 1
    colour: str = ""
    position: str = ""
    size: str = ""


def left_out(text: str) -> list[str]:
    """Returns the objects for which a picture has no room."""
    return [part.name for part in parsed(text)[0][MOST_GROUPS:]]


@dataclass(frozen=True, slots=True)
class Completed:
    """A completed text: a sentence for each kind of objects, before one background. `place`: the half of the
    first kind, which is left, right, top or bottom; empty where there is one kind."""

    sentences: tuple[str, ...]
    place: str = ""


def complete(text: str, seed: int) -> Completed:
    """Returns the text with a colour for each object and a background; of two kinds of objects, each with a
    place."""
    parts, background = _filled(text, seed)
    place = parts[0].position if len(parts) > 1 else ""
    return Completed(tuple(sentence([part], background) for part in parts), place)


def _filled(text: str, seed: int) -> tuple[list[Part], str]:
    parts, background = parsed(text)
    rng = random.Random(seed)
    parts = parts[:MOST_GROUPS] or [Part("star")]
    if len(parts) > 1:
        _place(*parts)
    grounds = [background] if background else [*rng.sample(tuple(SCENERY), 3), *rng.sample(tuple(COLOURS), 8)]
    rng.shuffle(grounds)
    for part in parts:
        part.colour = part.colour or _colour(part.name, grounds, rng)
    for fits in (stands_out, can_be_seen):
        clear = [ground for ground in grounds if all(fits(part.colour, ground) for part in parts)]
        if clear:
            break
    return parts, (clear or grounds)[0]


def _colour(name: str, grounds: Sequence[str], rng: random.Random) -> str:
    """Returns a colour that the object usually has, and that stands out before one of the backgrounds, as far
    as there is such a colour."""
    usual = [*BY_NAME[name].colours]
    rng.shuffle(usual)
    others = [colour for colour in COLOURS if colour not in usual]
    for colours, fits in ((usual, stands_out), ((*usual, *others), can_be_seen)):
        if seen := [one for one in colours if any(fits(one, ground) for ground in grounds)]:
            return seen[0]
    return usual[0]


def sentence(parts: list[Part], background: str) -> str:
    """Returns everything that is to be drawn, always in the same order."""
    before = f"on a {background} background" if background in COLOURS else SCENERY[background]
    return f"{' and '.join(_phrase(part) for part in parts)} {before}"


def can_be_seen(colour: str, background: str) -> bool:
    """Returns whether the two colours differ enough; every colour can be seen before a scenery."""
    return background in SCENERY or math.dist(COLOURS[colour], COLOURS[background]) > 110


def stands_out(colour: str, background: str) -> bool:
    """Returns whether an object of this colour is easy to see."""
    return can_be_seen(colour, background) and colour not in FAINT.get(background, ())


def parsed(text: str) -> tuple[list[Part], str]:
    """Returns the objects that a text in known words names, and its background, empty if the text names
    none."""
    parser, words = _Parser(), text.split()
    for word, following in itertools.pairwise([*words, ""]):
        parser.read(word, following)
    return parser.finished()


class _Parser:
    """A parser that reads word after word; what stands before an object is `next`."""

    def __init__(self) -> None:
        self.parts, self.background = list[Part](), ""
        self.next, self.is_closed = Part("", 0), False

    def read(self, word: str, following: str) -> None:
        if word in _NAMES:
            self._object(word)
        elif word in SCENERY or (word in COLOURS and following == "background"):
            self.background = word
        elif word in COLOURS:
            self.next.colour = word
        elif word in COUNTS:
            self.next.count = 1 + COUNTS.index(word)
        elif word in SIZES:
            self.next.size = word
        elif word in POSITIONS:
            last = self.parts[-1] if self.parts and not self.is_closed else self.next
            (self.next if last.position else last).position = word
        elif word in ("above", "below") and self.parts:
            self.parts[-1].position = "top" if word == "above" else "bottom"
            self.next.position = OPPOSITE[self.parts[-1].position]
        elif word in ("and", "with"):
            self.is_closed = True

    def _object(self, word: str) -> None:
        self.next.name = _NAMES[word]
        self.next.count = self.next.count or (1 if word == self.next.name else 2)
        self.parts.append(self.next)
        self.next, self.is_closed = Part("", 0), False

    def finished(self) -> tuple[list[Part], str]:
        """Returns what was parsed. Words after the last object belong to that object."""
        if self.parts:
            self.parts[-1].colour = self.parts[-1].colour or self.next.colour
            self.parts[-1].position = self.parts[-1].position or self.next.position
        return self.parts, self.background


def _place(first: Part, second: Part) -> None:
    """Gives the two opposite places; side by side, in the order in which they are named, unless one has a
    place."""
    if first.position:
        second.position = OPPOSITE[first.position]
    elif second.position:
        first.position = OPPOSITE[second.position]
    else:
        first.position, second.position = "left", "right"


def _phrase(part: Part) -> str:
    """Returns a phrase as in "two small red cats on the left"."""
    count, name = ("a", part.name) if part.count == 1 else (COUNTS[part.count - 1], BY_NAME[part.name].plural)
    joint = "at" if part.position in ("top", "bottom") else "on"
    where = [joint, "the", part.position] if part.position else []
    return " ".join([count, *filter(None, [part.size]), part.colour, name, *where])
