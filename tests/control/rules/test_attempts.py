"""The moments of attempts: in order, inside of their attempt, and none that nobody measured."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.attempts import Attempt, moments, shown

TIMES = st.floats(0, 1e9)
SPANS = st.none() | st.integers(0, 10**9)

attempts = st.builds(
    Attempt,
    attempt=st.integers(1, 5),
    worker=st.just("w"),
    node=st.none() | st.just("n"),
    assigned_at=TIMES,
    wait_ms=SPANS,
    execution_ms=SPANS,
    chunk_at=st.none() | TIMES,
    uploading_at=st.none() | TIMES,
    ended_at=st.none() | TIMES,
    cause=st.sampled_from(["", "completed", "failed", "node_lost"]),
)


@given(attempts)
def test_moments_are_in_order_and_inside_of_their_attempt(attempt: Attempt) -> None:
    at = moments(attempt)
    for later in (at.chunk, at.uploading):
        known = [one for one in (at.assigned, at.started, later, at.ended) if one is not None]
        assert known == sorted(known)


@given(attempts)
def test_no_moment_is_made_up(attempt: Attempt) -> None:
    at = moments(attempt)
    assert (at.chunk is None) == (attempt.chunk_at is None)
    assert (at.uploading is None) == (attempt.uploading_at is None)
    assert (at.ended is None) == (attempt.ended_at is None)
    measured = attempt.wait_ms or attempt.execution_ms or attempt.cause == "completed"
    assert (at.started is None) == (not measured)


def test_an_upload_begins_with_the_end_of_the_work() -> None:
    """The report that it has begun may have waited with others."""
    attempt = Attempt(1, "w", "n", 10.0, 500, 2_000, uploading_at=14.0, ended_at=15.0, cause="completed")
    assert moments(attempt).started == 10.5
    assert moments(attempt).uploading == 12.5
    assert moments(Attempt(1, "w", "n", 10.0, uploading_at=14.0)).uploading == 14.0


def noted(number: int, ended_at: float) -> Attempt:
    return Attempt(number, "w", "n", 1.0, ended_at=ended_at, cause="node_lost")


def test_the_attempt_of_the_jobs_row_comes_last() -> None:
    first = noted(1, 2.0)
    running = Attempt(2, "w", "n", 3.0)
    assert shown([first], running) == (first, running)
    assert shown([first], None) == (first,)
    assert shown([], running) == (running,)


def test_a_lost_attempt_whose_node_came_back_with_its_end_ended_the_job() -> None:
    lost = noted(1, 2.0)
    ended = Attempt(1, "w", "n", 1.0, 0, 7, ended_at=3.0, cause="completed")
    assert shown([lost], ended) == (ended,)
    resumed = Attempt(1, "w", "n", 1.0)
    assert shown([lost], resumed) == (resumed,)


def test_an_attempt_before_a_cancel_in_the_queue_keeps_its_own_end() -> None:
    lost = noted(1, 2.0)
    assert shown([lost], Attempt(1, "w", "n", 1.0, ended_at=3.0, cause="cancelled")) == (lost,)
    gave_up = Attempt(1, "w", "n", 1.0, 0, 0, ended_at=2.0, cause="failed")
    assert shown([lost], gave_up) == (lost,)
