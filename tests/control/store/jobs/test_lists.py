"""What is read of many jobs: pages of records, counts that are bounded, samples, logs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.streams import AttemptLog
from stoker.control.rules.types import Counted, Listing, Page
from stoker.control.store.billing import samples as store_samples
from stoker.control.store.jobs import lists as store_lists
from stoker.control.store.jobs import orders as store_orders
from stoker.control.store.jobs import places as store_places
from stoker.wire.messages import Ref


def page(bench: Any, now: float = 50.0, account: str = "default", **wanted: Any) -> Page:
    return store.list_jobs(bench.store.writer, account, "echo", Listing(**wanted), now)


def ids(found: Page) -> list[str]:
    return [view.id for view in found.views]


# ---- pages ------------------------------------------------------------------------------------------


def test_records_come_newest_first_without_their_outputs(bench: Any) -> None:
    done = bench.running(10.0)
    bench.report(11.0, bench.done(done, output=b"1", output_ref=Ref("k", 1, "s")))
    failed = bench.running(12.0)
    bench.report(13.0, bench.done(failed, end="failed", error="no", output=b"1"))
    bench.submit(14.0)
    newest, second, oldest = page(bench).views
    assert [newest.id, second.id, oldest.id] == ["job-3", "job-2", "job-1"]
    assert (oldest.state, oldest.output, oldest.output_ref) == (JobState.COMPLETED, None, None)
    assert (second.error, second.output, second.created_at) == ("no", None, 12.0)
    assert newest == bench.view(50.0, newest.id)


def test_pages_go_on_where_the_last_one_ended(bench: Any) -> None:
    for at in range(10, 15):
        bench.submit(float(at))
    first = page(bench, limit=2)
    second = page(bench, limit=2, before=first.cursor)
    third = page(bench, limit=2, before=second.cursor)
    assert [ids(one) for one in (first, second, third)] == [["job-5", "job-4"], ["job-3", "job-2"], ["job-1"]]
    assert third.cursor is None
    assert page(bench, limit=5).cursor is None
    assert page(bench, limit=4).cursor is not None


def test_deletions_and_new_jobs_between_pages_move_nothing(bench: Any) -> None:
    for at in range(10, 16):
        bench.submit(float(at), expires_at=20.0 if at in (12, 13) else 1e5)
    first = page(bench, 15.0, limit=2)
    bench.expire(20.0)
    bench.submit(20.0)
    assert ids(first) == ["job-6", "job-5"]
    assert ids(page(bench, 20.0, limit=2, before=first.cursor)) == ["job-2", "job-1"]


def test_a_page_shows_the_wanted_state_and_time_only(bench: Any) -> None:
    for at in (10.0, 20.0, 30.0):
        bench.submit(at)
    bench.cancel(31.0, "job-2")
    assert ids(page(bench, state=JobState.CANCELLED)) == ["job-2"]
    assert ids(page(bench, state=JobState.IN_QUEUE)) == ["job-3", "job-1"]
    assert ids(page(bench, since=20.0)) == ["job-3", "job-2"]
    assert ids(page(bench, since=20.0, state=JobState.IN_QUEUE)) == ["job-3"]


def test_a_page_shows_no_other_accounts_and_no_expired_jobs(bench: Any) -> None:
    bench.put_endpoint("other")
    bench.submit(10.0, endpoint="other")
    bench.submit(10.0, expires_at=20.0)
    bench.submit(10.0)
    assert ids(page(bench, 20.0)) == ["job-3"]
    assert ids(page(bench, 20.0, account="someone")) == []


def test_a_page_follows_a_job_by_its_id(bench: Any) -> None:
    for at in (10.0, 20.0, 30.0):
        bench.submit(at)

    def number(job: str, account: str = store.DEFAULT_ACCOUNT, now: float = 30.0) -> int | None:
        found: int | None = bench.do(lambda conn: store.number_of(conn, account, "echo", job, now))
        return found

    assert ids(page(bench, before=number("job-2"))) == ["job-1"]
    assert (number("job-9"), number("job-2", "someone"), number("job-2", now=1e12)) == (None, None, None)


def test_a_page_reads_so_many_rows_and_no_more(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lists, "SCANNED", 4)
    for at in range(10, 20):
        bench.submit(float(at))
    bench.cancel(20.0, "job-2")
    found, before = [], None
    for _ in range(3):
        one = page(bench, state=JobState.CANCELLED, before=before)
        found.append(ids(one))
        before = one.cursor
    assert found == [[], [], ["job-2"]]
    assert before is None


def test_a_page_stops_far_below_the_wanted_time(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.submit(10.0)
    bench.submit(10.0 + store_lists.LATE_S)
    bench.submit(9.0 + store_lists.LATE_S)  # it was stored late, as its input was long
    bench.submit(5_000.0)
    monkeypatch.setattr(store_lists, "SCANNED", 3)
    first = page(bench, 6_000.0, since=10.0 + store_lists.LATE_S)
    assert (ids(first), first.cursor) == (["job-4", "job-2"], 2)
    assert page(bench, 6_000.0, since=4_000.0 + store_lists.LATE_S).cursor is None


# ---- searches ---------------------------------------------------------------------------------------


def test_jobs_are_found_by_a_text_of_their_error_or_reason(bench: Any) -> None:
    for error in ("CUDA out of memory", "100% of the disk", "no"):
        bench.report(11.0, bench.done(bench.running(10.0), end="failed", error=error))
    done = bench.running(12.0)
    bench.report(13.0, bench.done(done, output=b'"out of memory"'))
    bench.submit(14.0)
    bench.cancel(15.0, "job-5")
    assert ids(page(bench, error="Out of Memory")) == ["job-1"]
    assert ids(page(bench, error="100%")) == ["job-2"]
    assert ids(page(bench, error="1%k")) == []
    assert ids(page(bench, error="o")) == ["job-3", "job-2", "job-1"]
    assert ids(page(bench, error="o", state=JobState.FAILED, since=10.0, limit=1)) == ["job-3"]


ASSIGNED = AssignedWorker("echo", 1, 1, ())


def test_jobs_are_found_by_their_worker_and_by_its_node_once_it_is_gone(bench: Any) -> None:
    bench.node("n2", 1.0)
    bench.report(11.0, bench.done(bench.running(10.0)))
    bench.submit(12.0)
    bench.claim(12.0, bench.slot("n2", worker="w2"))
    bench.submit(13.0)
    assert ids(page(bench, worker="w1")) == ["job-1"]
    assert ids(page(bench, worker="w2")) == ["job-2"]
    assert ids(page(bench, worker="w")) == []
    assert ids(page(bench, node="n2")) == ["job-2"]
    assert ids(page(bench, node="n1")) == []
    bench.do(lambda conn: store.give_workers(conn, {"w1": ("n1", ASSIGNED)}))
    bench.do(lambda conn: store.take_workers(conn, ["w1"], 20.0))
    assert ids(page(bench, node="n1")) == ["job-1"]


def test_a_page_that_begins_in_the_past_does_not_read_what_came_later(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lists, "SCANNED", 2)
    for at in range(10):
        bench.submit(10.0 + at * store_lists.STORED_S)
    until = 10.0 + 3 * store_lists.STORED_S
    found = page(bench, 4_000.0, until=until)
    assert (ids(found), found.cursor) == (["job-4"], 4)
    assert ids(page(bench, 4_000.0, until=until, before=found.cursor)) == ["job-3", "job-2"]
    assert ids(page(bench, 4_000.0, until=9.0)) == []


LATE = st.floats(0, store_lists.STORED_S)


@given(st.lists(st.tuples(st.floats(0, 5e3), LATE, st.integers(1, 9)), max_size=30), st.floats(0, 5e3))
def test_nothing_that_is_old_enough_is_skipped(jobs: list[tuple[float, float, int]], until: float) -> None:
    """Jobs are numbered as they are stored, at most STORED_S after they were created, with gaps."""
    number, rows = 0, list[tuple[int, float]]()
    for stored, late, gap in sorted(jobs):
        rows.append((number := number + gap, stored - late))
    looks = 0

    def newest_below(before: int) -> tuple[int, float] | None:
        nonlocal looks
        looks += 1
        return max((row for row in rows if row[0] < before), default=None)

    begins = store_lists.skipped(newest_below, 1 << 62, until + store_lists.STORED_S)
    assert all(created > until for seq, created in rows if seq >= begins)
    assert looks <= 2 + (9 * 30).bit_length()


# ---- counts -----------------------------------------------------------------------------------------


def count(bench: Any, limit: int) -> Counted:
    return store.count_jobs(bench.store.writer, "echo", limit)


def test_jobs_are_counted_up_to_a_limit(bench: Any) -> None:
    assert count(bench, 10) == Counted(0, 0, True)
    for at in range(10, 13):
        bench.submit(float(at), priority=Priority.LOW if at == 12 else Priority.NORMAL)
    bench.claim(13.0, bench.slot(free=1))
    bench.running(14.0)
    assert count(bench, 2) == Counted(2, 2, True)
    assert count(bench, 1) == Counted(1, 1, False)
    bench.put_endpoint("other")
    bench.submit(15.0, endpoint="other")
    assert count(bench, 10) == Counted(2, 2, True)


def test_queue_sample(bench: Any) -> None:
    bench.running(10.0)
    bench.submit(11.0)
    bench.submit(12.0)
    bench.submit(13.0, priority=Priority.LOW)
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.low, sample.in_progress, sample.waiting_since) == (2, 1, 1, 11.0)


def test_the_sample_tells_urgent_jobs_from_normal_ones(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, priority in enumerate([Priority.URGENT, Priority.NORMAL, Priority.LOW, Priority.URGENT], 10):
        bench.submit(float(at), priority=priority)
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.urgent, sample.low) == (3, 2, 1)
    monkeypatch.setattr(store_samples, "SAMPLED", 2)
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.urgent, sample.low) == (2, 1, 1), "the oldest are counted"


def test_the_sample_knows_the_longest_wait_but_of_low_priority(bench: Any) -> None:
    bench.submit(10.0, priority=Priority.LOW)
    assert store.queue_sample(bench.store.writer)["echo"].waiting_since is None
    bench.submit(11.0)
    bench.submit(12.0)
    assert store.queue_sample(bench.store.writer)["echo"].waiting_since == 11.0
    bench.purge(12.0, bench.newest())
    assert store.queue_sample(bench.store.writer) == {}


def test_the_sample_counts_what_starts_workers_behind_any_number_of_low_jobs(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_samples, "SAMPLED", 2)
    for at in range(10, 14):
        bench.submit(float(at), priority=Priority.LOW)
    bench.submit(5_000.0)
    assert store.claim(bench.store.writer, [bench.slot()], 5_001.0)[0].job == "job-1", "it stands behind them"
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.low, sample.waiting_since) == (1, 2, 5_000.0)


def test_the_longest_wait_is_seen_behind_urgent_jobs(bench: Any) -> None:
    bench.submit(10.0)
    for at in (11.0, 12.0):
        bench.submit(at, priority=Priority.URGENT)
    assert store.queue_sample(bench.store.writer)["echo"].waiting_since == 10.0
    assert store.waiting_since(bench.store.writer, "echo") == 10.0


def test_the_sample_is_bounded(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_samples, "SAMPLED", 2)
    for at in range(10, 14):
        bench.submit(float(at))
        bench.submit(float(at), priority=Priority.LOW)
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.low, sample.waiting_since) == (2, 2, 10.0)


LISTED = "jobs_listed (endpoint=? AND seq>? AND seq<?)"
DEMAND = "jobs_demand (endpoint=? AND low=?)"
IN_LINE = "jobs_queue (endpoint=? AND rank>? AND rank<?)"
PLANS = {
    "sample": (store_samples._SAMPLE, [DEMAND, IN_LINE]),
    "longest": (store_samples._WAITED, [DEMAND, IN_LINE]),
    "count": (store_samples._COUNT, [IN_LINE, "jobs_held (node>?)"]),
    "running": (store_samples._RUNNING, ["jobs_held (node>?)"]),
    "list": (store_lists._listing(()), [LISTED]),
    **{f"by {name}": (store_lists._listing((name,)), [LISTED]) for name in store_lists._SEARCHES},
    "next": (store_lists._NEXT, ["jobs_listed (endpoint=? AND seq<?)"]),
    "deepest": (store_lists._DEEPEST, ["jobs_listed (endpoint=? AND seq<?)"]),
    "retries ahead": (store_places._RETRIES, ["jobs_queue (endpoint=? AND rank>? AND rank<?)"]),
    "retries before": (store_places._RETRIES_BEFORE, ["jobs_queue (endpoint=? AND rank=? AND not_before<?)"]),
    "in line": (store_places._IN_LINE, ["jobs_queue (endpoint=? AND rank>? AND rank<?)"]),
    "newest": (store_orders._NEWEST, ["jobs_listed (endpoint>? AND endpoint<?)"]),
    "purge": (store_orders._PURGE, ["INTEGER PRIMARY KEY (rowid=?)", "jobs_queue (endpoint=?)"]),
}


def plan_of(bench: Any, statement: str) -> list[str]:
    values = dict.fromkeys(re.findall(r":([a-z]\w*)", statement), 1)
    return [row[3] for row in bench.store.writer.run(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_claim_is_one_walk_along_the_index_of_the_queue(bench: Any) -> None:
    plan = plan_of(bench, bench.store.writer._written["claim"])
    assert [one for one in plan if " jobs " in one] == [
        "SEARCH jobs USING INTEGER PRIMARY KEY (rowid=?)",
        "SEARCH jobs USING INDEX jobs_queue (endpoint=? AND rank=? AND not_before<?)",
    ]
    assert [one for one in plan if "TEMP B-TREE" in one] == [], "nothing is sorted"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", PLANS)
def test_counts_and_pages_read_an_index_and_no_table(name: str, bench: Any) -> None:
    statement, indexes = PLANS[name]
    plan = plan_of(bench, statement)
    of_jobs = [one for one in plan if " jobs " in one]
    assert of_jobs != []
    assert [one for one in of_jobs if not one.endswith(tuple(indexes))] == []
    assert [one for one in plan if "TEMP B-TREE" in one and name != "running"] == []


# ---- logs -------------------------------------------------------------------------------------------


def logs(bench: Any, job: str, now: float = 50.0) -> Any:
    return store.job_logs(bench.store.writer, "default", "echo", job, now)


def test_each_attempt_keeps_what_it_wrote_last(bench: Any) -> None:
    claimed = bench.running(10.0)
    assert logs(bench, claimed.job) == ()
    lost = bench.done(claimed, end="lost", error="worker died", log=("one", "two"))
    bench.report(11.0, lost, lost)
    (claimed,) = bench.claim(12.0, bench.slot(worker="w2"))
    bench.report(13.0, bench.done(claimed, log=("three\nand a half", ""), log_at_ms=(5, 7)))
    assert logs(bench, claimed.job) == (
        AttemptLog(1, "w1", ("one", "two")),
        AttemptLog(2, "w2", ("three", "and a half", ""), times=(5, 5, 7)),
    )


def test_a_cancelled_attempt_keeps_its_log_and_a_stale_one_does_not(bench: Any) -> None:
    first = bench.running(10.0)
    bench.requeue(11.0)
    bench.node("n2", 12.0)
    (second,) = bench.claim(12.0, bench.slot("n2"))
    bench.report(13.0, bench.done(first, log=("stale",)))
    bench.cancel(14.0, second.job)
    bench.report(15.0, bench.done(second, end="cancelled", log=("asked to stop",)), node="n2")
    assert logs(bench, first.job) == (AttemptLog(2, "w1", ("asked to stop",)),)


def test_logs_are_bounded_and_their_end_is_kept(bench: Any) -> None:
    claimed = bench.running(10.0)
    many = tuple(f"line {number}" for number in range(150))
    bench.report(11.0, bench.done(claimed, log=many, log_at_ms=tuple(range(150))))
    (log,) = logs(bench, claimed.job)
    assert (len(log.lines), log.lines[0], log.lines[-1]) == (100, "line 50", "line 149")
    assert log.times == tuple(range(50, 150))
    claimed = bench.running(12.0)
    long = ("é" * 9_000, "a" * 9_000, "b" * 7_000)
    bench.report(13.0, bench.done(claimed, log=long, log_at_ms=(1, 2, 3)))
    (log,) = logs(bench, claimed.job)
    assert (log.lines, log.times) == (long[1:], (2, 3))
    claimed = bench.running(14.0)
    bench.report(15.0, bench.done(claimed, log=("é" * 9_000,)))
    (log,) = logs(bench, claimed.job)
    assert log.lines == ("é" * 8_192,)


def test_logs_outlive_a_retry_and_go_with_the_record(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end="failed", error="no", log=("first",)))
    bench.retry(12.0, claimed.job)
    assert [one.lines for one in logs(bench, claimed.job)] == [("first",)]
    assert logs(bench, "nobody") is None
    assert store.job_logs(bench.store.writer, "someone", "echo", claimed.job, 50.0) is None
    assert logs(bench, claimed.job, 1e6) is None
    bench.expire(1e6)
    assert bench.rows("SELECT * FROM logs") == []
