"""What callers order of stored jobs: a retry, a cleared queue, a shorter life; and why a job waits."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.control import store
from stoker.control.rules.job_states import JobState
from stoker.control.rules.queueing.priorities import Priority
from stoker.control.rules.streams import Cursor
from stoker.control.rules.submissions import S3Config
from stoker.wire.messages import Artifact, Chunk, Progress, Ref, Refused

OUTPUT = Ref("echo/job-1/1/output.json", 2_000_000, "cd")
CHUNK_REF = Ref("echo/job-1/1/chunk-0.json", 3_000_000, "ef")


def failed(bench: Any, now: float = 10.0, **fields: Any) -> Any:
    """A job that was claimed at `now` and failed a second later."""
    claimed = bench.running(now, **fields)
    bench.report(now + 1.0, bench.done(claimed, end="failed", error="no"))
    return claimed


# ---- retry ------------------------------------------------------------------------------------------


def test_a_retry_keeps_id_input_and_ttl_and_goes_ahead(bench: Any) -> None:
    job = failed(bench, input=b'{"x":9}', expires_at=5_000.0, retention_s=60.0).job
    waiting, _ = bench.submit(11.5)
    view, changed = bench.retry(12.0, job)
    assert (changed.job, changed.state, changed.view) == (job, JobState.IN_QUEUE, None)
    assert (view.state, view.error, view.worker, view.delay_ms, view.execution_ms) == (
        JobState.IN_QUEUE,
        None,
        None,
        None,
        None,
    )
    again, other = bench.claim(13.0, bench.slot(free=2))
    assert (again.job, again.attempt, again.input, again.expires_at) == (job, 2, b'{"x":9}', 5_000.0)
    assert other.job == waiting.id
    assert bench.view(4_000.0, job).retries == 1
    assert bench.view(5_000.0, job) is None


def test_a_timed_out_job_is_tried_again(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end="timed_out", error="too long"))
    assert bench.retry(12.0, claimed.job)[0].state is JobState.IN_QUEUE


@pytest.mark.parametrize("end", ["completed", "cancelled"])
def test_other_ends_are_returned_as_they_are(bench: Any, end: str) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end=end, output=b"1"))
    before = bench.view(12.0, claimed.job)
    assert bench.retry(12.0, claimed.job) == (before, None)


def test_what_lives_or_is_gone_is_not_tried_again(bench: Any) -> None:
    job = failed(bench, retention_s=60.0).job
    assert bench.retry(71.0, job) == (None, None)
    view, _ = bench.submit(72.0)
    assert bench.retry(73.0, view.id) == (view, None)
    assert bench.retry(71.0, "nobody") == (None, None)


def test_a_retry_forgets_the_result_and_what_was_spilled(bench: Any) -> None:
    claimed = bench.running(10.0)
    news = Chunk(claimed.job, 1, 0, b"", CHUNK_REF), Progress(claimed.job, 1, b"1")
    bench.report(11.0, *news, bench.done(claimed, end="failed", error="no", output_ref=OUTPUT))
    bench.do(lambda conn: store.advance(conn, claimed.job, Cursor(1, 0, end_reported=True)))
    assert bench.due_orphans() == ()
    view, _ = bench.retry(12.0, claimed.job)
    assert (view.error, view.output_ref, view.progress) == (None, None, None)
    assert sorted(bench.due_orphans()) == [CHUNK_REF.key, OUTPUT.key]
    assert store.chunks(bench.store.writer, claimed.job, (0, -1), 9) == ()
    assert store.stream_cursor(bench.store.writer, claimed.job) == Cursor()


def test_a_retry_leaves_files_that_were_delivered(bench: Any) -> None:
    artifact = Artifact("echo/job-1/1/0-a.png", 10, "ab", "image/png")
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end="failed", artifacts=(artifact,)))
    bench.retry(12.0, claimed.job)
    (again,) = bench.claim(13.0, bench.slot())
    (lost,) = bench.report(14.0, bench.lost(again)).changed
    (third,) = bench.claim(15.0, bench.slot())
    (changed,) = bench.report(16.0, bench.done(third)).changed
    assert lost.losers == ()
    assert changed.losers == ("echo/job-1/2/",)  # the first attempt's file is good for seven days
    bench.expire(1e6)
    assert bench.due_orphans() == ("echo/job-1/2/",)


def test_what_a_retried_job_leaves_in_the_queue_is_not_its_delivered_files(bench: Any) -> None:
    artifact = Artifact("echo/job-1/1/0-a.png", 10, "ab", "image/png")
    claimed = bench.running(10.0, expires_at=100.0)
    bench.report(11.0, bench.done(claimed, end="failed", artifacts=(artifact,)))
    bench.retry(12.0, claimed.job)
    bench.claim(13.0, bench.slot())
    bench.expire(100.0)
    assert bench.due_orphans() == ("echo/job-1/2/",)


@pytest.mark.parametrize("end", ["failed", "timed_out"])
def test_what_an_attempt_without_success_uploaded_and_never_reported_goes_too(bench: Any, end: str) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, end=end, error="no"))
    assert bench.due_orphans() == ()  # its stream can still be read
    bench.retry(12.0, claimed.job)
    assert bench.due_orphans() == ("echo/job-1/1/",)
    (again,) = bench.claim(13.0, bench.slot())
    bench.report(14.0, bench.done(again, end=end, error="no"))
    bench.expire(1e6)
    assert bench.due_orphans() == ("echo/job-1/1/", "echo/job-1/2/")


def test_what_an_attempt_with_success_uploaded_stays(bench: Any) -> None:
    artifact = Artifact("echo/job-1/1/0-a.png", 10, "ab", "image/png")
    bench.report(11.0, bench.done(bench.running(10.0), artifacts=(artifact,)))
    bench.expire(1e6)
    assert bench.due_orphans() == ()


def test_a_second_retry_leaves_the_output_that_a_webhook_still_names(bench: Any) -> None:
    """The first of them found it in the record; the second, in the queue, does not."""
    claimed = bench.running(10.0, webhook="https://caller.example/hook")
    bench.report(11.0, bench.done(claimed, end="failed", error="no", output_ref=OUTPUT))
    bench.retry(12.0, claimed.job)
    bench.end_wait(13.0, claimed.job)
    assert bench.retry(14.0, claimed.job)[1] is not None
    assert bench.due_orphans() == ()
    due = bench.do(lambda conn: store.due_webhook(conn, 14.0, ()))
    assert due is not None


def test_a_late_outcome_does_not_undo_a_retry(bench: Any) -> None:
    claimed = failed(bench)
    bench.retry(12.0, claimed.job)
    late = bench.done(claimed, output_ref=OUTPUT)
    assert bench.report(13.0, late).stale == (bench.key(claimed),)
    assert bench.view(13.0, claimed.job).state is JobState.IN_QUEUE
    assert OUTPUT.key in bench.due_orphans()  # nobody will ever read it


def test_a_retry_starts_every_count_anew(bench: Any) -> None:
    claimed = bench.running(10.0)
    for at in (20.0, 40.0):
        bench.report(at, bench.lost(claimed))
        (claimed,) = bench.claim(at + 15.0, bench.slot())
    bench.report(60.0, bench.lost(claimed))
    bench.retry(61.0, claimed.job)
    (claimed,) = bench.claim(62.0, bench.slot())
    (changed,) = bench.report(63.0, bench.lost(claimed)).changed
    assert (claimed.attempt, changed.state) == (4, JobState.IN_QUEUE)


def test_a_retry_is_given_out_as_often_as_a_new_job(bench: Any) -> None:
    claimed = bench.running(10.0)
    for at in range(11, 20):
        bench.reconcile(float(at), [])
        (claimed,) = bench.claim(float(at), bench.slot())
    (changed,) = bench.reconcile(20.0, []).changed
    assert "gave up after it was assigned 10 times" in changed.view.error
    bench.retry(21.0, claimed.job)
    bench.claim(22.0, bench.slot())
    (changed,) = bench.reconcile(23.0, []).changed
    assert changed.state is JobState.IN_QUEUE


# ---- purge ------------------------------------------------------------------------------------------


def test_a_purge_releases_what_waits_and_nothing_else(bench: Any) -> None:
    running = bench.running(10.0)
    done = failed(bench, 11.0)
    waiting = [bench.submit(13.0, priority=one)[0].id for one in (Priority.NORMAL, Priority.LOW)]
    upto = bench.newest()
    late, _ = bench.submit(14.0)
    purged = bench.purge(15.0, upto)
    assert sorted(one.job for one in purged) == waiting
    for one in purged:
        assert one.view == bench.view(15.0, one.job)
        assert (one.state, one.view.reason, one.cancel) == (JobState.CANCELLED, "purged", None)
    assert bench.view(15.0, running.job).state is JobState.IN_PROGRESS
    assert bench.view(15.0, done.job).state is JobState.FAILED
    assert bench.view(15.0, late.id).state is JobState.IN_QUEUE
    assert bench.counters() == {"failed": 1, "cancelled": 2}
    assert bench.purge(16.0, upto) == ()


def test_a_purge_goes_in_batches_and_asks_for_account_and_endpoint(bench: Any) -> None:
    bench.put_endpoint("other")
    others, _ = bench.submit(10.0, endpoint="other")
    mine = [bench.submit(10.0)[0].id for _ in range(5)]
    upto = bench.newest()
    assert upto > store.newest(bench.store.writer, "other")
    batches = [[one.job for one in bench.purge(11.0, upto, 2)] for _ in range(4)]
    assert [sorted(batch) for batch in batches] == [mine[:2], mine[2:4], mine[4:], []]
    assert store.view(bench.store.writer, "default", "other", others.id, 11.0).state is JobState.IN_QUEUE
    assert bench.do(lambda conn: store.purge(conn, "someone", "other", upto, 11.0, 9)) == ()


def test_an_empty_endpoint_has_no_newest_job(bench: Any) -> None:
    assert bench.newest() == 0


def test_a_purge_names_the_attempt_that_a_lost_node_may_hold(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.requeue(11.0)
    (purged,) = bench.purge(12.0, bench.newest())
    assert purged.cancel == ("n1", bench.key(claimed))


def test_a_cancelled_job_has_no_reason(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.lost(claimed))
    assert bench.cancel(12.0, claimed.job)[0].reason is None


# ---- a shorter life ---------------------------------------------------------------------------------


def test_a_record_is_gone_when_its_caller_says(bench: Any) -> None:
    job = failed(bench).job
    view = bench.shorten(12.0, job, 20.0)
    assert view == bench.view(12.0, job)
    assert bench.shorten(12.0, job, 500.0) == view  # never longer
    assert bench.view(19.9, job) is not None
    assert bench.view(20.0, job) is None
    assert bench.shorten(20.0, job, 30.0) is None


def test_running_work_is_stopped_at_the_shorter_end(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.shorten(11.0, claimed.job, 20.0)
    (changed,) = bench.expire(20.0)
    assert (changed.gone, changed.cancel) == (True, ("n1", bench.key(claimed)))


def test_the_shorter_ttl_bounds_a_retry_too(bench: Any) -> None:
    job = failed(bench, retention_s=60.0).job
    bench.shorten(12.0, job, 200.0)
    assert bench.view(71.0, job) is None
    bench.retry(50.0, job)
    assert bench.view(199.9, job) is not None
    assert bench.view(200.0, job) is None


# ---- deleted ----------------------------------------------------------------------------------------


def deleted(bench: Any, now: float, job: str, account: str = store.DEFAULT_ACCOUNT) -> Any:
    return bench.do(lambda conn: store.delete(conn, account, "echo", job, now))


def test_a_deleted_job_is_gone_with_its_files(bench: Any) -> None:
    artifact = Artifact("echo/job-1/1/0-a.png", 10, "ab", "image/png")
    claimed = bench.running(10.0)
    bench.report(11.0, bench.done(claimed, artifacts=(artifact,)))
    assert deleted(bench, 12.0, claimed.job, "other") == (None, None)
    view, changed = deleted(bench, 12.0, claimed.job)
    assert (view.state, changed) == (JobState.COMPLETED, None)
    assert bench.view(12.0, claimed.job) is None
    assert bench.due_orphans() == ("echo/job-1/1/0-a.png",)
    assert deleted(bench, 12.0, claimed.job) == (None, None)
    [gone] = bench.expire(12.0)
    assert gone.gone


def test_the_work_of_a_deleted_job_is_stopped(bench: Any) -> None:
    claimed = bench.running(10.0)
    view, changed = deleted(bench, 11.0, claimed.job)
    assert (view.state, changed.cancel) == (JobState.CANCELLED, ("n1", bench.key(claimed)))
    assert bench.view(11.0, claimed.job) is None


# ---- why it waits -----------------------------------------------------------------------------------


def test_a_job_that_backs_off_says_how_long_and_why(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, bench.lost(claimed))
    assert bench.view(11.0, claimed.job).reason is None  # the first time, it is tried at once
    (claimed,) = bench.claim(12.0, bench.slot())
    bench.report(13.0, bench.lost(claimed))
    view = bench.view(13.2, claimed.job)
    assert view.reason == "backing off until 00:00:15 UTC after attempt 2: worker died: killed by SIGKILL"
    assert view.not_before == 15.0
    assert bench.view(14.9, claimed.job).reason == view.reason, "it counts nothing down"
    assert bench.view(15.0, claimed.job).reason is None
    bench.claim(15.0, bench.slot())
    assert bench.view(15.0, claimed.job).reason is None


def test_a_refused_job_says_so_while_it_backs_off(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.report(11.0, Refused(claimed.job, 1, "draining"))
    reason = "backing off until 00:00:12 UTC after attempt 1: the agent refused it: draining"
    assert bench.view(11.0, claimed.job).reason == reason


# ---- handlers' errors, and bounds of a job's own ----------------------------------------------------


def test_a_handlers_error_is_tried_again_where_its_job_says_so(bench: Any) -> None:
    claimed = bench.running(10.0, handler_retries=1)
    (changed,) = bench.report(11.0, bench.done(claimed, end="failed", error="no")).changed
    assert changed.state is JobState.IN_QUEUE
    (claimed,) = bench.claim(12.0, bench.slot())
    (changed,) = bench.report(13.0, bench.done(claimed, end="failed", error="no")).changed
    assert (changed.view.state, changed.view.error, changed.view.retries) == (JobState.FAILED, "no", 1)


def test_a_jobs_own_bound_of_attempts_holds(bench: Any) -> None:
    claimed = bench.running(10.0, max_attempts=1)
    (changed,) = bench.report(11.0, bench.lost(claimed)).changed
    assert changed.view.error == "worker died: killed by SIGKILL; gave up after 1 attempt"
    bench.running(12.0, max_attempts=1)
    (changed,) = bench.requeue(13.0)
    assert changed.view.error == "node n1 was lost: its stream broke; gave up after 1 attempt"


def test_an_endpoint_keeps_its_bounds(bench: Any) -> None:
    bench.put_endpoint("own", ttl_ms=20_000, max_attempts=7, handler_retries=2)
    found = bench.endpoint("own")
    assert (found.ttl_ms, found.max_attempts, found.handler_retries) == (20_000, 7, 2)


# ---- spilled chunks ---------------------------------------------------------------------------------


def test_a_spilled_chunk_is_kept_by_reference_and_goes_with_the_record(bench: Any) -> None:
    claimed = bench.running(10.0)
    sent = Chunk(claimed.job, 1, 0, b"", CHUNK_REF), Chunk(claimed.job, 1, 1, b"1")
    bench.report(11.0, *sent, *sent, bench.done(claimed))
    first, second = store.chunks(bench.store.writer, claimed.job, (0, -1), 9)
    assert (first.value, first.ref) == (b"", CHUNK_REF)
    assert (second.value, second.ref) == (b"1", None)
    again = bench.report(12.0, *sent)  # the acknowledgement was lost
    assert (again.chunks, bench.due_orphans()) == ((), ())
    bench.expire(11.0 + 1_800.0)
    assert bench.due_orphans() == (CHUNK_REF.key,)


def test_a_spilled_chunk_of_a_stale_attempt_goes_at_once(bench: Any) -> None:
    claimed = bench.running(10.0)
    bench.cancel(11.0, claimed.job)
    bench.report(12.0, Chunk(claimed.job, 1, 0, b"", CHUNK_REF))
    assert bench.due_orphans() == (CHUNK_REF.key,)


def test_the_stream_of_a_job_that_was_given_up_can_still_be_read(bench: Any) -> None:
    claimed = bench.running(10.0, max_attempts=1)
    bench.report(11.0, Chunk(claimed.job, 1, 0, b"", CHUNK_REF))
    (changed,) = bench.requeue(12.0)
    assert (changed.state, changed.losers) == (JobState.FAILED, ())
    bench.expire(1e6)
    assert set(bench.due_orphans()) == {CHUNK_REF.key, "echo/job-1/1/"}


def test_what_a_losing_attempt_spilled_is_ours_though_its_files_are_not(bench: Any) -> None:
    s3 = S3Config("id", "secret", "bucket", "https://s3.example")
    claimed = bench.running(10.0, s3=s3)
    bench.report(11.0, bench.lost(claimed))
    (claimed,) = bench.claim(12.0, bench.slot())
    (changed,) = bench.report(13.0, bench.done(claimed)).changed
    assert changed.losers == ("echo/job-1/1/",)
