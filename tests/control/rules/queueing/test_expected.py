"""What is expected of a waiting job: as if its endpoint's slots were served one after another."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.queueing.expected import SAMPLES, Pace, expected_run_s, expected_wait_s

slots = st.integers(1, 6)
ages = st.lists(st.integers(0, 40).map(float), max_size=6)


def served(ahead: int, pace: Pace) -> float:
    """The start of the job behind `ahead` others, slot by slot."""
    assert pace.job_s is not None
    free = [pace.job_s - ran if ran < pace.job_s else pace.job_s for ran in pace.running_for]
    free += [0.0] * (pace.slots - len(free))
    heapq.heapify(free)
    for _ in range(ahead):
        heapq.heapreplace(free, free[0] + pace.job_s)
    return free[0]


@given(st.integers(0, 50), slots, ages, st.integers(1, 30).map(float))
def test_the_wait_is_that_of_slots_served_in_turn(
    ahead: int, number: int, running: list[float], job_s: float
) -> None:
    pace = Pace(number, tuple(running[:number]), job_s, job_s, SAMPLES)
    assert expected_wait_s(ahead, pace) == served(ahead, pace)


@given(st.integers(0, 50), slots, ages, st.integers(1, 30).map(float))
def test_nobody_starts_before_the_job_ahead(
    ahead: int, number: int, running: list[float], job_s: float
) -> None:
    pace = Pace(number, tuple(running), job_s, job_s, SAMPLES)
    first, second = expected_wait_s(ahead, pace), expected_wait_s(ahead + 1, pace)
    assert first is not None
    assert second is not None
    assert first <= second


def test_what_is_not_known_is_not_expected() -> None:
    pace = Pace(1, (), 5.0, 4.0, SAMPLES)
    assert (expected_wait_s(0, pace), expected_wait_s(2, pace), expected_run_s(pace)) == (0.0, 10.0, 4.0)
    assert expected_wait_s(None, pace) is None
    assert expected_wait_s(0, Pace(0, (), 5.0, 4.0, SAMPLES)) is None
    assert expected_wait_s(0, Pace(1, (), None, None, 0)) is None
    few = Pace(1, (), 5.0, 4.0, SAMPLES - 1)
    assert (expected_wait_s(0, few), expected_run_s(few)) == (None, None)
