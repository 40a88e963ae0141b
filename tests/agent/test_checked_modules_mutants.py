"""Mutants of the pure modules: each is one plausible mistake, and the checks must see it."""

from __future__ import annotations

import pytest

from tests.agent.checked_modules import CHECKED, load_checks
from tests.mutants import mutant

CHECKS = {name: load_checks(name) for name in CHECKED}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}-{description}")
        for name, checks in CHECKS.items()
        for description, old, new in checks.MUTANTS
    ],
)
def test_is_killed(name, old, new):
    module = mutant(CHECKED[name], old, new)
    for check in CHECKS[name].ALL:
        try:
            check(module)
        except Exception:
            return
    pytest.fail("no check notices this mutant")


@pytest.mark.parametrize("name", CHECKED)
def test_the_original_lives(name):
    for check in CHECKS[name].ALL:
        check(CHECKED[name])
