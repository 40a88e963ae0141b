"""Broken copies of the pages of kept chunks: each is one plausible mistake that their tests must see."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control.rules.nodes import kept_pages
from tests.mutants import mutant, survives

TESTS = Path(__file__).with_name("test_kept_pages.py")

MUTANTS = {
    "anybody gets them": ("if upto is None:", "if False:"),
    "what the save does not cover": ("<= upto:", "<= upto + 1:"),
    "no chunk at all": ("ask.first < ask.upto", "ask.first <= ask.upto"),
    "gaps are closed": ("chunk.n != first + count or ", ""),
    "objects go with values": ("chunk.is_object or size > PAGE_BYTES", "size > PAGE_BYTES"),
    "values go with objects": ("        if chunk.is_object:\n            break\n", ""),
    "pages have no end": ("or size > PAGE_BYTES", "or False"),
    "pages are less than full": ("size > PAGE_BYTES", "size >= PAGE_BYTES"),
    "many chunks": ("found[:PAGE_CHUNKS]", "found"),
}


@pytest.mark.parametrize(
    ("old", "new"), [pytest.param(*pair, id=description) for description, pair in MUTANTS.items()]
)
def test_a_mutant_is_killed(old: str, new: str) -> None:
    assert not survives(TESTS, mutant(kept_pages, old, new))


def test_the_original_lives() -> None:
    assert survives(TESTS, kept_pages)
