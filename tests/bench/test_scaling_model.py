"""The model that scaling policies are compared with: its figures are those that a small case must have."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
import scaling

OURS = ("ours, QUEUE_DELAY 4", "ours, REQUEST_COUNT 1", "ours, REQUEST_COUNT 4")


def burst(count: int, took: float) -> list[tuple[float, float]]:
    return [(1.0, took)] * count


def test_one_job_costs_its_start_its_work_and_the_idleness_after_it() -> None:
    found = scaling.Run(burst(1, 8.0), scaling.ours("REQUEST_COUNT", 1), cold=20.0).play()
    assert (found["delay_mean_s"], found["worker_seconds"], found["starts"]) == (20.0, 33, 1)


def test_six_jobs_by_count_from_cold_are_over_in_time() -> None:
    """Three workers would do them in 26 s; all six have one of their own."""
    run = scaling.Run(burst(6, 8.0), scaling.ours("REQUEST_COUNT", 1), cold=10.0)
    found = run.play()
    assert run.now - 1.0 <= 52
    assert found["most_workers"] == 6


def test_the_policies_stand_where_they_must() -> None:
    """Always the maximum waits least and always one costs least; ours lies between them, and costs less than
    those that know nothing of starts."""
    traffic = scaling.traffic()
    for name in ("steady", "trace"):
        found = scaling.compare(traffic[name], cold=20.0)
        full, one = found["always max"], found["always one"]
        for ours in OURS:
            assert found[ours]["jobs"] == len(traffic[name])
            assert found[ours]["most_workers"] <= scaling.MOST
            assert full["delay_mean_s"] <= found[ours]["delay_mean_s"] < one["delay_mean_s"]
            assert one["worker_seconds"] < found[ours]["worker_seconds"] < full["worker_seconds"]
            assert found[ours]["worker_seconds"] < found["reactive"]["worker_seconds"]
        assert found[OURS[0]]["worker_seconds"] < found["literal"]["worker_seconds"]


def test_what_is_kept_has_every_traffic_and_policy() -> None:
    kept = json.loads((scaling.HERE / "results" / "scaling.json").read_text())
    assert kept["traffic"].keys() == scaling.traffic().keys()
    for rows in kept["traffic"].values():
        assert rows.keys() == scaling.policies().keys()
