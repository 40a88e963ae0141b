"""The lines of lips and lids are those that the image shows, also where the mesh sees them elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from stoker.models.talking_video.portrait.slits import (
    Line,
    Pixels,
    Reference,
    Slit,
    eye_as_seen,
    mouth_as_seen,
)

SKIN, LIPS, INK = (232, 190, 160), (200, 100, 100), (60, 40, 35)
FINER = 4


def seen_by_the_mesh(column: float, row: float, width: float, height: float) -> Slit:
    at = np.linspace(-width / 2, width / 2, 11, dtype=np.float32)
    swell = (height / 2 * (1 - np.square(2 * at / width))).astype(np.float32)
    right, down = np.eye(2, dtype=np.float32)
    reference = Reference(np.array([column, row], np.float32), right, down)
    return Slit(reference, Line(at, -swell), Line(at, swell), -width / 2, width / 2)


def drawn(*ovals: tuple[float, float, float, float, tuple[int, int, int]], side: int = 200) -> Pixels:
    """Ovals on skin: column, row, width, height, colour."""
    image = Image.new("RGB", (side * FINER, side * FINER), SKIN)
    pen = ImageDraw.Draw(image)
    for x, y, width, height, colour in ovals:
        box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        pen.ellipse([at * FINER for at in box], fill=colour)
    return np.asarray(image.resize((side, side), Image.Resampling.LANCZOS))


@given(
    st.floats(-5, 5), st.floats(-5, 5), st.floats(70, 88), st.floats(3, 7), st.floats(0, 8), st.floats(26, 36)
)
def test_closed_lips_are_at_their_dark_line(
    right: float, down: float, width: float, thick: float, parted: float, height: float
) -> None:
    """The line is up to 5 pixels from where the mesh sees it, and up to a tenth wider or narrower."""
    pixels = drawn((100 + right, 100 + down, 100, height, LIPS), (100 + right, 100 + down, width, thick, INK))
    mouth = mouth_as_seen(seen_by_the_mesh(100, 100, 80, parted), pixels)
    assert not mouth.parted
    column = float(mouth.reference.origin[0])
    assert column + mouth.left == pytest.approx(100 + right - width / 2, abs=4)
    assert column + mouth.right == pytest.approx(100 + right + width / 2, abs=4)
    at = np.zeros(1, np.float32)
    assert 100 + float(mouth.upper.over(at)[0]) == pytest.approx(100 + down - thick / 2, abs=1.5)
    assert 100 + float(mouth.lower.over(at)[0]) == pytest.approx(100 + down + thick / 2, abs=1.5)


def test_a_line_that_bends_is_followed() -> None:
    image = Image.new("RGB", (800, 800), SKIN)
    ImageDraw.Draw(image).arc((160, 200, 640, 480), 30, 150, fill=INK, width=16)
    pixels = np.asarray(image.resize((200, 200), Image.Resampling.LANCZOS))
    mouth = mouth_as_seen(seen_by_the_mesh(100, 112, 100, 4), pixels)
    at = np.linspace(-35, 35, 8, dtype=np.float32)
    middle = 112 + (mouth.upper.over(at) + mouth.lower.over(at)) / 2
    arc = 85 + 35 * np.sqrt(1 - np.square(at / 60)) - 2
    assert np.abs(middle - arc).max() < 2.5


@pytest.mark.parametrize("kind", ["open", "flat"])
def test_an_open_mouth_and_one_that_cannot_be_seen_stay_where_the_mesh_has_them(kind: str) -> None:
    apart = 30.0 if kind == "open" else 2.0
    pixels = drawn((100, 100, 80, 30, LIPS)) if kind == "open" else drawn()
    mouth = mouth_as_seen(seen_by_the_mesh(100, 100, 80, apart), pixels)
    assert (mouth.parted, mouth.marked) == ((True, True) if kind == "open" else (False, False))
    assert (mouth.left, mouth.right) == pytest.approx((-40, 40))


@given(st.floats(-8, 8), st.floats(-8, 8), st.floats(34, 110), st.floats(0.4, 1.2))
def test_in_place_of_a_drawn_open_mouth_are_closed_lips_on_skin(
    right: float, down: float, width: float, high: float
) -> None:
    """The mesh sees a mouth of 80 pixels somewhere in it."""
    height = min(high * width, 90)
    pixels = drawn((100 + right, 100 + down, width, height, (90, 20, 20)))
    mouth = mouth_as_seen(seen_by_the_mesh(100, 100, 80, 4), pixels)
    assert mouth.marked
    assert mouth.width == pytest.approx(width, abs=4)
    column, row = mouth.reference.origin
    assert column == pytest.approx(100 + right, abs=2)
    assert abs(row - 100 - down) < height / 4
    assert mouth.hollow is not None
    assert np.abs(mouth.hollow.covered(pixels).astype(int) - SKIN).max() < 24, "nothing that is not skin"


def test_painted_lips_without_a_line_are_no_open_mouth() -> None:
    mouth = mouth_as_seen(seen_by_the_mesh(100, 100, 80, 4), drawn((100, 100, 90, 34, LIPS)))
    assert (mouth.hollow, mouth.width) == (None, pytest.approx(80))


@given(st.floats(-6, 6), st.floats(-6, 6), st.floats(40, 66), st.floats(20, 36))
def test_a_drawn_eye_is_the_ellipse_that_is_not_skin(
    right: float, down: float, width: float, height: float
) -> None:
    white = (100 + right, 100 + down, width, height, (250, 250, 250))
    pixels = drawn(white, (100 + right, 100 + down, 14, 14, INK))
    eye = eye_as_seen(seen_by_the_mesh(100, 100, 56, 22), pixels, 50)
    assert eye is not None
    assert eye.reference.origin == pytest.approx([100 + right, 100 + down], abs=2)
    assert eye.width == pytest.approx(width, abs=3.5)
    at = np.zeros(1, np.float32)
    assert float(eye.lower.over(at)[0] - eye.upper.over(at)[0]) == pytest.approx(height, abs=3.5)


@given(st.integers(0, 2**32 - 1))
def test_in_a_photo_the_mesh_is_right(seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(90, 210, (200, 200, 3), np.uint8)
    eye = seen_by_the_mesh(100, 100, 56, 22)
    assert eye_as_seen(eye, pixels, 50) is None
