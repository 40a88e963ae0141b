"""Broken copies of the decision: each is one plausible mistake that its tests must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.resources.declared import decision
from tests.mutants import mutant, survives

TESTS = Path(__file__).with_name("test_declared.py")

MUTANTS = {
    "callers' endpoints go": ('if one.origin != "api"', "if True"),
    "those of the file stay": ('if one.origin != "api"', "if False"),
    "all are new": ("if one.id not in before)", "if True)"),
    "all are changed": ("and _differ(one, before[one.id])", ""),
    "callers' changes are lost": ("before is None or not declared.hosted", "True"),
    "every endpoint is hosted": ("before is None or not declared.hosted", "before is None"),
    "the file sets nothing": ("settings.set_by_file.get(declared.id, ())", "()"),
    "locks are not looked at": ("if after.run != one.run", "if False"),
    "the store's numbers are a change": ("version=before.version, created_at=before.created_at", "version=1"),
    "deletions are not named": ('*(f"{one} (deleted)" for one in self.deleted)', ""),
}


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(TESTS, mutant(decision, old, new))


def test_the_original_lives() -> None:
    assert survives(TESTS, decision)
