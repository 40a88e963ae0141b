"""For all tests of the command line, Typer makes the tree of commands once, and not for each command."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import typer


@pytest.fixture(autouse=True, scope="session")
def _one_tree_of_commands() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield
