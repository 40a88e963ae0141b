"""The pure parts of protocol workers: examples, any order of events, and mutants that must be noticed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants import mutant

from stoker.agent import protocol_machine


def _load_checks() -> ModuleType:
    path = Path(__file__).with_name("checks_machine.py")
    spec = importlib.util.spec_from_file_location("protocol_checks_machine", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


CHECKS: Any = _load_checks()


@pytest.mark.parametrize("example", CHECKS.EXAMPLES, ids=lambda check: check.__name__)
def test_example(example: Any) -> None:
    example(protocol_machine)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_life_of_a_program(data: Any) -> None:
    CHECKS.walk(protocol_machine, lambda choices: data.draw(st.sampled_from(list(choices))))


def test_many_random_lives() -> None:
    CHECKS.by_random_walks(protocol_machine)


@pytest.mark.parametrize(("old", "new"), [pytest.param(*rest, id=words) for words, *rest in CHECKS.MUTANTS])
def test_is_killed(old: str, new: str) -> None:
    module = mutant(protocol_machine, old, new)
    for check in CHECKS.ALL:
        try:
            check(module)
        except Exception:
            return
    pytest.fail("no check notices this mutant")
