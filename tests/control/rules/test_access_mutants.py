"""Broken copies of the rights: each is one plausible mistake that the tests of them must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.rules import access
from tests.mutants import mutant, survives

ACCESS = Path(__file__).with_name("test_access.py")

MUTANTS = {
    "reading is writing": ('(right == "read" and not write)', 'right == "read"'),
    "writing is not reading": ('right == "write" or', '(right == "write" and write) or'),
    "read changes": ('(self.scope == "read" and not write)', 'self.scope == "read"'),
    "read is nothing": (' or (self.scope == "read" and not write)', ""),
    "a pod's key reads all": ('(self.scope == "read" and not write)', "not write"),
    "a pod's key starts it": ('f"{own}/stop"', 'f"{own}/start"'),
    "a pod's key is of any pod": ('f"/pods/{self.pod}"', 'path.removesuffix("/stop")'),
    "a pod's key changes it": ('(("GET", own),', '(("PATCH", own), ("GET", own),'),
    "any key is a pod's": ('self.scope == "pod" and (method', "(method"),
    "a pod's key forgets its pod": ('"pod": self.pod}', '"pod": ""}'),
    "the star is not asked": ('self.endpoints.get("*", "none")', '"none"'),
    "the star is all": ('self.endpoints.get("*", "none")', '"write"'),
    "readers keep keys": ('return self.scope == "all"\n', 'return self.scope != "restricted"\n'),
    "restricted is all": (
        'if self.scope != "restricted":\n            return self.scope == "all" or',
        'if True:\n            return self.scope != "read" or',
    ),
    "management is an endpoint": ("        if endpoint:\n", "        if True:\n"),
    "an endpoint is management": ("        if endpoint:\n", "        if False:\n"),
    "rights are lost": ('"endpoints": dict(self.endpoints)', '"endpoints": {}'),
    "management is lost": ('"management": self.management', '"management": "none"'),
    "old keys may nothing": ('scope: Scope = "all"', 'scope: Scope = "restricted"'),
}


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(ACCESS, mutant(access, old, new))


def test_the_original_lives() -> None:
    assert survives(ACCESS, access)
