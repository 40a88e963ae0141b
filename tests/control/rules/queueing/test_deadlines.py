"""Deadlines: contradictions are refused, and what would be missed by what is known; nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.control.rules.queueing.deadlines import cannot_be_met, contradiction, missed

durations = st.integers(1_000, 10_000)
seconds = st.integers(0, 100).map(float)


@given(st.none() | durations, st.none() | durations, durations)
def test_a_job_starts_before_it_ends_and_ends_before_it_is_deleted(
    start_by: int | None, deadline: int | None, ttl: int
) -> None:
    why = contradiction(start_by, deadline, ttl)
    meant = (start_by or 0) <= (ttl if deadline is None else deadline) and (deadline or 0) <= ttl
    assert (why is None) == meant
    if why is not None:
        assert why.startswith("policy.")
        assert why.endswith((f"got {start_by}", f"got {deadline}"))


@given(*[st.none() | seconds] * 4)
def test_a_job_is_refused_where_what_is_known_alone_misses(
    start_by: float | None, deadline: float | None, wait: float | None, run: float | None
) -> None:
    why = cannot_be_met(start_by, deadline, wait, run)
    starts_late = start_by is not None and wait is not None and wait > start_by
    ends_late = deadline is not None and (wait or 0.0) + (run or 0.0) > deadline
    assert (why is None) == (not starts_late and not ends_late)
    assert why is None or why.startswith("policy.startBy" if starts_late else "policy.deadline")


def test_what_is_not_known_refuses_nothing() -> None:
    assert cannot_be_met(1.0, 1.0, None, None) is None
    assert cannot_be_met(None, None, 9.0, 9.0) is None


def test_the_error_names_the_deadline_that_was_missed() -> None:
    started, ended = "the job did not start within the", "the job did not end within the"
    assert missed(10.0, 15.5, None) == f"{started} 5.5 s of policy.startBy, and was ended"
    assert missed(10.0, 15.0, 20.0) == f"{started} 5 s of policy.startBy, and was ended"
    assert missed(10.0, 20.0, 20.0) == f"{ended} 10 s of policy.deadline, and was stopped"
