"""The times of the jobs that ended last."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.metrics.recent import ENDPOINTS, KEPT, LOOKED_BACK_S, RecentEnds, quantiles
from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView


def ended(endpoint: str, state: JobState = JobState.COMPLETED, execution_ms: int = 10) -> JobView:
    return JobView("j", endpoint, state, 0.0, delay_ms=5, execution_ms=execution_ms)


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_quantiles_are_times_that_so_many_do_not_exceed(times: list[int]) -> None:
    found = quantiles(times)
    assert found is not None
    for part, bound in ((50, found.p50), (95, found.p95)):
        assert bound in times
        assert 100 * sum(time <= bound for time in times) >= part * len(times)
        assert 100 * sum(time < bound for time in times) < part * len(times)


def test_only_the_last_hour_counts_and_the_rate_is_over_the_time_since_the_start() -> None:
    now = [1000.0]
    recent = RecentEnds(lambda: now[0])
    recent.add(ended("a"))
    now[0] += 60
    recent.add(ended("a", JobState.FAILED, 30))
    found = recent.of("a")
    assert (found.since, found.jobs, found.failed, found.per_minute) == (1000.0, 2, 1, 2.0)
    assert found.execution is not None
    assert (found.execution.p50, found.execution.p95) == (10, 30)
    now[0] += LOOKED_BACK_S
    assert (recent.of("a").jobs, recent.of("a").since) == (1, now[0] - LOOKED_BACK_S)
    now[0] += 1
    assert (recent.of("a").jobs, recent.of("a").delay, recent.of("b").jobs) == (0, None, 0)


def test_memory_is_bounded_by_jobs_and_by_endpoints() -> None:
    now = [0.0]
    recent = RecentEnds(lambda: now[0])
    for number in range(KEPT + 100):
        now[0] = float(number)
        recent.add(ended("busy"))
    assert (recent.of("busy").jobs, recent.of("busy").since) == (KEPT, 100.0)
    for number in range(ENDPOINTS):
        recent.add(ended(str(number)))
    assert (recent.of("busy").jobs, recent.of("0").jobs) == (0, 1)
