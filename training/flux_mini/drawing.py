"""The drawing of scenes with the icons of Material Design Icons (Apache-2.0), as the package qtawesome has
them.

pip install --no-deps qtawesome==1.4.2
"""

from __future__ import annotations

import functools
import importlib.util
import json
import random
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from stoker.models.text_to_image.mini.vocabulary import COLOURS
from training.flux_mini.scenes import Box, Scene, boxes

MASTER: Final = 640
"""The side of the mask of an icon, from which the others are scaled."""
RIM: Final = 0.012
"""The width of the dark rim around an object, as a part of its side."""

FONT: Final = "materialdesignicons6-webfont"

Colour = tuple[float, float, float]
WHITE: Final[Colour] = (255, 255, 255)

SKIES: Final[dict[str, tuple[tuple[float, Colour], ...]]] = {
    "meadow": ((0, (140, 200, 245)), (0.6, (205, 232, 250)), (0.6, (140, 200, 96)), (1, (96, 165, 66))),
    "beach": (
        *((0, (130, 200, 245)), (0.42, (200, 232, 250)), (0.42, (40, 150, 200)), (0.6, (90, 195, 215))),
        *((0.6, (245, 226, 172)), (1, (232, 205, 140))),
    ),
    "night": ((0, (12, 16, 52)), (1, (58, 50, 120))),
    "snow": ((0, (178, 205, 232)), (0.6, (222, 234, 245)), (0.6, (255, 255, 255)), (1, (232, 240, 250))),
    "desert": ((0, (130, 195, 235)), (0.58, (250, 232, 190)), (0.58, (236, 186, 110)), (1, (214, 152, 82))),
    "sunset": ((0, (86, 50, 120)), (0.45, (225, 95, 95)), (0.75, (252, 150, 70)), (1, (255, 214, 120))),
    "sea": ((0, (150, 210, 248)), (0.4, (214, 238, 252)), (0.4, (34, 120, 190)), (1, (14, 70, 140))),
}
"""Each scenery from top to bottom: heights from 0 to 1 with their colours."""


def mixed(one: Colour, other: Colour, share: float) -> Colour:
    """Returns `one`, with this share of the other."""
    red, green, blue = (a + (b - a) * share for a, b in zip(one, other, strict=True))
    return (red, green, blue)


def of_background(colour: str) -> Colour:
    """Returns the colour of a background, a little paler than an object of the same colour."""
    return mixed(COLOURS[colour], WHITE, 0.2)


@functools.cache
def _font() -> tuple[ImageFont.FreeTypeFont, dict[str, str]]:
    spec = importlib.util.find_spec("qtawesome")
    if spec is None or spec.origin is None:
        raise SystemExit("the icons are missing: pip install --no-deps qtawesome==1.4.2")
    folder = Path(spec.origin).parent / "fonts"
    [font], [names] = folder.glob(f"{FONT}-6*.ttf"), folder.glob(f"{FONT}-charmap-6*.json")
    return ImageFont.truetype(str(font), MASTER), json.loads(names.read_text())


@functools.cache
def masks(icon: str) -> tuple[Image.Image, Image.Image]:
    """Returns the icon fitted into a square with a margin for the rim, and the same with its rim."""
    font, names = _font()
    character = chr(int(names[icon], 16))
    left, top, right, bottom = font.getbbox(character)
    drawn = Image.new("L", (int(right - left), int(bottom - top)))
    ImageDraw.Draw(drawn).text((-left, -top), character, fill=255, font=font)
    found = drawn.crop(drawn.getbbox())
    inner = round(MASTER * (1 - 2.5 * RIM))
    scale = inner / max(found.size)
    found = found.resize((round(found.width * scale), round(found.height * scale)), Image.Resampling.LANCZOS)
    mask = Image.new("L", (MASTER, MASTER))
    mask.paste(found, ((MASTER - found.width) // 2, (MASTER - found.height) // 2))
    return mask, mask.filter(ImageFilter.MaxFilter(2 * round(RIM * MASTER) + 1))


@functools.lru_cache(256)
def _scaled(icon: str, side: int) -> tuple[Image.Image, Image.Image]:
    size, method = (side, side), Image.Resampling.BOX if side < MASTER else Image.Resampling.BICUBIC
    fill, rim = (mask.resize(size, method) for mask in masks(icon))
    return fill, rim


def gradient(stops: tuple[tuple[float, Colour], ...], width: int, height: int) -> Image.Image:
    at = (np.arange(height) + 0.5) / height
    heights, colours = [stop for stop, _ in stops], np.array([colour for _, colour in stops], np.float64)
    column = np.stack([np.interp(at, heights, colours[:, channel]) for channel in range(3)], axis=1)
    pixels = np.broadcast_to(column.round().astype(np.uint8)[:, None], (height, width, 3))
    return Image.fromarray(np.ascontiguousarray(pixels))


def background(name: str, width: int, height: int, rng: random.Random) -> Image.Image:
    if name in COLOURS:
        colour = of_background(name)
        ends = ((0.0, mixed(colour, WHITE, 0.12)), (1.0, mixed(colour, (0, 0, 0), 0.06)))
        return gradient(ends, width, height)
    image = gradient(SKIES[name], width, height)
    if name in ("night", "snow"):
        draw, unit = ImageDraw.Draw(image), min(width, height)
        for _ in range(24):
            x, y, r = rng.uniform(0, width), rng.uniform(0, height), unit * rng.uniform(0.004, 0.009)
            draw.ellipse((x - r, y - r, x + r, y + r), fill=(255, 250, 225))
    return image


def place(image: Image.Image, icon: str, colour: Colour, box: Box) -> None:
    """Draws one object onto the image: a fill that is lighter at its top, within a dark rim."""
    side = max(8, round(box.side))
    at = (round(box.x - side / 2), round(box.y - side / 2))
    fill, rim = _scaled(icon, side)
    edge = mixed(colour, (0, 0, 0), 0.55)
    image.paste(tuple(round(part) for part in edge), (*at, at[0] + side, at[1] + side), rim)
    shades = ((0.0, mixed(colour, WHITE, 0.16)), (1.0, mixed(colour, (0, 0, 0), 0.12)))
    image.paste(gradient(shades, side, side), at, fill)


def draw(scene: Scene, width: int, height: int, rng: random.Random) -> NDArray[np.uint8]:
    """Draws a scene as (height, width, 3)."""
    image = background(scene.background, width, height, rng)
    for group in scene.groups:
        for box in boxes(group, width, height):
            place(image, group.drawable.icon, COLOURS[group.colour], box)
    return np.asarray(image)
