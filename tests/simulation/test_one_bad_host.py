"""Workers that start on every host but one: their endpoint's jobs end elsewhere, seed by seed; and two bugs
that such stories must show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEEDS = 40
"""All of them take three seconds."""

PLANTS = {
    "nothing is avoided": "Avoidance.note_failed = lambda *_: None",
    "nothing is withdrawn": "WorkerScaling._withdraw = lambda *_: set()",
}


def holding(seeds: range, plant: str = "") -> list[int]:
    """The seeds whose story holds, in a process whose hashes are fixed: each is the same every time."""
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from stoker.control.scheduling.avoidance import Avoidance
from stoker.control.scheduling.worker_scaling import WorkerScaling
from tests.simulation.one_bad_host import play
{plant}
print(*(seed for seed in {seeds!r} if play(seed).holds))
"""
    command = [sys.executable, "-P", "-c", code]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return [int(seed) for seed in done.stdout.split()]


@pytest.mark.slow
def test_jobs_end_on_other_hosts_and_the_bad_one_is_not_tried_for_each() -> None:
    assert holding(range(SEEDS)) == [*range(SEEDS)]


@pytest.mark.slow
@pytest.mark.parametrize("plant", PLANTS.values(), ids=PLANTS)
def test_a_planted_bug_is_found(plant: str) -> None:
    assert len(holding(range(10), plant)) < 10


@pytest.mark.slow
def test_more_of_them_hold() -> None:
    assert holding(range(SEEDS, 600)) == [*range(SEEDS, 600)]
