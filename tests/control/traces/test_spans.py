"""The spans of any attempt lie within their parents, in order; and a handler's parent is its `execute`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView, TracedAttempt
from stoker.control.traces.spans import TraceSpan, execute_span, of_attempt, of_job
from stoker.control.traces.traceparent import Traceparent

PARENT = Traceparent("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
TIMES = st.floats(0, 1e10)
ATTEMPTS = st.builds(
    TracedAttempt,
    st.just(str(PARENT)),
    TIMES,
    st.integers(1, 4),
    st.just("node-1"),
    st.just("w1"),
    st.sampled_from(["completed", "failed", "timed_out", "cancelled", "lost"]),
    TIMES,
    st.integers(0, 2**40),
    st.integers(0, 2**40),
    st.booleans(),
)


def spans(attempt: TracedAttempt, now: float) -> dict[str, TraceSpan]:
    return {span.name: span for span in of_attempt(PARENT, "j1", "echo", attempt, now)}


@given(ATTEMPTS, st.floats(0, 1e9))
def test_of_any_attempt(attempt: TracedAttempt, later: float) -> None:
    """Clocks may have been set between the claim and the end."""
    now = attempt.created_at + later
    found = spans(attempt, now)
    last = "upload" if attempt.uploaded else "report"
    assert set(found) == {"attempt", "assign", "execute", last} | (
        {"queue"} if attempt.attempt == 1 else set()
    )
    assert all(span.began <= span.ended <= now for span in found.values())
    whole, parts = found["attempt"], [found[name] for name in ("assign", "execute", last)]
    assert [part.parent for part in parts] == [whole.own.span] * 3
    assert [part.began for part in parts] == [whole.began, parts[0].ended, parts[1].ended]
    assert parts[2].ended == whole.ended == now
    assert found["execute"].own == execute_span(PARENT, "j1", attempt.attempt)
    assert whole.failed == (attempt.end in {"failed", "timed_out", "lost"})
    ids = [span.own.span for span in found.values()]
    assert len({*ids, PARENT.span}) == len(ids) + 1


@given(ATTEMPTS)
def test_attempts_of_one_job_share_nothing_but_the_job(attempt: TracedAttempt) -> None:
    one, other = (
        spans(replace(attempt, attempt=number), attempt.created_at) for number in (attempt.attempt, 9)
    )
    assert {span.own.span for span in one.values()}.isdisjoint(span.own.span for span in other.values())
    assert one["attempt"].parent == other["attempt"].parent


@pytest.mark.parametrize(
    "state", [JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED]
)
def test_of_a_job(state: JobState) -> None:
    view = JobView("j1", "echo", state, 5.0, attempt=2, retries=1, error="hf_swordfish", output=b"a prompt")
    span = of_job(PARENT, view, 9.0)
    assert (span.parent, span.began, span.ended) == (PARENT.span, 5.0, 9.0)
    assert span.failed == (state in {JobState.FAILED, JobState.TIMED_OUT})
    assert set(span.attributes.values()) == {"j1", "echo", state.value, 2, 1}
