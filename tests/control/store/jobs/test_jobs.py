"""Jobs in the store: what submit, claim, report, cancel and view do and do not do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.streams import Cursor
from stoker.control.rules.submissions import S3Config
from stoker.control.store.tables.billing import spans
from stoker.wire.messages import Artifact, Chunk, Progress, Ref, Refused, Span, Uploading

ARTIFACT = Artifact("echo/job-1/1/0-a.png", 10, "ab", "image/png")
EXECUTION = Span("execution", "device_ms", 7, 70)
OUTPUT = Span("output", "output_pixel", 100, 2_000)


def job_spans(bench: Any, job: str) -> tuple[tuple[int, Span], ...]:
    """The bill of one job, with the attempt of each span."""
    found = select(spans).where(spans.c.job == job).order_by(spans.c.attempt, spans.c.kind, spans.c.unit)
    return tuple(
        (row.attempt, Span(row.kind, row.unit, row.quantity, row.nano_usd))
        for row in bench.store.writer.execute(found)
    )


# ---- submit and claim -------------------------------------------------------------------------------


def test_submit_without_a_slot_waits(bench: Any) -> None:
    view, claimed = bench.submit(10.0)
    assert (view.state, claimed) == (JobState.IN_QUEUE, ())
    assert bench.view(10.0, view.id) == view


def test_submit_with_a_slot_is_claimed_in_the_same_transaction(bench: Any) -> None:
    view, (claimed,) = bench.submit(10.0, bench.slot(), input=b"[1]", execution_timeout_ms=5_000)
    assert (claimed.job, claimed.attempt, claimed.worker, claimed.input) == (view.id, 1, "w1", b"[1]")
    assert claimed.execution_timeout_ms == 5_000
    assert view.state is JobState.IN_PROGRESS
    assert bench.view(10.0, view.id) == replace(view, stream=1)


def test_an_older_job_is_claimed_first(bench: Any) -> None:
    older, _ = bench.submit(10.0, input=b"1")
    newer, (claimed,) = bench.submit(11.5, bench.slot(), input=b"2")
    assert (claimed.job, claimed.input) == (older.id, b"1")
    assert newer.state is JobState.IN_QUEUE
    assert bench.view(12.0, older.id).delay_ms == 1_500


def test_low_priority_comes_last_and_retries_first(bench: Any) -> None:
    low, _ = bench.submit(10.0, priority=Priority.LOW)
    first = bench.running(11.0)
    assert first.job != low.id
    second, _ = bench.submit(12.0)
    bench.report(13.0, bench.lost(first))
    order = [one.job for one in bench.claim(14.0, *[bench.slot()] * 3)]
    assert order == [first.job, second.id, low.id]


def test_classes_stand_an_hour_apart_so_that_age_raises_a_job(bench: Any) -> None:
    came = {
        "low": (0.0, Priority.LOW),
        "normal": (10.0, Priority.NORMAL),
        "urgent": (3_600.0, Priority.URGENT),
        "normal in time": (3_599.0, Priority.NORMAL),
        "normal too late": (3_601.0, Priority.NORMAL),
        "urgent too late": (3_611.0, Priority.URGENT),
    }
    for name, (at, priority) in came.items():
        bench.submit(at, id=name, priority=priority)
    order = [bench.claim(4_000.0, bench.slot())[0].job for _ in came]
    assert order == ["urgent", "normal", "urgent too late", "normal in time", "low", "normal too late"]


def test_a_low_job_that_is_tried_again_stands_where_it_stood(bench: Any) -> None:
    low = bench.running(10.0, priority=Priority.LOW)
    second, _ = bench.submit(11.0, priority=Priority.LOW)
    normal, _ = bench.submit(12.0)
    bench.report(13.0, Refused(low.job, low.attempt, "full", at_once=True))
    assert [bench.claim(14.0, bench.slot())[0].job for _ in range(3)] == [normal.id, low.job, second.id]
    bench.report(15.0, bench.done(bench.running(14.0, id="third", priority=Priority.LOW), end="failed"))
    bench.submit(16.0, id="fourth", priority=Priority.LOW)
    assert bench.retry(17.0, "third")[1] is not None
    assert [bench.claim(18.0, bench.slot())[0].job for _ in range(2)] == ["third", "fourth"]


def test_a_slot_takes_no_more_than_it_has_room_for(bench: Any) -> None:
    for _ in range(3):
        bench.submit(10.0)
    assert len(bench.claim(11.0, bench.slot(free=2), bench.slot(free=0))) == 2


def test_each_endpoint_has_its_own_queue(bench: Any) -> None:
    bench.put_endpoint("other")
    bench.submit(10.0, endpoint="other")
    assert bench.claim(11.0, bench.slot()) == ()
    assert len(bench.claim(11.0, bench.slot(endpoint="other"))) == 1


def test_a_superseded_session_claims_nothing_but_does_not_hide_the_queue(bench: Any) -> None:
    bench.submit(10.0)
    old = bench.slot()
    bench.node("n1", 11.0)
    assert bench.claim(12.0, old) == ()
    assert len(bench.claim(12.0, old, bench.slot())) == 1


def test_a_job_past_its_ttl_is_not_claimed(bench: Any) -> None:
    bench.submit(10.0, expires_at=20.0)
    assert bench.claim(20.0, bench.slot()) == ()


def test_a_spilled_input_and_a_callers_bucket_reach_the_claim(bench: Any) -> None:
    ref = Ref("echo/job-1/input.json", 2_000_000, "cd")
    s3 = S3Config("id", "secret", "bucket", "https://s3.example", "path", "eu-1")
    _, (known,) = bench.submit(10.0, bench.slot(), input=None, input_ref=ref, s3=s3)
    assert (known.input, known.input_ref, known.s3) == (None, ref, s3)
    bench.requeue(11.0)
    bench.node("n1", 12.0)
    (read,) = bench.claim(13.0, bench.slot())
    assert (read.input, read.input_ref, read.s3) == (None, ref, s3)


def test_the_same_id_is_stored_once(bench: Any) -> None:
    bench.submit(10.0, id="mine")
    with pytest.raises(Exception, match=r"UNIQUE|unique"):
        bench.submit(11.0, id="mine")
    assert bench.rows("SELECT count(*) FROM inputs") == [(1,)]


# ---- the end ----------------------------------------------------------------------------------------


def test_an_outcome_ends_the_job_and_its_view_needs_no_read(bench: Any) -> None:
    claimed = bench.running(10.25)
    outcome = bench.done(
        claimed,
        output=b'{"y":2}',
        wait_ms=3,
        execution_ms=40,
        spans=(EXECUTION, OUTPUT),
        artifacts=(ARTIFACT,),
    )
    reported = bench.report(11.0, outcome)
    (changed,) = reported.changed
    view = bench.view(11.0, claimed.job)
    assert replace(changed.view, stream=1) == view
    assert (view.state, view.output, view.worker) == (JobState.COMPLETED, b'{"y":2}', "w1")
    assert (view.delay_ms, view.execution_ms) == (3, 40)
    assert (reported.stale, reported.orphans, changed.losers) == ((), (), ())
    assert bench.counters() == {"completed": 1}


def test_a_resent_outcome_changes_nothing_and_orphans_nothing(bench: Any) -> None:
    claimed = bench.running(10.0)
    outcome = bench.done(claimed, output=b"1", spans=(EXECUTION,), artifacts=(ARTIFACT,))
    bench.report(11.0, outcome)
    before = bench.view(11.0, claimed.job)
    again = bench.report(12.0, outcome, replace(outcome, end="failed", error="no"))
    assert again.changed == ()
    assert again.orphans == ()
    assert again.stale == (bench.key(claimed),)
    assert bench.view(12.0, claimed.job) == before
    assert bench.counters() == {"completed": 1}
    assert job_spans(bench, claimed.job) == ((1, EXECUTION),)


def test_a_stale_attempt_changes_nothing_and_its_uploads_are_orphans(bench: Any) -> None:
    first = bench.running(10.0)
    bench.requeue(11.0)
    bench.node("n2", 12.0)
    (second,) = bench.claim(12.0, bench.slot("n2"))
    news = Chunk(first.job, 1, 0, b"0"), Progress(first.job, 1, b"1"), Refused(first.job, 1, "full")
    late = bench.done(first, output=b"1", artifacts=(ARTIFACT,), spans=(EXECUTION,))
    reported = bench.report(13.0, *news, late)
    assert reported.changed == ()
    assert reported.chunks == ()
    assert reported.stale == (bench.key(first),)
    assert reported.orphans == (ARTIFACT,)
    assert job_spans(bench, first.job) == ()
    assert bench.view(13.0, first.job).state is JobState.IN_PROGRESS
    (changed,) = bench.report(14.0, bench.done(second), node="n2").changed
    assert changed.losers == ("echo/job-1/1/",)
    assert changed.view.retries == 1


def test_an_outcome_is_taken_from_the_queue_after_a_requeue(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.requeue(11.0)
    assert bench.view(11.0, claimed.job).state is JobState.IN_QUEUE
    (changed,) = bench.report(12.0, bench.done(claimed, output=b"1")).changed
    assert changed.state is JobState.COMPLETED
    bench.node("n1", 13.0)
    assert bench.claim(13.0, bench.slot()) == ()


def test_an_outcome_of_another_node_is_not_believed(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.node("n2", 10.0)
    assert bench.report(11.0, bench.done(claimed), node="n2").stale == (bench.key(claimed),)


def test_an_outcome_outlives_the_session_that_ran_it(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.node("n1", 11.0)
    bench.reconcile(11.0, [bench.key(claimed)])
    assert bench.report(12.0, bench.done(claimed)).changed[0].state is JobState.COMPLETED


def test_a_failed_job_keeps_error_and_output(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end="failed", error="no", output=b"1"))
    view = bench.view(11.0, claimed.job)
    assert (view.state, view.error, view.output) == (JobState.FAILED, "no", b"1")
    assert bench.counters() == {"failed": 1}


def test_three_dead_workers_end_it_with_a_message(bench: Any) -> None:
    claimed = bench.running(10.0)
    for at in (20.0, 40.0):
        bench.report(at, bench.lost(claimed))
        (claimed,) = bench.claim(at + 10.0, bench.slot())
    (changed,) = bench.report(60.0, bench.lost(claimed)).changed
    assert changed.view.error == "worker died: killed by SIGKILL; gave up after 3 attempts"
    assert changed.view.retries == 2
    assert bench.counters() == {"failed": 1, "retried": 2}


def test_a_spilled_output_is_kept_by_reference(bench: Any) -> None:
    claimed = bench.running(10.0)
    ref = Ref("echo/job-1/1/output.json", 2_000_000, "cd")
    bench.report(11.0, bench.done(claimed, output_ref=ref))
    assert bench.view(11.0, claimed.job).output_ref == ref
    bench.expire(11.0 + 1_800.0)
    assert bench.due_orphans() == (ref.key,)


def test_a_refused_attempt_waits_and_is_not_counted(bench: Any) -> None:
    claimed = bench.running(10.0)
    (changed,) = bench.report(11.0, Refused(claimed.job, 1, "draining")).changed
    assert changed.state is JobState.IN_QUEUE
    assert bench.claim(11.0, bench.slot()) == ()
    (again,) = bench.claim(11.2, bench.slot())
    assert again.attempt == 2
    assert bench.view(11.2, claimed.job).retries == 0
    assert bench.counters() == {}


def test_uploads_to_the_callers_bucket_are_not_ours_to_tidy(bench: Any) -> None:
    s3 = S3Config("id", "secret", "bucket", "https://s3.example")
    claimed = bench.running(10.0, s3=s3)
    bench.report(11.0, bench.done(claimed, artifacts=(ARTIFACT,)))
    assert bench.rows("SELECT * FROM artifacts") == []
    assert bench.report(12.0, bench.done(claimed, artifacts=(ARTIFACT,))).orphans == ()


# ---- cancel -----------------------------------------------------------------------------------------


def test_cancel_in_the_queue(bench: Any) -> None:
    view, _ = bench.submit(10.0)
    found, changed = bench.cancel(11.0, view.id)
    assert found.state is JobState.CANCELLED
    assert (found.delay_ms, found.execution_ms, found.worker) == (1_000, None, None)
    assert changed.cancel is None
    assert bench.claim(12.0, bench.slot()) == ()


def test_cancel_of_running_work_names_what_must_stop(bench: Any) -> None:
    claimed = bench.running(10.0)
    _, changed = bench.cancel(11.0, claimed.job)
    assert changed.cancel == ("n1", bench.key(claimed))


def test_cancel_twice_or_too_late_changes_nothing(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed))
    found, changed = bench.cancel(12.0, claimed.job)
    assert (found.state, changed) == (JobState.COMPLETED, None)
    assert bench.cancel(12.0, "nobody") == (None, None)


def test_an_outcome_after_a_cancel_is_billed_once_and_not_delivered(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.cancel(11.0, claimed.job)
    outcome = bench.done(claimed, output=b"1", spans=(EXECUTION, OUTPUT), artifacts=(ARTIFACT,))
    reported = bench.report(12.0, outcome, outcome)
    assert reported.changed == ()
    assert reported.orphans[0] == ARTIFACT
    assert job_spans(bench, claimed.job) == ((1, EXECUTION),)
    view = bench.view(12.0, claimed.job)
    assert (view.state, view.output) == (JobState.CANCELLED, None)
    assert view.execution_ms == outcome.execution_ms > 0
    assert bench.counters() == {"cancelled": 1}


def test_an_attempt_that_its_node_stopped_is_billed_and_not_delivered(bench: Any) -> None:
    claimed = bench.running(10.0)
    ref = Ref("echo/job-1/1/output.json", 2_000_000, "cd")
    outcome = bench.done(
        claimed, end="cancelled", output_ref=ref, spans=(EXECUTION, OUTPUT), artifacts=(ARTIFACT,)
    )
    reported = bench.report(12.0, outcome)
    assert replace(reported.changed[0].view, stream=1) == bench.view(12.0, claimed.job)
    assert reported.changed[0].view.output_ref is None
    assert (reported.orphans, bench.due_orphans()) == ((ARTIFACT,), (ref.key,))
    assert job_spans(bench, claimed.job) == ((1, EXECUTION),)


# ---- streams ----------------------------------------------------------------------------------------


def chunks(bench: Any, job: str, after: tuple[int, int] = (0, -1), limit: int = 100) -> list[Any]:
    found = store.chunks(bench.store.writer, job, after, limit)
    return [(one.attempt, one.n, one.value) for one in found]


def test_chunks_are_kept_once_and_in_order(bench: Any) -> None:
    claimed = bench.running(10.0)
    sent = [Chunk(claimed.job, 1, n, b"%d" % n) for n in range(3)]
    reported = bench.report(11.0, *sent, sent[1])
    assert reported.chunks == (bench.key(claimed),)
    assert reported.stale == ()
    assert chunks(bench, claimed.job) == [(1, 0, b"0"), (1, 1, b"1"), (1, 2, b"2")]
    assert chunks(bench, claimed.job, (1, 0), 1) == [(1, 1, b"1")]
    assert bench.report(12.0, sent[0]).chunks == ()


def test_a_reader_gets_the_new_attempts_chunks_from_their_start(bench: Any) -> None:
    first = bench.running(10.0)
    bench.report(11.0, Chunk(first.job, 1, 0, b"old"), Chunk(first.job, 1, 1, b"old"), bench.lost(first))
    assert len(chunks(bench, first.job)) == 2
    bench.claim(12.0, bench.slot())
    assert chunks(bench, first.job, (1, 1)) == []
    bench.report(13.0, Chunk(first.job, 2, 0, b"new"))
    assert chunks(bench, first.job, (1, 1)) == [(2, 0, b"new")]


def test_no_chunk_is_taken_after_the_end(bench: Any) -> None:
    claimed = bench.running(10.0)
    late = Chunk(claimed.job, 1, 0, b"0")
    assert bench.report(11.0, bench.done(claimed), late).stale == (bench.key(claimed),)
    assert chunks(bench, claimed.job) == []


def test_progress_is_the_last_value_and_only_while_it_runs(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Progress(claimed.job, 1, b"1"), Progress(claimed.job, 1, b"2"))
    assert bench.view(11.0, claimed.job).progress == b"2"
    bench.report(12.0, bench.done(claimed))
    assert bench.view(12.0, claimed.job).progress is None


def test_progress_of_a_lost_attempt_is_not_shown_for_the_next(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Progress(claimed.job, 1, b"1"), bench.lost(claimed))
    bench.claim(12.0, bench.slot())
    assert bench.view(12.0, claimed.job).progress is None


def test_uploading_is_noted(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Uploading(claimed.job, 1))
    assert bench.rows("SELECT uploading FROM jobs") == [(1,)]


def test_why_a_result_is_not_uploaded_yet_is_shown_until_it_is(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Uploading(claimed.job, 1), Uploading(claimed.job, 1, "no such host"))
    assert bench.view(11.0, claimed.job).reason == "no such host"
    bench.report(12.0, bench.done(claimed))
    assert bench.view(12.0, claimed.job).reason is None


def test_an_attempt_does_not_show_what_the_one_before_waited_for(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Uploading(claimed.job, 1, "no such host"), bench.lost(claimed))
    bench.claim(12.0, bench.slot())
    assert bench.view(12.0, claimed.job).reason is None


def test_the_cursor_moves_forward_only(bench: Any) -> None:
    conn = bench.store.writer
    view, _ = bench.submit(10.0)
    assert store.stream_cursor(conn, view.id) == Cursor(0, -1)
    for cursor in (Cursor(1, 4), Cursor(1, 2), Cursor(2, 0), Cursor(1, 9)):
        bench.do(lambda conn, cursor=cursor: store.advance(conn, view.id, cursor))
    assert store.stream_cursor(conn, view.id) == Cursor(2, 0)
    bench.do(lambda conn: store.advance(conn, "nobody", Cursor(1, 1)))


def test_the_cursor_remembers_that_the_end_was_reported(bench: Any) -> None:
    conn = bench.store.writer
    view, _ = bench.submit(10.0)
    reported = Cursor(0, -1, end_reported=True)
    bench.do(lambda conn: store.advance(conn, view.id, reported))
    assert not store.stream_cursor(conn, view.id).end_reported  # it has not ended: a retry came in between
    bench.cancel(11.0, view.id)
    bench.do(lambda conn: store.advance(conn, view.id, reported))
    assert store.stream_cursor(conn, view.id) == reported
    bench.do(lambda conn: store.advance(conn, view.id, Cursor(0, -1)))
    assert store.stream_cursor(conn, view.id) == reported


# ---- time -------------------------------------------------------------------------------------------


def test_a_view_ends_with_its_retention_before_any_sweep(bench: Any) -> None:
    claimed = bench.running(10.0, sync=True, retention_s=60.0)
    bench.report(11.0, bench.done(claimed))
    assert bench.view(70.9, claimed.job) is not None
    assert bench.view(71.0, claimed.job) is None


def test_a_view_is_its_account_and_endpoints_only(bench: Any) -> None:
    view, _ = bench.submit(10.0)
    conn = bench.store.writer
    assert store.view(conn, "someone", "echo", view.id, 10.0) is None
    assert store.view(conn, "default", "other", view.id, 10.0) is None


def test_expiry_while_running_stops_the_work_and_leaves_the_bill(bench: Any) -> None:
    claimed = bench.running(10.0, expires_at=20.0)
    bench.report(12.0, Chunk(claimed.job, 1, 0, b"0"), Progress(claimed.job, 1, b"1"))
    (changed,) = bench.expire(20.0)
    assert changed.gone
    assert changed.cancel == ("n1", bench.key(claimed))
    assert bench.due_orphans() == ("echo/job-1/1/",)
    late = bench.report(21.0, bench.done(claimed, artifacts=(ARTIFACT,)))
    assert (late.changed, late.stale, late.orphans) == ((), (bench.key(claimed),), (ARTIFACT,))
    for table in ("inputs", "chunks", "progress"):
        assert bench.rows(f"SELECT * FROM {table}") == []


def test_expiry_takes_the_oldest_first_and_no_more_than_requested(bench: Any) -> None:
    for until in (30.0, 20.0, 25.0, 99.0):
        bench.submit(10.0, expires_at=until)
    assert [one.job for one in bench.expire(50.0, 2)] == ["job-2", "job-3"]
    assert [one.job for one in bench.expire(50.0)] == ["job-1"]


def test_bills_and_counters_outlive_jobs(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, spans=(EXECUTION, OUTPUT)))
    bench.expire(1e9)
    assert bench.rows("SELECT count(*) FROM jobs") == [(0,)]
    assert job_spans(bench, claimed.job) == ((1, EXECUTION), (1, OUTPUT))
    assert bench.counters() == {"completed": 1}


def test_artifacts_live_seven_days_whatever_becomes_of_the_job(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, artifacts=(ARTIFACT,)))
    assert len(bench.expire(11.0 + 1_800.0)) == 1
    assert bench.due_orphans() == ()
    end = 11.0 + 7 * 86_400.0
    conn = bench.store.writer
    assert store.expired_artifacts(conn, end - 1, 10) == ()
    assert store.expired_artifacts(conn, end, 10) == (ARTIFACT.key,)
    bench.do(lambda conn: store.forget_artifacts(conn, [ARTIFACT.key]))
    assert store.expired_artifacts(conn, end, 10) == ()


def test_queue_sample(bench: Any) -> None:
    bench.running(10.0)
    bench.submit(11.0)
    bench.submit(12.0)
    bench.submit(13.0, priority=Priority.LOW)
    sample = store.queue_sample(bench.store.writer)["echo"]
    assert (sample.queued, sample.low, sample.in_progress, sample.waiting_since) == (2, 1, 1, 11.0)
