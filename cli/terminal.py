"""Consoles that print text as it is, without markup."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console


def plain_console(*, stderr: bool = False, file: TextIO | None = None, width: int | None = None) -> Console:
    return Console(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)
