"""The consequences of failures: whether a job or a webhook is tried again, when, and a job's error when it is
given up.

Pure. The store calls these functions; a job has the counts of what happened before.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from stoker.control.rules.limits import WEBHOOK_RETRY_S, WEBHOOK_TAKEN, WEBHOOK_TRIES

MAX_ATTEMPTS = 3
"""A job whose attempts failed this often, through no fault of its handler's answer, fails: the default."""

MAX_ASSIGNMENTS = 10
"""A job that was assigned this often and came back uncounted fails: it may be what kills its agents."""

BACKOFF_S = (0.0, 2.0, 10.0)
"""The wait before the next try after the first, second, third counted failure, and every later one."""

FAILURES = ("lost", "failed")
"""Ends of an attempt after which it may be tried again; `after_failure` decides whether it is."""

YIELDED = "yielded"
"""The first word of the reason of a job that gave up its place."""

REFUSED_BACKOFF_S = 0.1
REFUSED_BACKOFF_MAX_S = 30.0


class Again(Struct, frozen=True):
    """Try again, not before `not_before`; or, when that is None, fail with the message `why`."""

    not_before: float | None
    why: str


class Counts(Struct, frozen=True):
    """Failures after which a job was tried again, by kind, and what bounds each kind."""

    failures: int = 0
    handler_failures: int = 0
    max_attempts: int = MAX_ATTEMPTS
    handler_retries: int = 0


def retries(attempt: int, refused: int) -> int:
    """Returns how often the job was assigned again; attempts that an agent refused do not count."""
    return max(attempt - refused - 1, 0)


def after_failure(
    end: str, retryable: bool, error: str | None, counts: Counts, at: float, *, progressed: bool = False
) -> tuple[Again, Counts]:
    """Decides after an attempt failed. `counts` are those before this failure; returned with it, if the
    failure is followed by another try. `progressed`: the attempt had saved something new, so that its failure
    is not counted."""
    if end == "failed" and not retryable:
        return _after_error(error, counts, at)
    counted = counts.failures + 1
    why = error or ("worker died" if end == "lost" else "the handler failed")
    if progressed:
        return Again(at + _backoff(1), why), counts
    if counted < counts.max_attempts:
        return Again(at + _backoff(counted), why), replace(counts, failures=counted)
    return Again(None, _gave_up(why, counted) if end == "lost" else why), counts


def _after_error(error: str | None, counts: Counts, at: float) -> tuple[Again, Counts]:
    """Decides after a handler's plain error. The error's text stays as it is."""
    counted = counts.handler_failures + 1
    why = error or "the handler failed"
    if counted <= counts.handler_retries:
        return Again(at + _backoff(counted), why), replace(counts, handler_failures=counted)
    return Again(None, why), counts


def _backoff(counted: int) -> float:
    return BACKOFF_S[min(counted, len(BACKOFF_S)) - 1]


def _gave_up(why: str, counted: int) -> str:
    return f"{why}; gave up after {counted} attempt{'s' if counted > 1 else ''}"


def after_refusal(backoffs: int, why: str, at: float, *, at_once: bool = False) -> Again:
    """Decides after an agent refused the job, which `backoffs` refusals before this one made to wait. Never
    gives up: the ttl bounds the job. With `at_once` there is nothing to wait for: the job's node is leaving,
    or another worker can have it."""
    wait = 0.0 if at_once else min(REFUSED_BACKOFF_S * 2 ** min(backoffs, 16), REFUSED_BACKOFF_MAX_S)
    return Again(at + wait, f"the agent refused it: {why}" if why else "the agent refused it")


def after_yield(why: str, at: float) -> Again:
    """Decides after the attempt saved and gave up its place, as it was asked to: it is not counted."""
    return Again(at, f"{YIELDED}: {why}" if why else YIELDED)


def after_lost_save(why: str, at: float) -> Again:
    """Decides after the save that the attempt was to go on from turned out to be gone for good. That is not
    the job's fault, and there is no save that could be gone the next time."""
    return Again(at, f"the job begins anew: {why}")


def after_no_sending(node: str, at: float) -> Again:
    """Decides after the session of the job's node ended before the job's Assign was sent."""
    return Again(at, f"the connection of node {node} ended before it was sent there")


def after_loss(
    node: str, why: str, counts: Counts, assigned: int, at: float, *, uncounted: bool = False
) -> Again:
    """Decides after the node that held the job sent nothing for too long, or its stream broke. `assigned`:
    how often the job was assigned. `uncounted`: this is not a failure of the job, as it lay ahead of a
    worker, or had saved something new."""
    counted = counts.failures + 1
    lost = f"node {node} was lost: {why}"
    if not uncounted and counted >= counts.max_attempts:
        return Again(None, _gave_up(lost, counted))
    again = after_drop(node, assigned, at)
    return again if again.not_before is None else Again(again.not_before, lost)


def after_drop(node: str, assigned: int, at: float) -> Again:
    """Decides after the node came back without the job: the Assign was never taken, or its agent was
    restarted."""
    why = f"node {node} came back without it"
    if assigned >= MAX_ASSIGNMENTS:
        return Again(None, f"{why}; gave up after it was assigned {assigned} times")
    return Again(at, why)


def is_delivered(status: int) -> bool:
    """Returns whether the receiver's answer means that it has the webhook; any other is a failed try."""
    return status == WEBHOOK_TAKEN


def webhook_again_at(failed: int, now: float) -> float | None:
    """Returns when a webhook is tried again after this many failures, the last of them now; None: no more."""
    return now + WEBHOOK_RETRY_S if failed < WEBHOOK_TRIES else None
