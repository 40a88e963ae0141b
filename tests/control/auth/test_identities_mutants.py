"""Broken copies of the rules of sign-in: each is one plausible mistake that their tests must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.auth import identities
from tests.mutants import mutant, survives

MUTANTS = {
    "the weakest right": ("in reversed(list(ROLES.items()))", "in ROLES.items()"),
    "write makes keys": ('"write": Access("restricted", "write", {"*": "read"})', '"write": Access("all")'),
    "write submits jobs": ('{"*": "read"}', '{"*": "write"}'),
    "a group without a right": ("if group in rights}", "}"),
    "a fetch for each stranger": ("return wanted and now - known.tried_at >= TRY_EVERY_S", "return wanted"),
    "never fetched again": (
        "key not in known.ids or now - known.fetched_at >= FRESH_S",
        "key not in known.ids",
    ),
    "new keys are not looked for": (
        "key not in known.ids or now - known.fetched_at >= FRESH_S",
        "now - known.fetched_at >= FRESH_S",
    ),
    "keys for ever": ("return now - known.fetched_at < STALE_S", "return True"),
    "a text as letters": ("return frozenset(found.split())", "return frozenset(found)"),
    "keys in the clear": ('parts.scheme == "https" or (', 'parts.scheme in ("http", "https") or ('),
    "a subject with lines": ("or not subject.isprintable()", "or False"),
}
RULES = Path(__file__).with_name("test_identities.py")


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(RULES, mutant(identities, old, new))


def test_the_original_lives() -> None:
    assert survives(RULES, identities)
