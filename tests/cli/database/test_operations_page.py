"""The commands of docs/operations.md about the database, typed as they stand there, section after section."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.database.conftest import Operator
from tests.documentation.pages import Page

PAGE = Page.read(Path(__file__).parents[3] / "docs" / "operations.md")
SECTIONS = ("Install", "Upgrade", "Back up", "Restore", "Rotate the secret key", "Rotate the webhook secret")

ELSEWHERE = (["pip", "install"], ["stoker", "control"])
"""The store is there as control made it; nothing is installed."""


def commands(section: str) -> list[list[str]]:
    text = re.search(rf"^## {section}\n(.*?)(?=^## )", PAGE.text, re.MULTILINE | re.DOTALL)
    assert text is not None, f"the page has no section {section}"
    lines = [
        line for block in re.findall(r"```sh\n(.*?)```", text[1], re.DOTALL) for line in block.splitlines()
    ]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("operators", ["sqlite"], indirect=True)
def test_each_command_of_the_page_works(operator: Operator) -> None:
    operator.open().close()
    for section in SECTIONS:
        typed = commands(section)
        assert typed, section
        for program, *arguments in typed:
            if [program, arguments[0]] in ELSEWHERE:
                continue
            assert program == "stoker"
            operator.works(*arguments)
