"""The stages of a cold start: what is counted for which, and that all of it is counted."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.models.cold_start import ColdStart, stage


class Clock:
    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def test_time_is_counted_for_the_innermost_stage() -> None:
    clock = Clock()
    with ColdStart(clock) as start:
        clock.now_s += 1
        with stage("build"):
            clock.now_s += 2
            with stage("read"):
                clock.now_s += 4
            clock.now_s += 8
        with stage("read"):
            clock.now_s += 16
    assert start.stages_s == {"other": 1, "build": 10, "read": 20}
    assert (start.total_s, str(start)) == (31, "31.00 s: other 1.00, build 10.00, read 20.00")


def test_a_stage_that_fails_is_counted_and_nothing_is_timed_afterwards() -> None:
    clock = Clock()

    def fails() -> None:
        with stage("build"):
            clock.now_s += 2
            raise RuntimeError

    start = ColdStart(clock)
    with pytest.raises(RuntimeError), start:
        fails()
    with stage("read"):
        clock.now_s += 4
    assert start.stages_s == {"other": 0, "build": 2}


def test_a_worker_times_its_set_up(model: Any) -> None:
    stages = model.cold_start_s
    assert set(stages) == {"other", "verify", "build", "read", "to device", "warm up", "previews"}
    assert stages["build"] > 0.01
    assert stages["previews"] > 0.01
