"""Deadlines in the store: a job that misses one is not claimed, and the sweep ends it as TIMED_OUT."""

from __future__ import annotations

from typing import Any

from stoker.control import store
from stoker.control.rules.job_states import JobState


def swept(bench: Any, now: float, limit: int = 10) -> list[str]:
    return [one.job for one in bench.do(lambda conn: store.end_late(conn, now, limit))]


def test_a_job_that_was_not_started_by_then_is_timed_out(bench: Any) -> None:
    late, _ = bench.submit(10.0, start_by=15.0, webhook="https://caller.example/hook")
    other, _ = bench.submit(11.0)
    assert swept(bench, 14.9) == []
    assert [one.job for one in bench.claim(15.0, bench.slot(free=2))] == [other.id], "not a moment later"
    (changed,) = bench.do(lambda conn: store.end_late(conn, 15.0, 10))
    view = bench.view(15.0, late.id)
    assert changed.view == view
    assert (view.state, view.delay_ms) == (JobState.TIMED_OUT, 5_000)
    assert view.error == "the job did not start within the 5 s of policy.startBy, and was ended"
    assert bench.counters() == {"failed": 1}
    assert bench.rows("SELECT COUNT(*) FROM webhooks") == [(1,)]
    assert swept(bench, 99.0) == []


def test_a_job_that_was_started_meets_start_by_for_good(bench: Any) -> None:
    claimed = bench.running(10.0, start_by=15.0)
    bench.report(11.0, bench.lost(claimed))
    assert swept(bench, 20.0) == []
    assert len(bench.claim(20.0, bench.slot())) == 1


def test_a_running_job_is_stopped_at_its_deadline(bench: Any) -> None:
    claimed = bench.running(10.0, start_by=12.0, deadline=30.0)
    assert swept(bench, 29.9) == []
    (changed,) = bench.do(lambda conn: store.end_late(conn, 30.0, 10))
    assert changed.cancel == ("n1", bench.key(claimed))
    view = bench.view(30.0, claimed.job)
    assert (view.state, view.error) == (
        JobState.TIMED_OUT,
        "the job did not end within the 20 s of policy.deadline, and was stopped",
    )
    bench.report(31.0, bench.done(claimed, output=b"1"))
    assert bench.view(31.0, claimed.job).state is JobState.TIMED_OUT, "the first end wins"


def test_a_job_that_ended_in_time_is_left(bench: Any) -> None:
    claimed = bench.running(10.0, deadline=30.0)
    bench.report(20.0, bench.done(claimed, output=b"1"))
    assert swept(bench, 40.0) == []
    assert bench.view(40.0, claimed.job).state is JobState.COMPLETED


def test_a_sweep_ends_the_most_overdue_first_and_no_more_than_its_limit(bench: Any) -> None:
    jobs = [bench.submit(10.0, deadline=20.0 - n)[0].id for n in range(3)]
    assert sorted(swept(bench, 30.0, 2)) == jobs[1:]
    assert swept(bench, 30.0, 2) == jobs[:1]


def test_a_job_whose_ttl_has_passed_is_left_to_expiry(bench: Any) -> None:
    bench.submit(10.0, deadline=20.0, expires_at=20.0)
    assert swept(bench, 20.0) == []
    assert len(bench.expire(20.0)) == 1


def test_a_retry_has_a_deadline_that_lies_ahead_and_no_other(bench: Any) -> None:
    missed, _ = bench.submit(10.0, deadline=20.0)
    assert swept(bench, 20.0) == [missed.id]
    assert bench.retry(21.0, missed.id)[1] is not None
    assert swept(bench, 99.0) == []
    bench.cancel(99.0, missed.id)
    failed = bench.running(100.0, id="failed", start_by=105.0, deadline=120.0)
    bench.report(101.0, bench.done(failed, end="failed"))
    assert bench.retry(110.0, "failed")[1] is not None
    assert swept(bench, 119.0) == []
    assert swept(bench, 120.0) == ["failed"]
