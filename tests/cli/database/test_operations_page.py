"""The commands of docs/operations about the database, typed as they stand there, page after page."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.database.conftest import Operator
from tests.documentation.pages import Page

FOLDER = Path(__file__).parents[3] / "docs" / "operations"
PAGES = ("first-key", "upgrade", "back-up", "restore", "rotate")


def commands(page: str) -> list[list[str]]:
    """Those of the blocks that name no service: what is done at one is in the story with processes."""
    blocks = [block.text for block in Page.read(FOLDER / f"{page}.md").blocks("sh")]
    lines = [line for block in blocks if "STOKER_URL" not in block for line in block.splitlines()]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("operators", ["sqlite"], indirect=True)
def test_each_command_of_the_pages_works(operator: Operator) -> None:
    operator.open().close()
    for page in PAGES:
        typed = commands(page)
        assert typed, page
        for program, *arguments in typed:
            assert program == "stoker"
            operator.works(*arguments)
