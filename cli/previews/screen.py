"""The place of the preview on a console: rows above the progress bar, drawn again with each preview.

    rows that are kept free
    …                            <── the picture, drawn from here
    step ━━━━━━━━ 3/28 0:00:02   <── the cursor, before and after

A line that is printed goes between the two, so the next preview gets a place of its own.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from collections.abc import Mapping
from typing import IO, Any

from rich.console import Console

from stoker.cli.previews import pictures
from stoker.cli.previews.blocks import blocks
from stoker.cli.previews.choice import Choice, Wanted, choose
from stoker.cli.previews.inline_images import iterm, kitty
from stoker.cli.previews.pictures import Cells, Pixels
from stoker.cli.previews.sixel import sixel

MOST = Cells(48, 16)
"""The cells of a preview."""

BELOW = 2
"""Rows of the terminal that are left for the bar and what is above."""

SIXEL_CELL = 8
"""Rows of pixels for each row of the terminal, of which many have more."""

NEEDS_PILLOW = (Wanted.KITTY, Wanted.SIXEL, Wanted.BLOCKS)


def screen_of(console: Console, wanted: Wanted, environ: Mapping[str, str]) -> Screen | None:
    """Returns the place of previews, or None where none are drawn. Says why not, unless nobody asked or the
    terminal cannot."""
    # Not `console.is_terminal`, which FORCE_COLOR makes true in a pipe, too.
    choice = choose(wanted, environ, is_terminal=console.file.isatty() and console.is_terminal)
    if choice.way is Wanted.OFF:
        if wanted not in (Wanted.AUTO, Wanted.OFF):
            console.print(f"no previews: {choice.reason}", soft_wrap=True)
        return None
    if choice.way in NEEDS_PILLOW and not pictures.can_decode():
        console.print(
            "no previews: Pillow, which draws them in this terminal, is not installed; pip install pillow, or"
            " say --preview off",
            soft_wrap=True,
        )
        return None
    return Screen(console, choice)


def _pixels_of_row(terminal: IO[str]) -> int:
    """Returns how high a row of the terminal is; 0 where the terminal does not say."""
    try:
        told = fcntl.ioctl(terminal.fileno(), termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return 0
    rows, _, _, height = struct.unpack("4H", told)
    return int(height // rows) if rows else 0


class Screen:
    def __init__(self, console: Console, choice: Choice) -> None:
        self._console = console
        self._choice = choice
        self._rows = 0

    def moved(self) -> None:
        """Notes that a line was printed below the picture."""
        self._rows = 0

    def show(self, output: Mapping[str, Any]) -> None:
        """Draws the preview in a handler's output, if it has one."""
        if (file := pictures.file_of(output)) is None or (drawn := self._drawn(file)) is None:
            return
        text, rows = drawn
        if rows > self._rows:
            self._console.print("\n" * (rows - 1))
            self._rows = rows
        self._console.file.write(f"\x1b7\r\x1b[{self._rows}A{text}\x1b8")
        self._console.file.flush()

    def _drawn(self, file: bytes) -> tuple[str, int] | None:
        """Returns what draws a file, and its rows."""
        size = self._console.size
        most = Cells(min(MOST.columns, size.width), max(1, min(MOST.rows, size.height - BELOW)))
        if self._choice.way is Wanted.ITERM:
            return iterm(file, most), most.rows
        pixels = pictures.decoded(file)
        return None if pixels is None else self._of_pixels(pixels, most)

    def _of_pixels(self, pixels: Pixels, most: Cells) -> tuple[str, int]:
        cells = pictures.fit(pixels.width, pixels.height, most)
        if self._choice.way is Wanted.KITTY:
            return kitty(pixels, cells), cells.rows
        if self._choice.way is Wanted.SIXEL:
            small = pictures.resized(pixels, cells.columns * SIXEL_CELL // 2, cells.rows * SIXEL_CELL)
            return sixel(small), -(-small.height // max(SIXEL_CELL, _pixels_of_row(self._console.file)))
        small = pictures.resized(pixels, cells.columns, 2 * cells.rows)
        return blocks(small, true_colour=self._choice.true_colour), cells.rows
