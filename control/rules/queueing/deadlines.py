"""The deadlines of a job: until when it must start, and until when it must end. Pure: durations in, a
sentence of refusal out, or None.

    ttl ............... deletes the job and its record, in any state
    policy.deadline ... ends it as TIMED_OUT, waiting or running; never later than the ttl
    policy.startBy .... ends it as TIMED_OUT while no worker was given it; never later than the deadline
    executionTimeout .. ends one attempt, by the agent

A job is refused at once where it would miss a deadline by what is known: the jobs before it, and how long
jobs took lately. Where that is not known, the job is taken.
"""

from __future__ import annotations


def contradiction(start_by_ms: int | None, deadline_ms: int | None, ttl_ms: int) -> str | None:
    """Returns why these cannot all be meant."""
    latest = ttl_ms if deadline_ms is None else deadline_ms
    if deadline_ms is not None and deadline_ms > ttl_ms:
        return (
            f"policy.deadline must be at most the ttl, when the job is deleted: {ttl_ms}; got {deadline_ms}"
        )
    if start_by_ms is not None and start_by_ms > latest:
        of = "the ttl" if deadline_ms is None else "policy.deadline"
        return f"policy.startBy must be at most {of}: {latest}; got {start_by_ms}"
    return None


def cannot_be_met(
    start_by_s: float | None, deadline_s: float | None, wait_s: float | None, run_s: float | None
) -> str | None:
    """Returns why a job would miss its deadlines, which it has in so many seconds. `wait_s` and `run_s`: how
    long it is expected to wait and to run; None where that is not known."""
    if wait_s is not None and start_by_s is not None and wait_s > start_by_s:
        return _missed("startBy", start_by_s, f"start in about {wait_s:.0f} s")
    if deadline_s is None:
        return None
    known = (wait_s or 0.0) + (run_s or 0.0)
    if known > deadline_s:
        return _missed("deadline", deadline_s, f"end in about {known:.0f} s")
    return None


def _missed(field: str, asked_s: float, what: str) -> str:
    return (
        f"policy.{field}: the job would {what}, by the jobs before it and how long jobs took lately; got"
        f" {asked_s * 1000:.0f} (milliseconds); allow it longer, or give it a higher policy.priority"
    )


def missed(created_at: float, late_at: float, deadline: float | None) -> str:
    """Returns the error of a job that was ended at `late_at`; where that is not its deadline, no worker was
    given it."""
    within = f"within the {round(late_at - created_at, 3):g} s of"
    if deadline is None or late_at < deadline:
        return f"the job did not start {within} policy.startBy, and was ended"
    return f"the job did not end {within} policy.deadline, and was stopped"
