"""Broken copies of the rate limits: each is one plausible mistake that the tests of them must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.auth import rate_limits
from tests.mutants import mutant, survives

MUTANTS = {
    "a millisecond too long": ("[0] <= now_ms - WINDOW_MS", "[0] < now_ms - WINDOW_MS"),
    "a millisecond too short": ("[0] <= now_ms - WINDOW_MS", "[0] <= now_ms - WINDOW_MS + 1"),
    "one too many at once": (
        "crowded = at_once is not None and count.inside >= at_once",
        "crowded = False",
    ),
    "one too few at once": ("count.inside >= max(limit.at_once, grown)", "count.inside + 1 >= grown"),
    "workers raise nothing": ("self._workers(endpoint) * self._per_worker", "0"),
    "workers add": ("most = max(limit.window, grown)", "most = limit.window + grown"),
    "who leaves stays": ("self.count.inside -= 1", "pass"),
    "who leaves twice counts twice": ("if not self.left:", "if True:"),
    "endpoints share": ("key = (account, endpoint, operation)", 'key = (account, "", operation)'),
    "accounts share": ("key = (account, endpoint, operation)", 'key = ("", endpoint, operation)'),
    "operations share": ("key = (account, endpoint, operation)", 'key = (account, endpoint, "")'),
    "nothing is forgotten": ("del self._counts[key]", "pass"),
    "who is inside is forgotten": ("return not self.inside and not self.admitted_ms", "return True"),
    "a window keeps all": ("        count.slide(now_ms)\n        if", "        if"),
    "the wait is for the last": ("count.admitted_ms[-most]", "count.admitted_ms[-1]"),
    "the wait is for the first": ("count.admitted_ms[-most]", "count.admitted_ms[0]"),
    "told too early": ("seconds = -(-wait_ms // 1000)", "seconds = max(wait_ms // 1000, 1)"),
    "told too late": ("seconds = -(-wait_ms // 1000)", "seconds = wait_ms // 1000 + 2"),
}


RATES = Path(__file__).with_name("test_rate_limits.py")


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(RATES, mutant(rate_limits, old, new))


def test_the_original_lives() -> None:
    assert survives(RATES, rate_limits)
