"""The job machine: one example for each hazard, and properties over any order of events.

`job_machine` is looked up when a test runs: test_job_mutants.py puts broken copies in its place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.control.rules.job_states import TERMINAL, JobState
from stoker.control.rules.retries import MAX_ASSIGNMENTS
from tests.control import job_machine
from tests.profiles import examples

FRESH = {"created_at": 100.0, "ttl_at": 10_000.0}


def play(*events: Any, **facts: Any) -> Any:
    """The job after these events."""
    job = job_machine.Job(**(FRESH | facts))
    for event in events:
        job, _ = job_machine.step(job, event)
    return job


def claimed(at: float = 101.0, node: str = "n1") -> Any:
    return job_machine.JobClaimed(at, node, "w1")


def ended(end: str, attempt: int = 1, node: str = "n1", at: float = 110.0, **fields: Any) -> Any:
    return job_machine.Ended(at, node, attempt, end, **fields)


# ---- the plain path -------------------------------------------------------------------------------


def test_a_claim_raises_the_attempt_and_assigns_it() -> None:
    job, commands = job_machine.step(play(), claimed())
    assert job.attempt == 1
    assert job.name is JobState.IN_PROGRESS
    assert commands == (job_machine.AssignToWorker("n1", "w1", 1), job_machine.Publish(JobState.IN_PROGRESS))


def test_each_end_has_its_state() -> None:
    ends = {"completed": "COMPLETED", "failed": "FAILED", "timed_out": "TIMED_OUT", "cancelled": "CANCELLED"}
    for end, state in ends.items():
        assert play(claimed(), ended(end)).name == state


def test_an_ended_job_is_kept_for_its_retention() -> None:
    assert play(claimed(), ended("completed")).expires_at == 110.0 + 1800.0
    assert play(claimed(), ended("completed"), retention_s=60.0).expires_at == 110.0 + 60.0
    assert play(job_machine.CancelRequested(110.0), retention_s=60.0).expires_at == 110.0 + 60.0


def test_a_job_that_lives_is_kept_for_its_ttl() -> None:
    assert play(claimed(), retention_s=60.0).expires_at == 10_000.0


def test_the_end_does_not_lengthen_the_ttl() -> None:
    assert play(claimed(), ended("completed"), ttl_at=120.0).expires_at == 120.0
    assert play(job_machine.CancelRequested(110.0), ttl_at=120.0).expires_at == 120.0


# ---- failures -------------------------------------------------------------------------------------


def test_a_handlers_error_is_not_tried_again() -> None:
    job = play(claimed(), ended("failed", error="ValueError: no"))
    assert job.state == job_machine.Failed(110.0, "ValueError: no")
    assert (job.failures, job.handler_failures) == (0, 0)


def tried(end: str, times: int, **facts: Any) -> Any:
    """The job after so many attempts that ended so, each claimed once its back-off was over."""
    job = play(**facts)
    for attempt in range(1, times + 1):
        job, _ = job_machine.step(job, claimed(attempt * 100.0))
        job, _ = job_machine.step(job, ended(end, attempt, at=attempt * 100.0 + 1, error="no"))
    return job


def test_an_endpoint_may_want_its_handlers_errors_tried_again() -> None:
    waits = [tried("failed", times, handler_retries=4).state.not_before for times in (1, 2, 3, 4)]
    assert waits == [101.0, 203.0, 311.0, 411.0]  # the last wait repeats
    job = tried("failed", 5, handler_retries=4)
    assert job.state == job_machine.Failed(501.0, "no")
    assert (job.failures, job.handler_failures) == (0, 4)


def test_each_kind_of_failure_has_its_own_bound() -> None:
    assert tried("lost", 9, max_attempts=10).failures == 9
    assert tried("lost", 10, max_attempts=10).state == job_machine.Failed(
        1001.0, "no; gave up after 10 attempts"
    )
    assert tried("lost", 1, max_attempts=1).state == job_machine.Failed(101.0, "no; gave up after 1 attempt")
    mixed = play(claimed(), ended("lost"), claimed(200.0), ended("failed", 2), handler_retries=1)
    assert (mixed.name, mixed.failures, mixed.handler_failures) == (JobState.IN_QUEUE, 1, 1)


def test_a_job_that_waits_knows_why_until_it_ends() -> None:
    job = play(claimed(), ended("lost", error="worker died: killed by SIGKILL"))
    assert job.reason == "worker died: killed by SIGKILL"
    job = play(claimed(), job_machine.AttemptRefused(105.0, "n1", 1, "draining"))
    assert job.reason == "the agent refused it: draining"
    assert play(claimed(), job_machine.NodeLost(105.0, "n1", "no word")).reason == "node n1 was lost: no word"
    dropped = play(claimed(), job_machine.Dropped(105.0, "n1"))
    assert dropped.reason == "node n1 came back without it"
    assert job_machine.step(dropped, claimed(106.0))[0].reason == dropped.reason
    assert job_machine.step(dropped, job_machine.CancelRequested(106.0))[0].reason is None


def test_a_retryable_error_is_tried_again_and_ends_with_the_handlers_own_message() -> None:
    job = play()
    for attempt in (1, 2, 3):
        at = attempt * 100.0 + 100.0
        job, _ = job_machine.step(job, claimed(at))
        assert job.attempt == attempt
        job, _ = job_machine.step(job, ended("failed", attempt, at=at + 1, error="busy", retryable=True))
    assert job.state == job_machine.Failed(401.0, "busy")


def test_a_dead_worker_is_tried_again_at_once_then_after_a_while() -> None:
    job, commands = job_machine.step(play(claimed()), ended("lost", error="worker died"))
    assert job.state == job_machine.Queued(110.0)
    assert commands == (job_machine.Publish(JobState.IN_QUEUE), job_machine.Retry(110.0))
    job, _ = job_machine.step(job, claimed(110.0))
    job, _ = job_machine.step(job, ended("lost", 2, at=120.0))
    assert job.state == job_machine.Queued(122.0)


def test_the_third_death_is_the_last_and_says_so() -> None:
    job = play()
    for attempt in (1, 2, 3):
        job, _ = job_machine.step(job, claimed(attempt * 100.0 + 100.0))
        dead = ended("lost", attempt, at=attempt * 100.0 + 101.0, error="worker died: killed by SIGKILL")
        job, _ = job_machine.step(job, dead)
    assert job.state == job_machine.Failed(401.0, "worker died: killed by SIGKILL; gave up after 3 attempts")
    assert job.retries == 2


def test_a_death_without_a_reason_still_has_a_message() -> None:
    again, _ = job_machine.after_failure("lost", False, None, job_machine.Counts(failures=2), 0.0)
    assert again.why == "worker died; gave up after 3 attempts"
    assert (
        job_machine.after_failure("failed", False, None, job_machine.Counts(), 0.0)[0].why
        == "the handler failed"
    )


def test_back_off_is_respected_by_claims() -> None:
    job = play(claimed(), ended("lost"), claimed(110.0), ended("lost", 2))
    assert job_machine.step(job, claimed(111.9)) == (job, ())
    assert job_machine.step(job, claimed(112.0))[0].attempt == 3


def test_a_second_copy_of_a_lost_outcome_is_not_counted() -> None:
    once = play(claimed(), ended("lost"))
    assert play(claimed(), ended("lost"), ended("lost")) == once


def test_refusals_are_not_counted_and_do_not_show() -> None:
    job = play()
    for attempt in range(1, 6):
        job, _ = job_machine.step(job, claimed(attempt * 100.0))
        job, _ = job_machine.step(job, job_machine.AttemptRefused(attempt * 100.0, "n1", attempt))
        assert job.name is JobState.IN_QUEUE
    assert (job.attempt, job.failures, job.refused, job.retries) == (5, 0, 5, 0)
    # Five refusals in a row: an agent that cannot take it is not asked in a loop.
    assert job.state.not_before == 500.0 + 0.1 * 2**4
    assert job_machine.after_refusal(1000, "", 0.0) == job_machine.Again(30.0, "the agent refused it")


def test_only_refusals_that_it_waited_for_make_it_wait_longer() -> None:
    job = play()
    for attempt in range(1, 9):  # handed back, as what lay ahead of a worker is
        job, _ = job_machine.step(job, claimed(attempt * 100.0))
        back = job_machine.AttemptRefused(attempt * 100.0, "n1", attempt, "busy", at_once=True)
        job, _ = job_machine.step(job, back)
        assert job.state == job_machine.Queued(attempt * 100.0)
    job, _ = job_machine.step(job, claimed(900.0))
    job, _ = job_machine.step(job, job_machine.AttemptRefused(900.0, "n1", 9, "no worker"))
    assert job.state == job_machine.Queued(900.1)
    assert (job.refused, job.backoffs, job.retries) == (9, 1, 0)


def test_what_was_never_sent_is_not_counted_and_does_not_wait() -> None:
    job, commands = job_machine.step(play(claimed()), job_machine.NotSent(105.0, "n1", 1))
    assert job.state == job_machine.Queued(105.0)
    assert job.reason == "the connection of node n1 ended before it was sent there"
    assert (job.failures, job.backoffs, job.refused, job.assigned) == (0, 0, 1, 0)
    assert commands[0] == job_machine.Publish(JobState.IN_QUEUE)
    for stale in (job_machine.NotSent(106.0, "n1", 1), job_machine.NotSent(106.0, "n2", 1)):
        assert job_machine.step(job, stale) == (job, ())


def test_a_callers_retry_begins_the_back_off_anew() -> None:
    job = play(
        claimed(100.0), job_machine.AttemptRefused(100.0, "n1", 1), claimed(200.0), ended("timed_out", 2)
    )
    job, _ = job_machine.step(job, job_machine.RetryRequested(300.0))
    job, _ = job_machine.step(job, claimed(300.0))
    job, _ = job_machine.step(job, job_machine.AttemptRefused(300.0, "n1", 3))
    assert job.state == job_machine.Queued(300.1)


# ---- nodes come and go ------------------------------------------------------------------------------

LOST = job_machine.NodeLost(160.0, "n1", "no word from it for 60 s")


def test_a_lost_node_does_not_raise_the_attempt_and_keeps_it_open() -> None:
    job = play(claimed(), LOST)
    assert job.attempt == 1
    assert job.state == job_machine.Queued(160.0, "n1", True)


def test_an_outcome_is_taken_from_the_queue() -> None:
    assert play(claimed(), LOST, ended("completed", at=200.0)).name is JobState.COMPLETED


def test_the_loss_of_a_node_is_no_failure_of_what_lay_ahead_of_its_workers() -> None:
    assert play(claimed(), LOST, claimed(161.0, "n2")).failures == 1
    assert play(claimed(), replace(LOST, ahead=True), claimed(161.0, "n2")).failures == 0


def test_an_outcome_is_stale_once_another_node_has_claimed() -> None:
    job = play(claimed(), LOST, claimed(161.0, "n2"))
    assert job_machine.step(job, ended("completed", 1, "n1")) == (job, ())
    assert job_machine.step(job, ended("completed", 2, "n1")) == (job, ())
    assert job_machine.step(job, ended("completed", 1, "n2")) == (job, ())
    assert job_machine.step(job, ended("completed", 2, "n2"))[0].name is JobState.COMPLETED


def test_a_lost_node_counts_once_its_job_is_given_to_another() -> None:
    job = play(claimed(), LOST)
    assert job.failures == 0
    assert job_machine.step(job, claimed(161.0, "n2"))[0].failures == 1


def test_a_node_that_comes_back_with_the_attempt_goes_on_uncounted() -> None:
    job = play(claimed(), LOST, job_machine.Resumed(165.0, "n1", 1))
    assert job.state == job_machine.InProgress("n1")
    assert (job.attempt, job.failures) == (1, 0)


def test_a_lost_node_that_comes_back_empty_counts() -> None:
    job = play(claimed(), LOST, job_machine.Dropped(165.0, "n1"))
    assert job.state == job_machine.Queued(165.0)
    assert job.failures == 1


def test_the_death_of_a_worker_on_a_lost_node_counts_once() -> None:
    job = play(claimed(), LOST, ended("lost"), claimed(200.0, "n2"))
    assert job.failures == 1


def test_an_assign_that_was_never_taken_is_not_counted() -> None:
    job = play(claimed(), job_machine.Dropped(105.0, "n1"))
    assert job.state == job_machine.Queued(105.0)
    assert job.failures == 0
    assert play(claimed(), job_machine.Dropped(105.0, "n2")).name is JobState.IN_PROGRESS


def test_the_third_lost_node_is_the_last() -> None:
    job = play()
    for at in (200.0, 300.0, 400.0):
        job, _ = job_machine.step(job, claimed(at))
        job, commands = job_machine.step(job, job_machine.NodeLost(at + 60.0, "n1", "no word"))
    assert job.state == job_machine.Failed(460.0, "node n1 was lost: no word; gave up after 3 attempts")
    assert commands == (job_machine.Publish(JobState.FAILED),)


def test_a_job_that_kills_its_agents_is_given_up() -> None:
    job = play()
    for time in range(1, 11):
        assert job.name is JobState.IN_QUEUE
        job, _ = job_machine.step(job, claimed(100.0 + time))
        job, _ = job_machine.step(job, job_machine.Dropped(100.0 + time, "n1"))
    assert job.name is JobState.FAILED
    assert "assigned 10 times" in job.state.error


# ---- tried again on demand --------------------------------------------------------------------------

RETRY = job_machine.RetryRequested(500.0)


def test_a_failed_job_is_tried_again_with_fresh_counts_and_its_old_ttl() -> None:
    failed = tried("failed", 2, handler_retries=1, retention_s=900.0)
    assert failed.expires_at == 1_101.0
    job, commands = job_machine.step(failed, RETRY)
    assert commands == (job_machine.Publish(JobState.IN_QUEUE), job_machine.Retry(500.0))
    assert job.state == job_machine.Queued(500.0)
    assert (job.failures, job.handler_failures, job.reason) == (0, 0, None)
    assert job.expires_at == 10_000.0
    assert (job.attempt, job.retries, job.first_attempt) == (2, 1, 3)
    assert job_machine.step(job, claimed(501.0))[0].attempt == 3
    assert play(claimed(), ended("lost"), claimed(200.0), ended("failed", 2), RETRY).failures == 0


def test_only_failed_and_timed_out_jobs_are_tried_again() -> None:
    assert play(claimed(), ended("timed_out"), RETRY).name is JobState.IN_QUEUE
    others = [
        play(),
        play(claimed()),
        play(claimed(), ended("completed")),
        play(job_machine.CancelRequested(105.0)),
        play(claimed(), job_machine.Expired(10_000.0)),
    ]
    for job in others:
        assert job_machine.step(job, RETRY) == (job, ())


def test_a_record_whose_time_has_passed_is_not_tried_again() -> None:
    job = play(claimed(), ended("failed"), retention_s=60.0)
    assert job_machine.step(job, job_machine.RetryRequested(170.0)) == (job, ())
    assert job_machine.step(job, job_machine.RetryRequested(169.0))[0].name is JobState.IN_QUEUE


def test_a_retry_counts_what_is_given_out_anew() -> None:
    job = play(claimed(100.0), job_machine.AttemptRefused(100.0, "n1", 1))
    for time in range(1, 11):
        job, _ = job_machine.step(job, claimed(100.0 + time))
        job, _ = job_machine.step(job, job_machine.Dropped(100.0 + time, "n1"))
    job, _ = job_machine.step(job, job_machine.RetryRequested(200.0))
    job, _ = job_machine.step(job, claimed(201.0))
    refused, _ = job_machine.step(job, job_machine.AttemptRefused(202.0, "n1", 12))
    assert (refused.assigned_before, refused.assigned) == (10, 0)
    job, _ = job_machine.step(job, job_machine.Dropped(202.0, "n1"))
    assert (job.name, job.assigned_before, job.assigned) == (JobState.IN_QUEUE, 10, 1)


def test_late_news_does_not_undo_a_retry() -> None:
    job = play(claimed(), ended("failed"), RETRY)
    for news in (ended("completed"), job_machine.Resumed(501.0, "n1", 1), job_machine.Dropped(501.0, "n1")):
        assert job_machine.step(job, news) == (job, ())


# ---- cleared queues, shorter lives ------------------------------------------------------------------


def test_a_purge_cancels_what_waits_and_says_so() -> None:
    job, commands = job_machine.step(play(), job_machine.Purged(105.0))
    assert (job.state, job.reason) == (job_machine.Cancelled(105.0), "purged")
    assert commands == (job_machine.Publish(JobState.CANCELLED),)


def test_a_purge_leaves_what_runs_or_has_ended() -> None:
    for job in (play(claimed()), play(claimed(), ended("failed")), play(job_machine.CancelRequested(104.0))):
        assert job_machine.step(job, job_machine.Purged(105.0)) == (job, ())


def test_a_purge_stops_the_attempt_of_a_node_that_was_lost() -> None:
    _, commands = job_machine.step(play(claimed(), LOST), job_machine.Purged(165.0))
    assert commands == (
        job_machine.CancelOnNode("n1", 1, "cancelled"),
        job_machine.Publish(JobState.CANCELLED),
    )


def test_a_life_is_shortened_and_never_lengthened() -> None:
    job, commands = job_machine.step(play(claimed()), job_machine.Shortened(105.0, 200.0))
    assert (job.ttl_at, job.expires_at, commands) == (200.0, 200.0, ())
    assert job_machine.step(job, job_machine.Shortened(105.0, 300.0))[0] == job
    assert job_machine.step(job, job_machine.Expired(200.0))[0].state == job_machine.Gone()


def test_a_shortened_record_keeps_its_shorter_retention() -> None:
    record = play(claimed(), ended("failed"), job_machine.Shortened(120.0, 5_000.0), retention_s=60.0)
    assert record.expires_at == 170.0
    assert job_machine.step(record, job_machine.RetryRequested(160.0))[0].expires_at == 5_000.0
    late = job_machine.Shortened(170.0, 171.0)
    assert job_machine.step(record, late) == (record, ())


# ---- cancel and expiry ------------------------------------------------------------------------------


def test_cancel_is_at_once_and_stops_the_node() -> None:
    job, commands = job_machine.step(play(claimed()), job_machine.CancelRequested(105.0))
    assert job.state == job_machine.Cancelled(105.0)
    assert commands == (
        job_machine.CancelOnNode("n1", 1, "cancelled"),
        job_machine.Publish(JobState.CANCELLED),
    )


def test_cancel_of_a_queued_job_stops_nobody() -> None:
    assert job_machine.step(play(), job_machine.CancelRequested(105.0))[1] == (
        job_machine.Publish(JobState.CANCELLED),
    )


def test_a_late_outcome_does_not_undo_a_cancel() -> None:
    job = play(claimed(), job_machine.CancelRequested(105.0))
    assert job_machine.step(job, ended("completed")) == (job, ())


def test_a_cancel_does_not_undo_an_end() -> None:
    job = play(claimed(), ended("completed"))
    assert job_machine.step(job, job_machine.CancelRequested(111.0)) == (job, ())


def test_a_wait_that_is_over_times_the_job_out_and_stops_the_node() -> None:
    job, commands = job_machine.step(play(claimed()), job_machine.WaitOver(105.0, "too slow"))
    assert job.state == job_machine.TimedOut(105.0, "too slow")
    assert commands == (
        job_machine.CancelOnNode("n1", 1, "cancelled"),
        job_machine.Publish(JobState.TIMED_OUT),
    )
    assert job_machine.step(job, ended("completed")) == (job, ())
    assert job_machine.step(job, job_machine.RetryRequested(110.0))[0].name is JobState.IN_QUEUE


def test_a_wait_that_is_over_undoes_no_end() -> None:
    for job in (play(claimed(), ended("completed")), play(job_machine.CancelRequested(104.0))):
        assert job_machine.step(job, job_machine.WaitOver(111.0, "too slow")) == (job, ())
    late = job_machine.WaitOver(10_000.0, "too slow")
    assert job_machine.step(play(), late) == (play(), ())


def test_expiry_stops_running_work() -> None:
    job, commands = job_machine.step(play(claimed()), job_machine.Expired(10_000.0))
    assert job.state == job_machine.Gone()
    assert commands == (job_machine.CancelOnNode("n1", 1, "expired"), job_machine.Publish(None))


def test_nothing_expires_before_its_time() -> None:
    job = play(claimed())
    assert job_machine.step(job, job_machine.Expired(9_999.0)) == (job, ())


def test_an_expired_job_is_neither_claimed_nor_cancelled() -> None:
    job = play()
    assert job_machine.step(job, claimed(10_000.0)) == (job, ())
    assert job_machine.step(job, job_machine.CancelRequested(10_000.0)) == (job, ())


def test_wake_at_names_the_back_off_then_the_expiry() -> None:
    waiting = play(claimed(), ended("lost"), claimed(110.0), ended("lost", 2))
    assert job_machine.wake_at(waiting) == 112.0
    assert job_machine.wake_at(play()) == 10_000.0
    assert job_machine.wake_at(replace(waiting, state=job_machine.Gone())) is None


# ---- properties -------------------------------------------------------------------------------------

NODES = st.sampled_from(["n1", "n2"])
GAPS = st.sampled_from([0.0, 0.5, 3.0, 70.0])


def _event(kind: str, at: float, node: str, attempt: int, end: str, yes: bool) -> Any:
    match kind:
        case "claim":
            return job_machine.JobClaimed(at, node, "w1")
        case "resume":
            return job_machine.Resumed(at, node, attempt)
        case "end":
            return job_machine.Ended(at, node, attempt, end, "why", yes)
        case "refuse":
            return job_machine.AttemptRefused(at, node, attempt)
        case "drop":
            return job_machine.Dropped(at, node)
        case "lose":
            return job_machine.NodeLost(at, node, "why", ahead=yes)
        case "cancel":
            return job_machine.CancelRequested(at)
        case "purge":
            return job_machine.Purged(at)
        case "wait_over":
            return job_machine.WaitOver(at, "why")
        case "reopen":
            return job_machine.RetryRequested(at)
        case "shorten":
            return job_machine.Shortened(at, at + 500.0)
        case _:
            return job_machine.Expired(at)


# Claims and infrastructure's news are drawn more often than ends: else most steps are of a dead job.
KINDS = st.sampled_from(
    ["claim"] * 6
    + ["lose", "drop", "resume", "refuse"] * 2
    + ["end"] * 3
    + ["reopen"] * 2
    + ["cancel", "purge", "wait_over", "shorten", "expire"]
)
ENDS = st.sampled_from(["lost", "lost", "lost", "failed", "completed", "timed_out", "cancelled"])
STEPS = st.lists(st.tuples(KINDS, GAPS, NODES, st.integers(-1, 1), ENDS, st.booleans()), max_size=40)


@settings(max_examples=examples(300), deadline=None, database=None)
@given(STEPS, st.sampled_from([60.0, 1_800.0]), st.integers(1, 4), st.integers(0, 3))
def test_whatever_happens(
    steps: list[tuple[str, float, str, int, str, bool]], kept: float, most: int, again: int
) -> None:
    at = 100.0
    job = job_machine.Job(at, 2_000.0, retention_s=kept, max_attempts=most, handler_retries=again)
    for kind, gap, node, off, end, yes in steps:
        at += gap
        # The holder is the likelier sender: news from elsewhere is stale by rule and teaches little.
        sender = job_machine.holder(job) or node if yes else node
        event = _event(kind, at, sender, max(job.attempt + (0 if yes else off), 0), end, yes)
        after, commands = job_machine.step(job, event)
        _check(job, event, after, commands)
        job = after


def _check(job: Any, event: Any, after: Any, commands: tuple[Any, ...]) -> None:
    claims = isinstance(event, job_machine.JobClaimed) and after != job
    reopened = isinstance(event, job_machine.RetryRequested) and after != job
    shortened = isinstance(event, job_machine.Shortened)
    assert after.attempt == job.attempt + claims
    assert bool(commands) == (after != job and not shortened)
    assert sum(isinstance(one, job_machine.AssignToWorker) for one in commands) == claims
    _check_counts(job, after, reopened)
    _check_table(job, after)
    assert after.ttl_at == (min(job.ttl_at, event.until) if shortened and after != job else job.ttl_at)
    if after.name is not None:
        assert after.expires_at <= (job.ttl_at if reopened else job.expires_at)
    if job.name in TERMINAL:
        assert after.state == job.state or reopened or isinstance(after.state, job_machine.Gone)
    if after.name in TERMINAL:
        assert after.reason in (None, job_machine.PURGED)
    if job_machine.holder(job) is not None and after.name in TERMINAL:
        stops = [one for one in commands if isinstance(one, job_machine.CancelOnNode)]
        assert bool(stops) == isinstance(
            event, job_machine.CancelRequested | job_machine.Purged | job_machine.WaitOver
        )
    if isinstance(event, job_machine.Ended) and after != job:
        assert job_machine.holder(job) == event.node
        assert job.attempt == event.attempt


def _check_counts(job: Any, after: Any, reopened: bool) -> None:
    if reopened:
        assert (after.failures, after.handler_failures, after.assigned) == (0, 0, 0)
        return
    raised = after.failures - job.failures, after.handler_failures - job.handler_failures
    assert raised in ((0, 0), (1, 0), (0, 1))
    assert after.failures < job.max_attempts
    assert after.handler_failures <= job.handler_retries
    assert 0 <= after.assigned <= MAX_ASSIGNMENTS
    assert (after.assigned_before, after.first_attempt) == (job.assigned_before, job.first_attempt)


def _check_table(job: Any, after: Any) -> None:
    """No move that the table does not have."""
    if job.name == after.name:
        return
    allowed = {
        target
        for rule in job_machine.MOVES.values()
        if job.name in rule.sources
        for target in (rule.targets or {None})
    }
    assert after.name in allowed
