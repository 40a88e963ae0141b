"""The pure parts of protocol workers: examples, any order of events, and mutants that must be noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.agent.workers.sdk_programs import protocol_machine
from tests.load_module import load_module
from tests.mutants import mutant
from tests.profiles import examples

CHECKS = load_module("checks_protocol_machine", Path(__file__).with_name("checks_protocol_machine.py"))


@pytest.mark.parametrize("example", CHECKS.EXAMPLES, ids=lambda check: check.__name__)
def test_example(example: Any) -> None:
    example(protocol_machine)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_any_life_of_a_program(data: Any) -> None:
    CHECKS.walk(protocol_machine, lambda choices: data.draw(st.sampled_from(list(choices))))


def test_many_random_lives() -> None:
    CHECKS.by_random_walks(protocol_machine)


@pytest.mark.parametrize(("old", "new"), [pytest.param(*rest, id=name) for name, *rest in CHECKS.MUTANTS])
def test_is_killed(old: str, new: str) -> None:
    module = mutant(protocol_machine, old, new)
    for check in CHECKS.ALL:
        try:
            check(module)
        except Exception:
            return
    pytest.fail("no check notices this mutant")
