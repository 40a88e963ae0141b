"""Pictures of any size out of those that flux-mini draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stoker.models.text_to_image.mini.enlargement import DRAWN, enlarged, middle, nearest, with_sides

SIDES = st.integers(4, 24).map(lambda units: 64 * units)


def square() -> Image.Image:
    """A sky over a meadow, and a red object that touches the left edge."""
    pixels = np.full((256, 256, 3), (140, 200, 245), np.uint8)
    pixels[150:] = (140, 200, 96)
    pixels[100:180, :60] = (250, 0, 0)
    return Image.fromarray(pixels)


@given(SIDES, SIDES)
def test_a_picture_gets_the_size_that_was_asked_for(width: int, height: int) -> None:
    assert enlarged(square(), width, height).size == (width, height)


def test_a_square_of_its_own_size_stays_as_it_is() -> None:
    assert enlarged(square(), 256, 256).tobytes() == square().tobytes()


@pytest.mark.parametrize("size", [(1536, 256), (768, 512)])
def test_beside_it_the_background_goes_on_without_the_object(size: tuple[int, int]) -> None:
    found = np.asarray(enlarged(square(), *size)).astype(int)
    horizon = size[1] * 148 // 252
    for column in (0, -1):
        assert np.abs(found[: horizon - 8, column] - (140, 200, 245)).max() <= 2
        assert np.abs(found[horizon + 8 :, column] - (140, 200, 96)).max() <= 2
    assert (found[:, :, 0] > found[:, :, 1] + 60).sum() > 3000, "the object is still there"
    steps = np.abs(np.diff(found[: horizon // 4], axis=1)).max()
    assert steps <= 2, "no seam is seen"


def test_above_and_below_it_the_colours_of_the_ends_go_on() -> None:
    found = np.asarray(enlarged(square(), 256, 1024)).astype(int)
    assert np.abs(found[0] - (140, 200, 245)).max() <= 2
    assert np.abs(found[-1] - (140, 200, 96)).max() <= 2


@given(SIDES, SIDES)
def test_estimates_have_the_shape_of_the_picture(width: int, height: int) -> None:
    drawn = nearest(width, height)
    rows, columns = with_sides(torch.zeros(1, 16, drawn[1] // 16, drawn[0] // 16), width / height).shape[2:]
    assert columns / rows == pytest.approx(width / height, rel=0.04)
    assert columns >= drawn[0] // 16
    assert rows >= drawn[1] // 16


@given(SIDES, SIDES)
def test_the_nearest_of_the_drawn_shapes_is_taken(width: int, height: int) -> None:
    def part_kept(drawn: tuple[int, int]) -> float:
        ratio = width * drawn[1] / (height * drawn[0])
        return min(ratio, 1 / ratio)

    assert part_kept(nearest(width, height)) == max(map(part_kept, DRAWN))


@pytest.mark.parametrize(("width", "height"), [(384, 256), (1536, 1024)])
def test_a_drawn_shape_is_scaled_and_nothing_else(width: int, height: int) -> None:
    found = np.asarray(enlarged(square().resize((768, 512)), width, height)).astype(int)
    red = (found[:, :, 0] > found[:, :, 1] + 60).mean()
    assert red == pytest.approx(60 * 80 / 256**2, rel=0.1), "no background is added"


def test_of_a_wide_image_it_takes_the_middle() -> None:
    pixels = np.zeros((100, 300, 3), np.uint8)
    pixels[:, 100:200] = 255
    assert np.asarray(middle(Image.fromarray(pixels), (64, 64))).mean() > 250
