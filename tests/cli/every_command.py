"""All commands of the command line, and the examples that their help shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from stoker.cli.main import app


def commands(group: Any = None, *path: str) -> Iterator[tuple[str, Any]]:
    """Each command that is not a group: its words, and what click knows of it."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield " ".join((*path, name)), command


COMMANDS: dict[str, Any] = dict(commands())
EXAMPLES = {
    command_name: [line for line in (command.epilog or "").split("\n\n") if line.startswith("stoker ")]
    for command_name, command in COMMANDS.items()
}
