"""Attempts in the store, in both databases: what is kept of each, whatever became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.control import store
from stoker.control.rules.attempts import MOST_ATTEMPTS, Attempt, JobAttempts
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.store.database.snapshots import write_snapshot
from stoker.wire.messages import AttemptKey, Chunk, Refused, Save, Uploading
from tests.control.store.conftest import ACCOUNT, Bench, E


def found(bench: Bench, job: str, now: float = 50.0) -> JobAttempts:
    told = store.job_attempts(bench.store.writer, ACCOUNT, E, job, now)
    assert told is not None
    return told


def told(bench: Bench, job: str, now: float = 50.0) -> list[tuple[int, str, str | None, float | None]]:
    """The number, the cause, the reason and the end of each attempt."""
    return [(one.attempt, one.cause, one.reason, one.ended_at) for one in found(bench, job, now).attempts]


def test_an_attempt_that_ends_its_job_is_told_by_the_jobs_row(bench: Bench) -> None:
    job = bench.running(10.0)
    assert found(bench, job.job) == JobAttempts(10.0, None, (Attempt(1, "w1", "n1", 10.0),))
    bench.report(12.0, Chunk(job.job, 1, 0, b"1"))
    bench.report(12.5, Chunk(job.job, 1, 1, b"2"))
    bench.report(13.0, Uploading(job.job, 1))
    bench.report(14.0, Uploading(job.job, 1, "the bucket is slow"))
    running = Attempt(1, "w1", "n1", 10.0, chunk_at=12.0, uploading_at=13.0)
    assert found(bench, job.job).attempts == (running,)
    bench.report(15.0, bench.done(job, wait_ms=250, execution_ms=2_000))
    ended = Attempt(1, "w1", None, 10.0, 250, 2_000, 12.0, 13.0, 15.0, "completed")
    assert found(bench, job.job) == JobAttempts(10.0, 15.0, (ended,))
    assert bench.rows("SELECT COUNT(*) FROM attempts") == [(0,)]


def test_the_node_is_known_by_the_worker_once_the_job_has_ended(bench: Bench) -> None:
    bench.do(lambda conn: store.give_workers(conn, {"w1": ("n1", AssignedWorker(E, 1, 1, ()))}))
    job = bench.running(10.0)
    bench.report(11.0, bench.done(job))
    assert found(bench, job.job).attempts[0].node == "n1"


def test_a_failed_attempt_is_noted_with_what_its_node_measured(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(11.0, Chunk(job.job, 1, 0, b"1"), Uploading(job.job, 1))
    bench.report(12.0, bench.done(job, end="lost", error="it died", wait_ms=3, execution_ms=900))
    first = Attempt(1, "w1", "n1", 10.0, 3, 900, 11.0, 11.0, 12.0, "lost", "it died")
    assert found(bench, job.job).attempts == (first,)
    (second,) = bench.claim(40.0, bench.slot(worker="w2"))
    assert found(bench, job.job).attempts == (first, Attempt(2, "w2", "n1", 40.0))
    bench.report(41.0, bench.done(second))
    assert told(bench, job.job) == [(1, "lost", "it died", 12.0), (2, "completed", None, 41.0)]


def test_refused_and_unsent_attempts_are_noted(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(11.0, Refused(job.job, 1, "busy", at_once=True))
    bench.claim(12.0, bench.slot())
    bench.report(13.0, Refused(job.job, 2, "full"))
    bench.claim(30.0, bench.slot())
    bench.do(lambda conn: store.hand_back(conn, "n1", AttemptKey(job.job, 3), 31.0))
    assert told(bench, job.job) == [
        (1, "handed_back", "the agent refused it: busy", 11.0),
        (2, "refused", "the agent refused it: full", 13.0),
        (3, "not_sent", "the connection of node n1 ended before it was sent there", 31.0),
    ]


def test_a_lost_attempt_is_told_until_its_node_comes_back_with_it(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.requeue(20.0, why="its stream broke")
    lost = (1, "node_lost", "node n1 was lost: its stream broke", 20.0)
    assert told(bench, job.job) == [lost]
    bench.node("n1", 21.0)
    bench.reconcile(22.0, [bench.key(job)])
    assert told(bench, job.job) == [(1, "", None, None)]
    bench.cancel(23.0, job.job)
    assert told(bench, job.job) == [(1, "cancelled", None, 23.0)]


def test_a_lost_attempt_may_still_end_its_job(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.requeue(20.0)
    bench.node("n1", 21.0)
    bench.report(22.0, bench.done(job, execution_ms=900))
    assert told(bench, job.job) == [(1, "completed", None, 22.0)]


def test_what_a_node_says_of_a_lost_attempt_replaces_what_was_assumed(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.requeue(20.0)
    bench.node("n1", 21.0)
    bench.report(22.0, bench.lost(job, "it died"))
    assert told(bench, job.job) == [(1, "lost", "it died", 22.0)]


def test_a_lost_attempt_that_is_then_dropped_was_lost(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.requeue(20.0)
    bench.node("n1", 21.0, boot="boot-2")
    bench.reconcile(22.0, [])
    assert [one[:2] + one[3:] for one in told(bench, job.job)] == [(1, "node_lost", 20.0)]


def test_a_job_that_is_given_up_ends_with_its_lost_attempt(bench: Bench) -> None:
    job = bench.running(10.0, max_attempts=1)
    bench.requeue(20.0)
    assert [one[:2] + one[3:] for one in told(bench, job.job)] == [(1, "node_lost", 20.0)]
    assert found(bench, job.job).ended_at == 20.0


def test_a_cancel_in_the_queue_ends_no_attempt(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(12.0, bench.lost(job, "it died"))
    bench.cancel(13.0, job.job)
    assert told(bench, job.job) == [(1, "lost", "it died", 12.0)]
    assert found(bench, job.job).ended_at == 13.0
    waiting, _ = bench.submit(14.0)
    bench.cancel(15.0, waiting.id)
    assert found(bench, waiting.id) == JobAttempts(14.0, 15.0, ())


def test_a_cancelled_attempt_ends_with_its_job_before_and_after_its_node_says_so(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.cancel(13.0, job.job)
    assert found(bench, job.job).attempts == (Attempt(1, "w1", "n1", 10.0, ended_at=13.0, cause="cancelled"),)
    bench.report(14.0, bench.done(job, end="cancelled", execution_ms=3_500))
    (one,) = found(bench, job.job).attempts
    assert (one.cause, one.execution_ms, one.ended_at) == ("cancelled", 3_500, 13.0)


def test_a_retry_keeps_the_attempts_before_it(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(11.0, Chunk(job.job, 1, 0, b"1"))
    bench.report(12.0, bench.done(job, end="failed", error="boom", execution_ms=900))
    bench.retry(13.0, job.job)
    first = Attempt(1, "w1", None, 10.0, 0, 900, 11.0, None, 12.0, "failed", "boom")
    assert found(bench, job.job) == JobAttempts(10.0, None, (first,))
    (second,) = bench.claim(14.0, bench.slot())
    bench.report(15.0, bench.done(second))
    assert found(bench, job.job).attempts[0] == first
    bench.retry(16.0, job.job)  # too late: it has completed
    assert bench.rows("SELECT COUNT(*) FROM attempts") == [(1,)]


def test_a_retry_leaves_an_attempt_before_an_end_in_the_queue_as_it_was(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(11.0, Refused(job.job, 1, "full"))
    bench.end_wait(12.0, job.job, "too slow")
    bench.retry(13.0, job.job)
    assert told(bench, job.job) == [(1, "refused", "the agent refused it: full", 11.0)]


def test_moments_of_an_earlier_attempt_are_not_told_of_a_later_one(bench: Bench) -> None:
    """Also where an attempt goes on from the chunks of the one before."""
    job = bench.running(10.0)
    bench.report(11.0, Chunk(job.job, 1, 0, b"1"), Save(job.job, 1, 0, 1, b"s"), Uploading(job.job, 1))
    bench.report(12.0, bench.lost(job))
    (second,) = bench.claim(40.0, bench.slot())
    assert second.saved is not None
    assert found(bench, job.job).attempts[1] == Attempt(2, "w1", "n1", 40.0)
    bench.report(41.0, Chunk(job.job, 2, 1, b"2"), Uploading(job.job, 2))
    assert found(bench, job.job).attempts[1] == Attempt(2, "w1", "n1", 40.0, chunk_at=41.0, uploading_at=41.0)


def test_the_last_attempts_of_many_are_kept(bench: Bench) -> None:
    job = bench.running(10.0)
    for number in range(1, MOST_ATTEMPTS + 3):
        bench.report(10.0 + number, Refused(job.job, number, "busy", at_once=True))
        bench.claim(10.0 + number, bench.slot())
    numbers = [one.attempt for one in found(bench, job.job, 80.0).attempts]
    assert numbers == list(range(3, MOST_ATTEMPTS + 4))


@pytest.mark.parametrize("end", ["deleted", "expired"])
def test_attempts_go_with_their_job(bench: Bench, end: str) -> None:
    job = bench.running(10.0)
    bench.report(12.0, bench.lost(job))
    if end == "deleted":
        bench.do(lambda conn: store.delete(conn, ACCOUNT, E, job.job, 13.0))
    bench.expire(200_000.0)
    assert bench.rows("SELECT COUNT(*) FROM attempts") == [(0,)]
    assert store.job_attempts(bench.store.writer, ACCOUNT, E, job.job, 13.0) is None


def test_the_beginning_of_a_long_reason_is_kept(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.report(12.0, bench.lost(job, "x" * 5_000))
    (second,) = bench.claim(40.0, bench.slot())
    bench.report(41.0, bench.done(second, end="failed", error="y" * 5_000))
    bench.retry(42.0, job.job)
    assert [one.reason for one in found(bench, job.job).attempts] == ["x" * 1_000, "y" * 1_000]


def test_a_backup_has_the_attempts_of_its_jobs(bench: Bench, tmp_path: Path) -> None:
    job = bench.running(10.0)
    bench.report(12.0, bench.lost(job, "it died"))
    write_snapshot(bench.store, tmp_path / "snapshot.db")
    restored = store.open_store(tmp_path / "snapshot.db", secrets=bench.store.secrets)
    assert store.job_attempts(restored.writer, ACCOUNT, E, job.job, 13.0) == found(bench, job.job)
    restored.close()


def test_a_job_of_another_endpoint_has_none_here(bench: Bench) -> None:
    job = bench.running(10.0)
    bench.put_endpoint("other")
    assert store.job_attempts(bench.store.writer, ACCOUNT, "other", job.job, 11.0) is None
    assert store.job_attempts(bench.store.writer, "nobody", E, job.job, 11.0) is None
