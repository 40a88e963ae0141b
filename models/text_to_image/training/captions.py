"""Captions of scenes, in the words that `flux-mini` reads.

A caption may leave out what a reader would expect anyway: the usual colour of an object, a single count, the
background. Some captions are fragments, such as "red" or "at night", which negative prompts are made of.
"""

from __future__ import annotations

import random

from stoker.models.text_to_image.mini.vocabulary import COLOURS, COUNTS, SCENERY
from stoker.models.text_to_image.training.scenes import Group, Scene

LEFT_RIGHT = ("on the {}", "on the {} side", "at the {}", "{}")
TOP_BOTTOM = ("at the {}", "on the {}", "{}")


def caption(scene: Scene, rng: random.Random) -> str:
    """A caption in lower case, its words and commas divided by spaces."""
    if rng.random() < 0.06:
        return fragment(scene, rng)
    parts = [_of_groups(scene, rng)]
    if rng.random() < 0.8:
        parts.insert(rng.choice((0, 1, 1, 1)), background(scene.background, rng))
    return rng.choice((" ", " ", " , ")).join(parts)


def fragment(scene: Scene, rng: random.Random) -> str:
    """One thing that is true of the scene."""
    one = rng.choice(scene.groups)
    found = [one.colour, one.drawable.name, one.drawable.plural, background(scene.background, rng)]
    if len(scene.groups) == 1 and one.position:
        found.append(position(one.position, rng))
    return rng.choice(found)


def _of_groups(scene: Scene, rng: random.Random) -> str:
    if len(scene.groups) == 1:
        return placed(scene.groups[0], rng)
    first, second = scene.groups
    how = rng.random()
    if first.position in ("top", "bottom") and how < 0.5:
        word = "above" if first.position == "top" else "below"
        return f"{objects(first, rng)} {word} {objects(second, rng)}"
    if first.position == "left" and how < 0.3:  # the order says where, as in reading
        return f"{objects(first, rng)} {rng.choice(('and', 'and', ',', 'with'))} {objects(second, rng)}"
    return f"{placed(first, rng)} {rng.choice(('and', ','))} {placed(second, rng)}"


def placed(group: Group, rng: random.Random) -> str:
    text = objects(group, rng)
    if not group.position:
        return text
    where = position(group.position, rng)
    return f"{where} {rng.choice(('', ', '))}{text}" if rng.random() < 0.15 else f"{text} {where}"


def objects(group: Group, rng: random.Random) -> str:
    """As in "two small red cats"."""
    words = []
    if group.count > 1:
        words = [] if rng.random() < 0.04 else [COUNTS[group.count - 1]]
    elif rng.random() < 0.85:
        words = [rng.choice(("a", "a", "a", "one", "the"))]
    if group.size:
        words.append(group.size)
    if group.colour not in group.drawable.colours or rng.random() < 0.65:
        words.append(group.colour)
    words.append(group.drawable.name if group.count == 1 else group.drawable.plural)
    return " ".join(words)


def position(name: str, rng: random.Random) -> str:
    return rng.choice(LEFT_RIGHT if name in ("left", "right") else TOP_BOTTOM).format(name)


def background(name: str, rng: random.Random) -> str:
    if name in COLOURS:
        before = rng.choice(("on a", "on a", "with a"))
        return f"{before} {name} background" if rng.random() < 0.9 else f"{name} background"
    return SCENERY[name] if rng.random() < 0.9 else name
