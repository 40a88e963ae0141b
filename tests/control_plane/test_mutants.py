"""Broken copies of the pure modules: each is one plausible mistake that the tests beside it must see."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from mutants import load, mutant

from stoker.control import autoscale, placement

MUTANTS = {
    "autoscale": {
        "never rounds up": ("-(-jobs * len(slots) // sum(slots))", "jobs * len(slots) // sum(slots)"),
        "what workers told is ignored": ("sample.slots or (sample.concurrency,)", "(sample.concurrency,)"),
        "the smallest worker counts for all": ("* len(slots) // sum(slots))", "// min(slots))"),
        "running jobs are no demand": ("sample.queued + sample.in_progress", "sample.queued + 0"),
        "no maximum": ("min(wanted, policy.workers_max)", "wanted"),
        "no minimum when idle": ("- tired, demand, policy.workers_min)", "- tired, demand)"),
        "stops what is needed": ("max(sample.workers - tired, demand,", "max(sample.workers - tired,"),
        "stops one tick early": ("idle >= policy.idle_timeout_s", "idle >= policy.idle_timeout_s - 0.2"),
        "low priority lets workers go": ("if sample.low_priority_queued:", "if False:"),
        "too many stay": ("if sample.workers > policy.workers_max:", "if False:"),
    },
    "placement": {
        "an ill device is used": ("if device.uuid not in room.ill and ", "if "),
        "no word of the ill": ("    if not ill:", "    if True:"),
        "ill devices are called taken": ("well = any(device.uuid not in room.ill", "well = any(True"),
        "a GPU is shared": ('CPU_WORKERS if device.kind == "cpu" else 1', "CPU_WORKERS"),
        "a full device takes one more": ("< capacity(device)", "<= capacity(device)"),
        "a CPU before a GPU": ('(device.kind == "cpu", sum', '(device.kind != "cpu", sum'),
        "the fullest node first": ("sum(room.held.values())", "-sum(room.held.values())"),
        "the cold worker first": ("load, -worker.last_used", "load, worker.last_used"),
        "shares before spreading": ("return worker.busy + given[name], load", "return 0, load"),
        "what is given does not count": ("return worker.busy + given[name]", "return worker.busy"),
        "what runs does not count": ("return worker.busy + given[name]", "return given[name]"),
        "the room decides": ("return worker.busy + given[name]", "return -worker.slot.free"),
        "warm before an idle node": ("load, -worker.last_used", "-worker.last_used, load"),
        "large nodes seem busy": ("jobs[node] / max(nodes[node].devices, 1)", "jobs[node]"),
        "a node fills up": ("jobs[worker.slot.node] += 1", "pass"),
        "one slot for two jobs": ("< worker.slot.free:", "<= worker.slot.free:"),
        "more than is asked for": ("len(order) < most", "len(order) <= most"),
        "the first to come wins": (", -worker.last_used, name\n", ", -worker.last_used, str(given)\n"),
        "the shortest idle stop": ("(-workers[w], w)", "(workers[w], w)"),
    },
}
MODULES = {"autoscale": autoscale, "placement": placement}


def survives(name: str, module: types.ModuleType) -> bool:
    """Whether every test of this module passes with the given one in its place."""
    path = Path(__file__).with_name(f"test_{name}.py")
    tests = load(f"tests_of_{name}", path, path.read_text())
    for word in vars(module):
        if hasattr(tests, word) and not word.startswith("_"):
            setattr(tests, word, getattr(module, word))
    try:
        for word, test in list(vars(tests).items()):
            if word.startswith("test_"):
                test()
    except Exception:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        pytest.param(name, old, new, id=f"{name}: {words}")
        for name, mutants in MUTANTS.items()
        for words, (old, new) in mutants.items()
    ],
)
def test_a_mutant_is_killed(name: str, old: str, new: str) -> None:
    assert not survives(name, mutant(MODULES[name], old, new))


@pytest.mark.parametrize("name", MODULES)
def test_the_original_lives(name: str) -> None:
    assert survives(name, MODULES[name])
