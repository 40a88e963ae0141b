"""Lists as output: a table at a terminal, lines with tabs in a pipe, the records as JSON with `--json`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from stoker.cli.terminal import json_text, print_text


def show(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    records: object,
    *,
    as_json: bool,
    footer: Sequence[str] = (),
    right: Sequence[str] = (),
) -> None:
    """Prints a table. `records` are printed with `--json`. `footer` is shown at terminals; `right`:
    right-aligned columns."""
    if as_json:
        print_json(records)
    elif sys.stdout.isatty():
        from stoker.cli.consoles import plain_console, print_table

        print_table(plain_console(), columns, rows, footer=footer, right=right)
    else:
        for row in rows:
            print_text("\t".join(row))


def print_json(value: object) -> None:
    print_text(json_text(value, indent=sys.stdout.isatty()))
