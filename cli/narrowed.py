"""The command line as far as a call needs it: making all 83 commands takes longer than most of them run."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import typer
from typer.main import get_command_name
from typer.models import CommandInfo


def narrowed(app: typer.Typer, typed: Sequence[str]) -> typer.Typer:
    """Returns the command or group that the first word names, with the options of all. Returns the whole
    command line for other words, whose help or error names all commands."""
    first = typed[0] if typed else ""
    groups = [group for group in app.registered_groups if group.name == first]
    commands = [command for command in app.registered_commands if _name(command) == first]
    if not groups and not commands and first != "--version":
        return app
    named = copy.copy(app)
    named.registered_groups, named.registered_commands = groups, commands
    return named


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))
