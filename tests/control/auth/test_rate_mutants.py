"""Broken copies of the rate limits: each is one plausible mistake that the tests of them must see."""

from __future__ import annotations

import itertools
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mutants import examples_last, first_failure, load, mutant

from stoker.control.auth import rate_limits

MUTANTS = {
    "a millisecond too long": ("_COUNTED_MS = WINDOW_MS - 1", "_COUNTED_MS = WINDOW_MS"),
    "a millisecond too short": ("_COUNTED_MS = WINDOW_MS - 1", "_COUNTED_MS = WINDOW_MS - 2"),
    "one too many at once": (
        "crowded = at_once is not None and count.inside >= at_once",
        "crowded = False",
    ),
    "one too few at once": ("count.inside >= max(limit.at_once, grown)", "count.inside + 1 >= grown"),
    "workers raise nothing": ("self._workers(endpoint) * self._per_worker", "0"),
    "workers add": (
        "count.rate.limit = max(limit.window, grown)",
        "count.rate.limit = limit.window + grown",
    ),
    "who leaves stays": ("self.count.inside -= 1", "pass"),
    "who leaves twice counts twice": ("if not self.left:", "if True:"),
    "endpoints share": ("key = (account, endpoint, operation)", 'key = (account, "", operation)'),
    "accounts share": ("key = (account, endpoint, operation)", 'key = ("", endpoint, operation)'),
    "operations share": ("key = (account, endpoint, operation)", 'key = (account, endpoint, "")'),
    "nothing is forgotten": ("del self._counts[key]", "pass"),
    "who is inside is forgotten": ("return not self.inside and not self.bucket.items", "return True"),
    "a window keeps all": ("        bucket.leak(now_ms)\n        item", "        item"),
    "told too early": ("seconds = -(-wait_ms // 1000)", "seconds = max(wait_ms // 1000, 1)"),
    "told too late": ("seconds = -(-wait_ms // 1000)", "seconds = wait_ms // 1000 + 2"),
}


def cases(test: Any) -> Iterator[dict[str, Any]]:
    """What pytest would call the test with."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    for rows in itertools.product(*(mark.args[1] for mark in marks)):
        arguments: dict[str, Any] = {}
        for mark, row in zip(marks, rows, strict=True):
            names = mark.args[0]
            arguments |= {names: row} if isinstance(names, str) else dict(zip(names, row, strict=True))
        yield arguments


def survives(module: types.ModuleType, file: str = "test_rates.py") -> bool:
    """Whether every test of this file passes with the given module in its place."""
    path = Path(__file__).with_name(file)
    with first_failure():
        tests = load("tests_of_mutants", path, path.read_text())
        for word in vars(module):
            if hasattr(tests, word) and not word.startswith("_"):
                setattr(tests, word, getattr(module, word))
        try:
            for test in examples_last(tests):
                for arguments in cases(test):
                    test(**arguments)
        except (Exception, pytest.fail.Exception):
            return False
    return True


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(mutant(rate_limits, old, new))


def test_the_original_lives() -> None:
    assert survives(rate_limits)
