"""The model of yielding: its slots do all the work that counts, and yielding costs little of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import yielding

HOUR = 3600.0


def test_without_yielding_no_work_is_lost_and_nobody_yields() -> None:
    found = yielding.Model([yielding.Slot()], 2.0, False, Random(1)).play(HOUR)
    assert found.yields == 0
    assert HOUR - found.urgent - 20 < found.worked_s <= HOUR + 1, "but the rest of a second after each job"


def test_urgent_jobs_end_in_time_more_often_for_a_fiftieth_of_the_work() -> None:
    found = yielding.compare(1, 2.0, 2, 2.0)
    assert found["in_time_with"] > 3 * found["in_time_without"]
    assert 0.97 < found["work_ratio"] < 1.0
    assert 0 < found["yields_with"] <= found["urgent_with"]


def test_what_is_kept_has_the_figures_of_both_numbers_of_slots() -> None:
    kept = json.loads((yielding.HERE / "results" / "yielding.json").read_text())
    assert [found["slots"] for found in kept["figures"]] == [1, 4]
    assert all(found["in_time_ratio"] > 1 > found["work_ratio"] for found in kept["figures"])
