"""The place of a waiting job, counted from the front of its queue, is the number of claims before its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.control import store
from stoker.control.rules.queueing.order import place
from stoker.control.rules.queueing.priorities import Priority
from stoker.wire.messages import Refused

NOW = 20_000.0
MOST = 100
arrivals = st.lists(
    st.tuples(st.integers(0, 12_000).map(float), st.sampled_from(Priority), st.booleans()), max_size=8
)


def ahead_of(bench: Any, job: str, limit: int = MOST) -> int | None:
    return bench.do(lambda conn: store.ahead_of(conn, "echo", job, NOW, limit))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(came=arrivals)
def test_jobs_are_claimed_in_the_order_of_their_places(new_bench: Any, came: list[Any]) -> None:
    bench = new_bench()
    for at, priority, tried in sorted(came):
        bench.submit(at, priority=priority)
        if tried:
            for claimed in bench.claim(at, bench.slot(free=20)):
                bench.report(at, Refused(claimed.job, claimed.attempt, "full", at_once=True))
    waiting = [job for (job,) in bench.rows("SELECT id FROM jobs")]
    places = {job: ahead_of(bench, job) for job in waiting}
    order = [bench.claim(NOW, bench.slot())[0].job for _ in waiting]
    assert {job: n for n, job in enumerate(order)} == places
    bench.store.close()


def test_a_place_is_counted_up_to_a_limit_and_without_what_backs_off(bench: Any) -> None:
    backs_off = bench.running(NOW - 30)
    jobs = [bench.submit(NOW - 20 + at)[0].id for at in range(3)]
    bench.report(NOW + 50, bench.lost(backs_off))
    assert [ahead_of(bench, job, 2) for job in jobs] == [0, 1, 2]
    assert ahead_of(bench, jobs[2], 1) is None
    assert ahead_of(bench, backs_off.job) is None, "it backs off"
    assert ahead_of(bench, "nobody") is None
    bench.put_endpoint("other")
    bench.submit(NOW - 100, endpoint="other")
    assert ahead_of(bench, jobs[0]) == 0
    assert bench.claim(NOW, bench.slot())[0].job == jobs[0]
    assert ahead_of(bench, jobs[0]) is None, "it runs"


def test_a_place_that_no_job_has_yet_is_behind_all_that_came(bench: Any) -> None:
    bench.submit(NOW - 10)
    bench.submit(NOW - 9, priority=Priority.LOW)

    def ahead(priority: Priority, limit: int = MOST) -> int | None:
        at = place(priority, NOW)
        return bench.do(lambda conn: store.ahead_of_new(conn, "echo", at, NOW, limit))

    assert [ahead(one) for one in (Priority.URGENT, Priority.NORMAL, Priority.LOW)] == [0, 1, 2]
    assert ahead(Priority.LOW, 1) is None
