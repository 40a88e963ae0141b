"""The line of a drawn mouth, in drawings that the networks know no face in, and none where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from stoker.models.talking_video.portrait.drawn_mouth import drawn_mouth
from stoker.models.talking_video.portrait.landmarks import LOWER_LIP, UPPER_LIP, assumed_face

WHITE, INK = (250, 250, 245), (30, 30, 30)


def smiley(width: int, height: int, at: tuple[int, int], radius: int, *, bent: bool) -> NDArray[np.uint8]:
    """A circle with two dots and a line, as a child draws it."""
    image = Image.new("RGB", (width, height), WHITE)
    pen = ImageDraw.Draw(image)
    (x, y), r = at, radius
    pen.ellipse((x - r, y - r, x + r, y + r), outline=INK, width=6)
    for side in (-1, 1):
        pen.ellipse((x + side * r // 3 - 8, y - r // 3 - 8, x + side * r // 3 + 8, y - r // 3 + 8), fill=INK)
    half = r // 3
    if bent:
        pen.arc((x - half, y + r // 3 - 14, x + half, y + r // 3 + 14), 0, 180, fill=INK, width=7)
    else:
        pen.line((x - half, y + r // 3, x + half, y + r // 3), fill=INK, width=7)
    return np.asarray(image)


@pytest.mark.parametrize("bent", [False, True])
@pytest.mark.parametrize(
    ("width", "height", "at", "radius"),
    [(640, 640, (320, 320), 240), (832, 480, (560, 250), 180), (480, 832, (200, 500), 160)],
)
def test_the_mouth_is_on_the_drawings_own_line(
    bent: bool, width: int, height: int, at: tuple[int, int], radius: int
) -> None:
    pixels = smiley(width, height, at, radius, bent=bent)
    mouth = drawn_mouth(pixels)
    assert mouth is not None
    assert mouth.column == pytest.approx(at[0], abs=0.12 * radius)
    assert mouth.row == pytest.approx(at[1] + radius / 3 + 7 * bent, abs=0.08 * radius)
    assert 0.35 * radius < mouth.width < 0.9 * radius
    face = assumed_face(pixels)
    lips = face.points[[*UPPER_LIP, *LOWER_LIP]]
    assert lips.mean(axis=0) == pytest.approx([mouth.column, mouth.row], abs=2)


@pytest.mark.parametrize("depth", [-0.5, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("half", [80, 108, 132])
@pytest.mark.slow
@pytest.mark.numbers
def test_the_mouth_bends_as_a_deep_smile_does(depth: float, half: int) -> None:
    """Half an ellipse, whose middle is `depth` halves of its width below its ends."""
    image = Image.fromarray(smiley(640, 640, (320, 320), 240, bent=False))
    pen = ImageDraw.Draw(image)
    pen.rectangle((220, 380, 420, 420), fill=WHITE)
    deep = round(abs(depth) * half)
    ends = 380 if depth > 0 else 400 + deep
    box = (320 - half, ends - deep, 320 + half, ends + deep)
    pen.arc(box, *((0, 180) if depth > 0 else (180, 360)), fill=INK, width=7)
    pixels = np.asarray(image)
    mouth = drawn_mouth(pixels)
    assert mouth is not None
    below = deep if depth > 0 else -deep
    assert mouth.column == pytest.approx(320, abs=8)
    assert mouth.row == pytest.approx(ends + np.pi / 4 * below, abs=12)
    assert mouth.bend + mouth.arch == pytest.approx(below, abs=0.2 * deep)
    lips = assumed_face(pixels).points[[*UPPER_LIP, *LOWER_LIP]]
    drawn = ends + below * np.sqrt(np.clip(1 - ((lips[:, 0] - 320) / half) ** 2, 0, 1))
    inner = np.abs(lips[:, 0] - 320) < 0.8 * half
    assert np.abs(lips[:, 1] - drawn)[inner].max() < 8


@pytest.mark.parametrize("radius", [100, 120, 140])
@pytest.mark.parametrize("at", [(320, 320), (200, 400)])
def test_the_outline_of_a_small_face_is_no_mouth(radius: int, at: tuple[int, int]) -> None:
    """Its lower and its upper half bend as a smile does, and are larger than that of the face."""
    image = Image.fromarray(smiley(640, 640, at, radius, bent=False))
    pen, (x, y) = ImageDraw.Draw(image), at
    half, top, bottom = round(0.6 * radius), round(0.5 * radius), round(0.6 * radius)
    pen.rectangle((x - half, y + 0.2 * radius, x + half, y + 0.5 * radius), fill=WHITE)
    pen.arc((x - half, y - top, x + half, y + bottom), 20, 160, fill=INK, width=8)
    mouth = drawn_mouth(np.asarray(image))
    assert mouth is not None
    assert mouth.column == pytest.approx(x, abs=6)
    assert y + 0.2 * radius < mouth.row < y + bottom
    assert mouth.width < 1.4 * radius


@pytest.mark.parametrize("kind", ["flat", "horizon", "noise", "gradient"])
def test_where_there_is_no_such_line_none_is_found(kind: str) -> None:
    pixels = np.full((480, 640, 3), 150, np.uint8)
    if kind == "horizon":
        pixels[300:306] = 40
    elif kind == "noise":
        pixels = np.random.default_rng(1).integers(120, 150, pixels.shape, np.uint8)
    elif kind == "gradient":
        pixels[:] = np.linspace(40, 220, 480, dtype=np.uint8)[:, None, None]
    assert drawn_mouth(pixels) is None
    assert assumed_face(pixels).assumed
