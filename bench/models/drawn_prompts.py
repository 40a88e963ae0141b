"""Scores what flux-mini draws for prompts that it was never trained on: whether the picture shows what they
say.

    python bench/models/drawn_prompts.py [--number 200] [--pairs] [--side 256] [--json
    bench/results/drawn-prompts.json] python bench/models/drawn_prompts.py --number 24 --sheet
    docs/pictures/held-out-prompts.jpg

The pictures are read by `picture_reading`, which knows nothing of the networks that drew them. As a check of
the reading itself, drawings of the same prompts by the program that made the training's scenes are scored in
the same run; and each picture is also scored against another's prompt, where the scores must be near chance.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]
import picture_reading
from measured_on import machine

from stoker.models.interface import ImageParameters
from stoker.models.text_to_image.families.flux_mini import FluxMini
from stoker.models.text_to_image.mini import weights
from stoker.models.text_to_image.mini.completion import can_be_seen, stands_out
from stoker.models.text_to_image.mini.vocabulary import COLOURS, COUNTS, DRAWABLES, POSITIONS, SCENERY
from training.flux_mini import drawing
from training.flux_mini.scenes import REGIONS, Group, Scene, is_held_out

PARTS = ("object", "colour", "count", "position", "all of it")
STEPS = 28


def held_out(number: int) -> list[Scene]:
    """Scenes of one group with combinations of object, colour and count that training leaves out."""
    rng = random.Random(0)
    found = list[Scene]()
    while len(found) < number:
        drawable, colour, count = rng.choice(DRAWABLES), rng.choice(tuple(COLOURS)), rng.randint(1, 4)
        background = rng.choice((*SCENERY, *COLOURS))
        if is_held_out(drawable, colour, count) and can_be_seen(colour, background):
            found.append(Scene((Group(drawable, colour, count, rng.choice(("", *POSITIONS))),), background))
    return found


def pairs(number: int) -> list[Scene]:
    """Scenes of two groups, each a held-out combination of one or two objects, side by side."""
    rng, found = random.Random(1), list[Scene]()
    while len(found) < number:
        kinds = [(*rng.sample(DRAWABLES, 1), rng.choice(tuple(COLOURS)), rng.randint(1, 2)) for _ in range(2)]
        background = rng.choice((*SCENERY, *COLOURS))
        if kinds[0][0] is not kinds[1][0] and all(
            is_held_out(*kind) and stands_out(kind[1], background) for kind in kinds
        ):
            groups = [Group(*kind, side) for kind, side in zip(kinds, ("left", "right"), strict=True)]
            found.append(Scene(tuple(groups), background))
    return found


def prompt(scene: Scene) -> str:
    """As in "two red cats on the left in a meadow"; of two groups, in their order from the left to the right,
    as in "two red cats and a blue car in a meadow"."""
    behind = SCENERY.get(scene.background, f"on a {scene.background} background")
    if len(scene.groups) > 1:
        return f"{' and '.join(map(_counted, scene.groups))} {behind}"
    [one] = scene.groups
    where = {"": "", "top": " at the top", "bottom": " at the bottom"}.get(
        one.position, f" on the {one.position}"
    )
    return f"{_counted(one)}{where} {behind}"


def _counted(group: Group) -> str:
    name = group.drawable.name if group.count == 1 else group.drawable.plural
    article = "an" if group.colour == "orange" else "a"
    return f"{article if group.count == 1 else COUNTS[group.count - 1]} {group.colour} {name}"


def score(scene: Scene, seen: list[picture_reading.Seen]) -> dict[str, bool]:
    """What is right: the object and the colour of most of what is seen, the count, and the middle of it all
    within the region that the position names. Of two groups both, each in its half."""
    if len(scene.groups) > 1:
        halves = {
            side: [one for one in seen if (one.x < 0.5) == (side == "left")] for side in ("left", "right")
        }
        each = [score(Scene((one,), scene.background), halves[one.position]) for one in scene.groups]
        return {part: all(one[part] for one in each) for part in PARTS}
    [one] = scene.groups
    if not seen:
        return dict.fromkeys(PARTS, False)
    names, colours = Counter(each.name for each in seen), Counter(each.colour for each in seen)
    x, y = (sum(values) / len(seen) for values in ([each.x for each in seen], [each.y for each in seen]))
    left, top, right, bottom = REGIONS[one.position] if one.position else (0.3, 0.3, 0.7, 0.7)
    found = {
        "object": names.most_common(1)[0][0] == one.drawable.name,
        "colour": colours.most_common(1)[0][0] == one.colour,
        "count": len(seen) == one.count,
        "position": bool(left <= x <= right and top <= y <= bottom),
    }
    return found | {"all of it": all(found.values())}


def shares(scores: list[dict[str, bool]]) -> dict[str, float]:
    return {part: round(sum(one[part] for one in scores) / len(scores), 3) for part in PARTS}


def sheet(images: list[Image.Image], texts: list[str], are_right: list[bool]) -> Image.Image:
    """The pictures in rows of six, each with its prompt below it: in red where not all of it is seen."""
    side, below, font = 160, 34, ImageFont.load_default(10)
    page = Image.new("RGB", (6 * side, -(-len(images) // 6) * (side + below)), "white")
    pen = ImageDraw.Draw(page)
    for number, (image, text, is_right) in enumerate(zip(images, texts, are_right, strict=True)):
        x, y = number % 6 * side, number // 6 * (side + below)
        page.paste(image.resize((side - 4, side - 4), Image.Resampling.LANCZOS), (x, y))
        lines = "\n".join(textwrap.wrap(text, 30))
        pen.multiline_text(
            (x, y + side - 2), lines, fill="black" if is_right else "red", font=font, spacing=1
        )
    return page


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--pairs", action="store_true", help="prompts with two kinds of objects")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--keep", type=Path, help="a folder for the pictures")
    parser.add_argument("--sheet", type=Path, help="a file for one picture of all of them")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    scenes = pairs(options.number) if options.pairs else held_out(options.number)
    classifier = picture_reading.load()
    seen, drawn = list[list[picture_reading.Seen]](), list[list[picture_reading.Seen]]()
    images = list[Image.Image]()
    with tempfile.TemporaryDirectory() as name:
        weights.build(Path(name))
        pipeline = FluxMini(Path(name), "cpu")
        began = time.perf_counter()
        for number, scene in enumerate(scenes):
            wanted = ImageParameters(
                prompt(scene), options.side, options.side, STEPS, seed=number, guidance=3.5
            )
            image = pipeline.generate(wanted, lambda step: None)
            images.append(image)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                image.save(options.keep / f"{number:03} {wanted.prompt}.png")
            seen.append(picture_reading.read(image, scene.background, classifier))
        seconds = (time.perf_counter() - began) / len(scenes)
    if options.sheet:
        are_right = [score(*one)["all of it"] for one in zip(scenes, seen, strict=True)]
        sheet(images, [prompt(scene) for scene in scenes], are_right).save(options.sheet, quality=85)
    for number, scene in enumerate(scenes):
        pixels = drawing.draw(scene, options.side, options.side, random.Random(number))
        drawn.append(picture_reading.read(Image.fromarray(pixels), scene.background, classifier))
    others = [*scenes[1:], scenes[0]]
    found: dict[str, Any] = {
        "machine": machine(),
        "prompts": len(scenes),
        "side": options.side,
        "flux-mini": shares([score(*one) for one in zip(scenes, seen, strict=True)]),
        "against another's prompt": shares([score(*one) for one in zip(others, seen, strict=True)]),
        "drawn by the program": shares([score(*one) for one in zip(scenes, drawn, strict=True)]),
        "seconds_per_picture": round(seconds, 2),
    }
    for which in ("flux-mini", "against another's prompt", "drawn by the program"):
        print(f"{which}: " + ", ".join(f"{part} {share:.0%}" for part, share in found[which].items()))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
