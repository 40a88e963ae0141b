"""Data made with every job: frozen for the type checker, plain at run time, and otherwise alike."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from stoker.agent.jobs.attempts.events import Acked
from stoker.agent.jobs.reports.outbox import Outbox
from stoker.agent.worker_frames import Done
from stoker.control.http.calls.answers import Answer
from stoker.control.rules.submissions import Submission
from stoker.control.rules.types import Claimed, JobView, NewJob, Slot
from stoker.wire.messages import Assign, AttemptKey, FromAgent, FromControl, Outcome, Report

OF_A_JOB = [
    *(AttemptKey, Assign, FromAgent, FromControl, Outcome, Report),
    *(Answer, Claimed, JobView, NewJob, Slot, Submission),
    *(Acked, Done, Outbox),
]

WRITES = """
from stoker.wire.messages import AttemptKey

key = AttemptKey("j", 1)
key.attempt = 2
"""


@dataclass(frozen=True, slots=True)
class Frozen:
    job: str


def set_by_call(made: type) -> bool:
    return "__setattr__" in made.__init__.__code__.co_names  # type: ignore[misc]


@pytest.mark.parametrize("made", OF_A_JOB)
def test_what_every_job_makes_is_made_without_the_cost_of_freezing(made: type) -> None:
    assert set_by_call(Frozen)
    assert not set_by_call(made)


def test_it_is_compared_hashed_and_copied_by_its_fields() -> None:
    key = AttemptKey("j", 1)
    assert {key: 1}[AttemptKey("j", 1)] == 1
    assert key != AttemptKey("j", 2) == replace(key, attempt=2)
    assert copy.copy(key) == pickle.loads(pickle.dumps(key)) == key
    with pytest.raises(AttributeError):
        key.other = 1  # type: ignore[attr-defined]


@pytest.mark.slow
def test_the_type_checker_refuses_an_assignment(tmp_path: Path) -> None:
    """A process of its own: mypy lets the collector go through all that tests before have left."""
    (tmp_path / "writes.py").write_text(WRITES)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--cache-dir",
        str(tmp_path / "cache"),
        str(tmp_path / "writes.py"),
    ]
    environment = {**os.environ, "MYPYPATH": str(Path(__file__).parents[2] / "src")}
    checked = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 1, checked.stderr
    assert 'Property "attempt" defined in "AttemptKey" is read-only' in checked.stdout
