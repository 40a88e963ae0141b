"""Yields in the store: who waits and what runs, and where a job stands that gave up its slot."""

from __future__ import annotations

from typing import Any

from stoker.control import store
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.queueing.yielding import Running, Waiting
from stoker.wire.messages import Refused, Save


def contest(bench: Any, now: float) -> Any:
    return bench.do(lambda conn: store.contest(conn, "echo", now))


def yielded(bench: Any, claimed: Any) -> Any:
    return bench.done(claimed, end="yielded", error="a job of class urgent waits", retryable=True)


def test_the_next_in_line_and_what_runs_are_found(bench: Any) -> None:
    assert contest(bench, 1.0) is None
    long = bench.running(10.0, priority=Priority.LOW)
    bench.put_endpoint("other")
    bench.submit(11.0, endpoint="other", priority=Priority.URGENT)
    assert contest(bench, 12.0) is None
    bench.submit(20.0)
    urgent, _ = bench.submit(30.0, priority=Priority.URGENT, start_by=50.0)
    bench.report(35.0, *(Save(long.job, 1, n, 0, b"%d" % n) for n in range(3)))
    found = contest(bench, 40.0)
    assert found.waiting == Waiting(urgent.id, Priority.URGENT, 10.0)
    assert found.running == (Running(long.job, 1, Priority.LOW, 30.0, saves=3),)


def test_what_backs_off_is_not_next(bench: Any) -> None:
    failed = bench.running(10.0)
    bench.report(11.0, Refused(failed.job, failed.attempt, "full"))
    assert contest(bench, 11.0) is None
    assert contest(bench, 12.0).waiting == Waiting(failed.job, Priority.NORMAL)


def test_a_job_that_yielded_goes_on_after_the_urgent_job_and_before_newer_ones(bench: Any) -> None:
    long = bench.running(10.0)
    urgent, _ = bench.submit(9_000.0, priority=Priority.URGENT)
    newer, _ = bench.submit(9_000.0)
    bench.report(9_010.0, Save(long.job, 1, 0, 0, b"half"), yielded(bench, long))
    order = [bench.claim(9_011.0, bench.slot())[0] for _ in range(3)]
    assert [one.job for one in order] == [urgent.id, long.job, newer.id]
    assert (order[1].attempt, order[1].saved.state) == (2, b"half")
    bench.report(9_020.0, *(bench.done(one) for one in (order[0], order[2])))
    later, _ = bench.submit(9_021.0, priority=Priority.URGENT)
    again = Running(long.job, 2, Priority.NORMAL, 19.0, yields=1, yielded_ago_s=20.0)
    assert contest(bench, 9_030.0).running == (again,)
    assert contest(bench, 9_030.0).waiting.job == later.id
