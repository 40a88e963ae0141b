"""The tests that the page on security names beside its promises are there."""

from __future__ import annotations

import re

from tests.documentation.command_lines import ROOT

NAMED = re.compile(r"`(tests/[\w/]+\.py)`|`(test_\w+)`")
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def _named(page: str) -> list[tuple[str, str]]:
    """Returns the path and the function of each test of the page. A function without a path belongs to the
    last path before the function, in the same row or paragraph."""
    found = []
    for part in re.split(r"\n\n|\n(?=\|)", page):
        path = ""
        for match in NAMED.finditer(part):
            path = match[1] or path
            found.append((path, match[2] or ""))
    return found


def _is_there(path: str, function: str) -> bool:
    file = ROOT / path
    found = bool(path) and file.is_file()
    return found and (not function or f"def {function}(" in file.read_text(encoding="utf-8"))


def test_each_test_that_the_page_names_is_there() -> None:
    wrong = [f"{path}: {function}" for path, function in _named(PAGE) if not _is_there(path, function)]
    assert not wrong, "docs/security.md names tests that are not there"


def test_each_promise_in_a_table_has_its_test() -> None:
    tables = [part.splitlines() for part in PAGE.split("\n\n") if part.startswith("|")]
    promises = [row for head, _, *rows in tables if head.endswith("| its test |") for row in rows]
    assert len(promises) > 30
    assert [row for row in promises if "`tests/" not in row.rpartition(" | ")[2]] == []
