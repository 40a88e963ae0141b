"""Lists: whatever the width of the terminal, each word of a table stands there whole."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from stoker.cli.consoles import GAP, fit, plain_console, print_table

TEXTS = st.text(st.sampled_from("ab1-[]:é漢"), min_size=1, max_size=40)
CELLS = st.lists(TEXTS, max_size=6).map(" ".join)
ROWS = st.integers(1, 5).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=4)
)


@given(ROWS, st.integers(10, 200))
def test_a_column_is_never_narrower_than_its_longest_word(rows: list[list[str]], room: int) -> None:
    widths = fit(rows, room)
    for row in rows:
        for cell, width in zip(row, widths, strict=True):
            assert all(cell_len(word) <= width for word in cell.split())
    fits = sum(widths) + GAP * (len(widths) - 1) <= room
    tight = all(
        width == max((cell_len(word) for cell in column for word in cell.split()), default=0)
        for width, column in zip(widths, zip(*rows, strict=True), strict=True)
    )
    assert fits or tight


@given(ROWS, st.integers(10, 120))
def test_each_word_is_printed_whole(rows: list[list[str]], room: int) -> None:
    output = io.StringIO()
    print_table(plain_console(file=output, width=room), ["name"] * len(rows[0]), rows)
    printed = output.getvalue().split()
    for row in rows:
        for word in " ".join(row).split():
            assert word in printed


def test_what_fits_is_not_folded() -> None:
    output = io.StringIO()
    print_table(plain_console(file=output, width=30), (), [("data, logs", "two words"), ("x", "[b] :fire:")])
    assert [line.rstrip() for line in output.getvalue().splitlines()] == [
        "data, logs  two words",
        "x           [b] :fire:",
    ]
