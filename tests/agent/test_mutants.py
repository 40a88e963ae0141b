"""Mutants of the pure modules: each is one plausible mistake, and the checks must see it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants import mutant

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

MODULES = {
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


def load_checks(name):
    path = Path(__file__).with_name(f"checks_{name}.py")
    spec = importlib.util.spec_from_file_location(f"agent_checks_of_mutants_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECKS = {name: load_checks(name) for name in MODULES}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}-{words}")
        for name, checks in CHECKS.items()
        for words, old, new in checks.MUTANTS
    ],
)
def test_is_killed(name, old, new):
    module = mutant(MODULES[name], old, new)
    for check in CHECKS[name].ALL:
        try:
            check(module)
        except Exception:
            return
    pytest.fail("no check notices this mutant")


@pytest.mark.parametrize("name", MODULES)
def test_the_original_lives(name):
    for check in CHECKS[name].ALL:
        check(MODULES[name])
