"""The terminal that commands print to: words come out as they are, whatever brackets and colons they hold."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console


def plain_console(*, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    return Console(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)
