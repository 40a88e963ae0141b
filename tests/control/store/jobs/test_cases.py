"""Cases in the store: kept where the endpoint says so, gone with the record, and no object is left."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control import store
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.rules.types import EndpointVersion
from stoker.wire.messages import Ref, Save
from tests.control.store.conftest import Bench

NOTED = b'{"python":"3.12.3"}'


def case_of(bench: Bench, job: str) -> store.StoredCase | None:
    return store.case_of(bench.store.writer, "echo", job)


def failed(bench: Bench, claimed: Any, **fields: Any) -> Any:
    return bench.done(claimed, end="failed", error="ValueError: no", case=NOTED, **fields)


def ref(claimed: Any) -> Ref:
    return Ref(f"echo/{claimed.job}/{claimed.attempt}/save-0", 70_000, "digest")


@pytest.mark.parametrize("end", ["failed", "timed_out"])
def test_a_job_that_fails_has_a_case(bench: Bench, end: str) -> None:
    bench.put_endpoint(keep_cases=True)
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end=end, error="ValueError: no", case=NOTED))
    found = case_of(bench, claimed.job)
    assert found is not None
    assert (found.attempt, found.worker, found.noted, found.input) == (1, "w1", NOTED, b'{"x":1}')
    assert (found.saved_upto, found.timeout_ms) == (None, 600_000)


def test_no_other_endpoint_keeps_one_and_no_other_end(bench: Bench) -> None:
    first = bench.running(10.0)
    bench.report(11.0, failed(bench, first))
    bench.put_endpoint(keep_cases=True)
    second = bench.running(12.0)
    bench.report(13.0, bench.done(second))
    third = bench.running(14.0)
    bench.report(15.0, bench.done(third, end="cancelled"))
    assert [case_of(bench, one.job) for one in (first, second, third)] == [None] * 3


def test_what_the_worker_ran_is_read_with_it(bench: Bench) -> None:
    bench.put_endpoint(keep_cases=True, run=EndpointVersion("caption.py:handler", env={"TOKEN": "s3cr3t"}))
    bench.do(
        lambda conn: conn.run(
            "INSERT INTO given_workers (worker, node, endpoint, version, slots, devices)"
            " VALUES ('w1', 'n1', 'echo', 2, 1, '[]')",
            {},
        )
    )
    claimed = bench.running(10.0)
    bench.report(11.0, failed(bench, claimed))
    found = case_of(bench, claimed.job)
    assert found is not None
    assert found.run is not None
    assert (found.version, found.run.handler, found.node) == (2, "caption.py:handler", "n1")


def test_the_last_save_is_the_cases_own_to_the_end_of_the_record(bench: Bench) -> None:
    bench.put_endpoint(keep_cases=True)
    claimed = bench.running(10.0)
    bench.report(11.0, Save(claimed.job, 1, 0, 0, b"", ref(claimed)), failed(bench, claimed))
    found = case_of(bench, claimed.job)
    assert found is not None
    assert (found.saved_upto, found.saved_ref) == (0, ref(claimed))
    assert bench.rows("SELECT count(*) FROM saves") == [(0,)]
    assert bench.due_orphans() == ()
    bench.expire(1e9)
    assert bench.rows("SELECT count(*) FROM cases") == [(0,)]
    assert ref(claimed).key in bench.due_orphans()


def test_reports_that_come_again_leave_the_object_of_the_case(bench: Bench) -> None:
    bench.put_endpoint(keep_cases=True)
    claimed = bench.running(10.0)
    reports = Save(claimed.job, 1, 0, 0, b"", ref(claimed)), failed(bench, claimed)
    for _ in range(2):
        bench.report(11.0, *reports)
        assert bench.due_orphans() == ()
    unknown = Ref(f"echo/{claimed.job}/1/save-1", 70_000, "digest")
    bench.report(12.0, Save(claimed.job, 1, 1, 0, b"", unknown))
    assert bench.due_orphans() == (unknown.key,)


def test_the_save_of_an_earlier_attempt_outlives_that_attempts_objects(bench: Bench) -> None:
    bench.put_endpoint(keep_cases=True)
    first = bench.running(10.0)
    bench.report(11.0, Save(first.job, 1, 0, 0, b"", ref(first)), bench.lost(first))
    (second,) = bench.claim(100.0, bench.slot())
    done = bench.report(101.0, failed(bench, second))
    assert [change.losers for change in done.changed] == [()]
    found = case_of(bench, first.job)
    assert found is not None
    assert found.saved_ref == ref(first)


def test_a_retry_begins_anew_and_drops_the_case(bench: Bench) -> None:
    bench.put_endpoint(keep_cases=True)
    claimed = bench.running(10.0)
    bench.report(11.0, Save(claimed.job, 1, 0, 0, b"", ref(claimed)), failed(bench, claimed))
    bench.retry(12.0, claimed.job)
    assert case_of(bench, claimed.job) is None
    assert ref(claimed).key in bench.due_orphans()
    (again,) = bench.claim(13.0, bench.slot())
    assert again.saved is None


def test_of_a_completed_job_the_case_is_what_its_rows_say(bench: Bench) -> None:
    ran = bench.put_endpoint(keep_cases=True, run=EndpointVersion("caption.py:handler")).version
    made = {"w1": ("n1", AssignedWorker("echo", ran, 1, ()))}
    bench.do(lambda conn: store.give_workers(conn, made))
    claimed = bench.running(10.0)
    assert store.case_of_completed(bench.store.writer, "echo", claimed.job) is None
    bench.report(11.0, bench.done(claimed))
    assert case_of(bench, claimed.job) is None
    found = store.case_of_completed(bench.store.writer, "echo", claimed.job)
    assert found is not None
    assert (found.attempt, found.worker, found.input, found.version) == (1, "w1", b'{"x":1}', ran)
    assert found.run is not None
    assert found.run.handler == "caption.py:handler"
    assert bench.rows("SELECT count(*) FROM cases") == [(0,)]
