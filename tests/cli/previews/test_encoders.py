"""Pictures in each way of drawing: what was encoded is decoded again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.cli.previews.blocks import blocks
from stoker.cli.previews.inline_images import PIECE, iterm, kitty
from stoker.cli.previews.pictures import Cells, Pixels, fit
from stoker.cli.previews.sixel import sixel
from tests.cli.previews import decoders


@st.composite
def pictures(draw: st.DrawFn) -> Pixels:
    width, height = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    size = width * height * 3
    return Pixels(width, height, draw(st.binary(min_size=size, max_size=size)))


def noise(width: int, height: int) -> Pixels:
    """Pixels that no compression makes smaller."""
    value, found = 1, bytearray()
    for _ in range(width * height * 3):
        value = value * 1_103_515_245 + 12_345 & 0x7FFFFFFF
        found.append(value >> 16 & 255)
    return Pixels(width, height, bytes(found))


@given(pictures(), st.integers(1, 99), st.integers(1, 99))
def test_kitty(pixels: Pixels, columns: int, rows: int) -> None:
    keys, rgb = decoders.kitty(kitty(pixels, Cells(columns, rows)))
    assert rgb == pixels.rgb
    assert (keys["s"], keys["v"]) == (str(pixels.width), str(pixels.height))
    assert (keys["c"], keys["r"]) == (str(columns), str(rows))


def test_kitty_in_several_pieces() -> None:
    pixels = noise(128, 128)
    text = kitty(pixels, Cells(32, 16))
    assert len(text) > 3 * PIECE
    assert decoders.kitty(text)[1] == pixels.rgb


@given(st.binary(min_size=1))
def test_iterm(file: bytes) -> None:
    keys, data = decoders.iterm(iterm(file, Cells(32, 16)))
    assert data == file
    assert (keys["size"], keys["width"], keys["height"], keys["inline"]) == (str(len(file)), "32", "16", "1")


@given(pictures())
def test_sixel(pixels: Pixels) -> None:
    rows = decoders.sixel(sixel(pixels))
    assert len(rows) == pixels.height
    for row, drawn in enumerate(rows):
        for column, percents in enumerate(drawn):
            at = 3 * (row * pixels.width + column)
            wanted = pixels.rgb[at : at + 3]
            assert all(
                abs(255 * one / 100 - value) <= 26 for one, value in zip(percents, wanted, strict=True)
            )


@given(pictures(), st.booleans())
def test_blocks(pixels: Pixels, true_colour: bool) -> None:
    grid = decoders.Grid(blocks(pixels, true_colour=true_colour))
    found = grid.blocks()
    assert set(found) == {
        (row, column) for row in range(pixels.height // 2) for column in range(pixels.width)
    }
    for (row, column), codes in found.items():
        for half, code in enumerate(codes):
            at = 3 * ((2 * row + half) * pixels.width + column)
            wanted = pixels.rgb[at : at + 3]
            assert all(
                abs(one - value) <= (0 if true_colour else 48)
                for one, value in zip(_colour(code), wanted, strict=True)
            )


def _colour(code: str) -> tuple[int, ...]:
    kind, *values = map(int, code.split(";"))
    if kind == 2:
        return tuple(values)
    number = values[0] - 16
    levels = (number // 36, number // 6 % 6, number % 6)
    return tuple(55 + 40 * level if level else 0 for level in levels)


@given(st.integers(1, 1024), st.integers(1, 1024), st.integers(1, 200), st.integers(1, 60))
def test_a_picture_fits(width: int, height: int, columns: int, rows: int) -> None:
    cells = fit(width, height, Cells(columns, rows))
    assert 1 <= cells.columns <= columns
    assert 1 <= cells.rows <= rows
    assert fit(128, 128, Cells(48, 16)) == Cells(32, 16)
    assert fit(1536, 256, Cells(48, 16)) == Cells(48, 4)
