"""The pure modules: one named example for each hazard, and Hypothesis over any order of events."""

from __future__ import annotations

import collections
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agent.checked_modules import CHECKED, load_checks
from tests.profiles import examples


def pytest_generate_tests(metafunc):
    if "example" in metafunc.fixturenames:
        examples = [
            pytest.param(check, module, id=f"{name}-{check.__name__}")
            for name, module in CHECKED.items()
            for check in CHECKS[name].EXAMPLES
        ]
        metafunc.parametrize(("example", "machine"), examples)


def test_example(example, machine):
    example(machine)


CHECKS = {name: load_checks(name) for name in CHECKED}


@pytest.mark.parametrize("name", [name for name, checks in CHECKS.items() if hasattr(checks, "walk")])
@settings(max_examples=examples(150))
@given(data=st.data())
def test_any_life(name, data):
    CHECKS[name].walk(CHECKED[name], lambda choices: data.draw(st.sampled_from(list(choices))))


@pytest.mark.parametrize("name", ["jobs.attempts.attempt_machine", "workers.lifecycle.process_machine"])
def test_the_walks_reach_every_state(name):
    """A property that explores mostly dead states proves little."""
    machine, checks = CHECKED[name], CHECKS[name]
    seen = collections.Counter()
    step = machine.step

    def counted(state, event, *args, step=step, seen=seen):
        seen[type(state).__name__] += 1
        return step(state, event, *args)

    machine.step = counted
    try:
        for seed in range(300):
            checks.walk(machine, Random(seed).choice)
    finally:
        machine.step = step
    total = sum(seen.values())
    states = {kind.__name__ for kind in machine.State.__args__}
    assert seen.keys() == states
    assert all(count > total / 100 for count in seen.values()), seen
