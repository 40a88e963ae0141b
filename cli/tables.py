"""Lists as output: a table at a terminal, tab-separated lines in a pipe, the records as JSON with `--json`.

No word is cut or broken, so that an id can be copied from a terminal of any width. If a table is wider than
the terminal, its widest columns wrap between words; a row that still does not fit continues in the next line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stoker.cli.terminal import json_text, plain_console, print_text

Row: TypeAlias = Sequence[str]

GAP = 2
"""Spaces between two columns."""


def show(
    columns: Row,
    rows: Sequence[Row],
    records: object,
    *,
    as_json: bool,
    footer: Row = (),
    right: Sequence[str] = (),
) -> None:
    """`records` are printed with `--json`. `footer` is shown at terminals; `right`: right-aligned columns."""
    if as_json:
        print_json(records)
    elif sys.stdout.isatty():
        print_table(plain_console(), columns, rows, footer=footer, right=right)
    else:
        for row in rows:
            print_text("\t".join(row))


def print_json(value: object) -> None:
    print_text(json_text(value, indent=sys.stdout.isatty()))


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
