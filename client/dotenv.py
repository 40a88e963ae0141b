"""Reads `.env` files: `NAME=value` lines, comments, optional `export`, optional quotes. No expansion."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = ".env"


def parse(text: str) -> dict[str, str]:
    """The variables. Lines that are not `NAME=value`, such as comments, are ignored."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if not equals or not name.strip().isidentifier():
            continue
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        elif " #" in value:
            value = value.partition(" #")[0].rstrip()
        values[name.strip()] = value
    return values


def lookup(name: str, environ: Mapping[str, str], folder: Path) -> str | None:
    """The variable from the environment, else from `.env` in `folder`. An empty value counts as not set."""
    if found := environ.get(name):
        return found
    try:
        text = (folder / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return parse(text).get(name) or None
