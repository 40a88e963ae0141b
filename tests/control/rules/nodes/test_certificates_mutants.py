"""Broken copies of the rules of certificates: each is one plausible mistake that their tests must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.rules.nodes import certificates
from tests.mutants import mutant, survives

MUTANTS = {
    "of any credential": ("if shown.credential != credential:", "if False:"),
    "for ever": ("if shown.ends_at <= now:", "if shown.ends_at < now:"),
    "of join tokens, too": (
        "if credential is None:\n        return None",
        "if credential is None:\n        pass",
    ),
    "longer than the authority": ("end = min(now + life_s, authority_ends_at)", "end = now + life_s"),
    "no margin for clocks": ("return now - SKEW_S, end", "return now, end"),
    "a session too long": ("if end <= now)", "if end < now)"),
}
RULES = Path(__file__).with_name("test_certificates.py")


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(RULES, mutant(certificates, old, new))


def test_the_original_lives() -> None:
    assert survives(RULES, certificates)
