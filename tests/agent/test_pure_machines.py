"""The pure machines: one named example for each hazard, and Hypothesis over any order of events."""

from __future__ import annotations

import collections
import importlib.util
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.agent import (
    attempt,
    cost,
    device_health,
    memory_gate,
    outbox,
    pieces,
    pod,
    process,
    recycle,
    restarts,
    usage,
    zygote,
)


def _examples(load):
    parts = {
        "attempt": attempt,
        "pieces": pieces,
        "pod": pod,
        "process": process,
        "recycle": recycle,
        "restarts": restarts,
        "zygote": zygote,
        "outbox": outbox,
        "cost": cost,
        "device_health": device_health,
        "memory_gate": memory_gate,
        "usage": usage,
    }
    return [
        pytest.param(check, module, id=f"{name}-{check.__name__}")
        for name, module in parts.items()
        for check in load(name).EXAMPLES
    ]


def pytest_generate_tests(metafunc):
    if "example" in metafunc.fixturenames:
        metafunc.parametrize(("example", "machine"), _examples(load_checks))


def load_checks(name):
    path = Path(__file__).with_name(f"checks_{name}.py")
    spec = importlib.util.spec_from_file_location(f"agent_checks_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_example(example, machine):
    example(machine)


def _drawer(data):
    return lambda choices: data.draw(st.sampled_from(list(choices)))


CHECKS = {
    name: load_checks(name)
    for name in ("attempt", "pieces", "pod", "process", "recycle", "restarts", "outbox", "usage", "zygote")
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_life_of_an_attempt(data):
    CHECKS["attempt"].walk(attempt, _drawer(data))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_stream_of_pieces(data):
    CHECKS["pieces"].walk(pieces, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_life_of_a_pod(data):
    CHECKS["pod"].walk(pod, _drawer(data))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_life_of_a_process(data):
    CHECKS["process"].walk(process, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_history_of_restarts(data):
    CHECKS["restarts"].walk(restarts, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_wear_of_a_process(data):
    CHECKS["recycle"].walk(recycle, _drawer(data))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_life_of_a_template(data):
    CHECKS["zygote"].walk(zygote, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_life_of_a_meter(data):
    CHECKS["usage"].walk(usage, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_life_of_an_outbox(data):
    CHECKS["outbox"].walk(outbox, _drawer(data))


def test_the_walks_reach_every_state():
    """A property that explores mostly dead states proves little."""
    for machine, checks in ((attempt, CHECKS["attempt"]), (process, CHECKS["process"])):
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


DEVICE_CHECKS = {name: load_checks(name) for name in ("device_health", "memory_gate")}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_life_of_a_device(data):
    DEVICE_CHECKS["device_health"].walk(device_health, _drawer(data))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_life_of_a_memory_gate(data):
    DEVICE_CHECKS["memory_gate"].walk(memory_gate, _drawer(data))
