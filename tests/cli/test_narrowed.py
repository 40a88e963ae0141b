"""The command line narrowed to what was typed: it does for these words what the whole one does."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from stoker.cli.main import app, main
from stoker.cli.narrowed import narrowed
from tests.cli.every_command import COMMANDS, commands

GROUPS = sorted({name.split()[0] for name in COMMANDS})


def shape(command: Any) -> list[Any]:
    """What a command line can be told: names, options, and help."""
    return [command.name, command.help, command.epilog, [(one.opts, one.type.name) for one in command.params]]


@pytest.mark.parametrize("first", GROUPS)
def test_one_group_is_made_and_is_the_same(first: str) -> None:
    whole, only = typer.main.get_command(app), typer.main.get_command(narrowed(app, [first, "more"]))
    assert shape(only) == shape(whole)
    assert list(only.commands) == [first]  # type: ignore[attr-defined]
    of_whole = {name: shape(one) for name, one in commands(whole) if name.split()[0] == first}
    assert {name: shape(one) for name, one in commands(only)} == of_whole


@pytest.mark.parametrize("typed", [[], ["--help"], ["jbo", "list"], ["--show-completion"]])
def test_all_commands_are_there_for_what_names_none(typed: list[str]) -> None:
    assert narrowed(app, typed) is app


def test_a_version_makes_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert typer.main.get_command(narrowed(app, ["--version"])).commands == {}  # type: ignore[attr-defined]
    with pytest.raises(SystemExit):
        main(["jbo"])
    assert "No such command 'jbo'. Did you mean 'job'?" in " ".join(capsys.readouterr().err.split())
