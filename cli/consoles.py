"""Consoles of commands: they print text as it is, without markup. Commands that print plain lines import
neither this module nor rich.

No word of a table is cut or broken, so that an id can be copied from a terminal of any width. If a table is
wider than the terminal, its widest columns wrap between words; a row that still does not fit continues in the
next line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, TextIO, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from stoker.cli.terminal import shown

Row: TypeAlias = Sequence[str]

GAP = 2
"""Spaces between two columns."""

_PLAIN: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}


class _PlainConsole(Console):
    """A console that writes out the control characters of text; styles and movements of the cursor are the
    console's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)


class _LastingConsole(_PlainConsole):
    """A console for a process that others depend on: when the output is closed or its disk is full, the text
    is lost, and the process goes on."""

    def print(self, *objects: Any, **options: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: the file is closed in this process
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Prints nothing more. Otherwise the process would exit."""
        self.quiet = True


def plain_console(*, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    return _PlainConsole(stderr=stderr, file=file, width=width, **_PLAIN)


def lasting_console(*, file: TextIO | None = None) -> Console:
    return _LastingConsole(file=file, **_PLAIN)


def print_table(
    console: Console, columns: Row, rows: Sequence[Row], *, footer: Row = (), right: Sequence[str] = ()
) -> None:
    """Prints a table. Without `columns`, the table has no heading, and the first cell of each row is bold."""
    heading = columns or [""] * (len(rows[0]) if rows else 0)
    widths = fit([heading, *rows, *([footer] if footer else [])], console.width)
    table = Table(
        box=None,
        padding=(0, GAP, 0, 0),
        pad_edge=False,
        show_header=bool(columns),
        show_footer=bool(footer),
    )
    for index, (name, width) in enumerate(zip(heading, widths, strict=True)):
        settings: dict[str, Any] = {"justify": "right" if name in right else "left"}
        if not columns and index == 0:
            settings["style"] = "bold"
        foot = Text(footer[index]) if footer else ""
        table.add_column(Text(name), foot, width=width, overflow="fold", **settings)
    for row in rows:
        table.add_row(*map(Text, row))
    terminal, console.width = console.width, max(console.width, sum(widths) + GAP * len(widths))
    console.print(table)
    console.width = terminal  # rich truncates rows wider than its console


def fit(rows: Sequence[Row], room: int) -> list[int]:
    """Returns the width of each column: the widest are narrowed first, none below its longest word."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    least = [max(_longest_word(text) for text in column) for column in columns]
    over = sum(widths) + GAP * (len(widths) - 1) - room
    while over > 0:
        loose = [index for index, width in enumerate(widths) if width > least[index]]
        if not loose:
            break
        widest = max(loose, key=lambda index: widths[index])
        widths[widest] -= 1
        over -= 1
    return widths


def _longest_word(text: str) -> int:
    return max((cell_len(word) for word in text.split()), default=0)
