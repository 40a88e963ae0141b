"""The spans of requests and jobs, made after the fact from the times that are stored or reported anyway.

    POST /v2/{endpoint_id}/run       the request, below the caller's span
      store                          from its acceptance to the commit
      job                            from its acceptance to its end
        queue                        until it was claimed first
        attempt                      from a claim to the outcome
          assign                     over gRPC to its agent, and there until its worker began it
          execute                    the handler: the parent of spans that it makes itself
          upload                     until the outcome was stored; `report` where nothing was uploaded

Pure. Durations are the agent's and places in time control's, so clocks of nodes need not agree; the way of a
message counts to the part before it. No span has an input, an output, an error's text or a URL. An attempt
that was lost with its node, or cancelled by its caller, has no span: nobody knows by then what it did. Nor
has a job whose ttl passed before it ended, as its record is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from stoker.control.rules.job_states import JobState
from stoker.control.rules.types import JobView, TracedAttempt
from stoker.control.traces.traceparent import Traceparent


class TraceSpan(Struct, frozen=True):
    """A span: its ids, its parent's id ("" for the first one of a trace), and its times in seconds since the
    epoch. `served`: it answers a request. `failed`: as its reader would call it."""

    name: str
    own: Traceparent
    parent: str
    began: float
    ended: float
    attributes: Mapping[str, str | int]
    served: bool = False
    failed: bool = False


def job_span(parent: Traceparent, job: str) -> Traceparent:
    return parent.child("job", job)


def execute_span(parent: Traceparent, job: str, attempt: int) -> Traceparent:
    """Returns the span that an attempt's handler is the parent of its own spans by."""
    return _attempt_span(parent, job, attempt).child("execute")


def _attempt_span(parent: Traceparent, job: str, attempt: int) -> Traceparent:
    return job_span(parent, job).child("attempt", str(attempt))


def of_job(parent: Traceparent, view: JobView, now: float) -> TraceSpan:
    """Returns the span of a job that has ended."""
    attributes = {
        "stoker.job": view.id,
        "stoker.endpoint": view.endpoint,
        "stoker.state": view.state.value,
        "stoker.attempts": view.attempt,
        "stoker.retries": view.retries,
    }
    own, failed = job_span(parent, view.id), view.state in (JobState.FAILED, JobState.TIMED_OUT)
    return TraceSpan("job", own, parent.span, view.created_at, now, attributes, failed=failed)


def of_attempt(
    parent: Traceparent, job: str, endpoint: str, attempt: TracedAttempt, now: float
) -> Iterator[TraceSpan]:
    """Yields the spans of an attempt that has ended, and of the queue before the first one."""
    whole, own = job_span(parent, job), _attempt_span(parent, job, attempt.attempt)
    named: dict[str, str | int] = {"stoker.job": job, "stoker.endpoint": endpoint}
    claimed = min(max(attempt.claimed_at, attempt.created_at), now)
    if attempt.attempt == 1:
        yield TraceSpan("queue", whole.child("queue"), whole.span, attempt.created_at, claimed, named)
    named |= {"stoker.attempt": attempt.attempt, "stoker.node": attempt.node, "stoker.worker": attempt.worker}
    failed = attempt.end not in ("completed", "cancelled")
    ended = {**named, "stoker.end": attempt.end}
    yield TraceSpan("attempt", own, whole.span, claimed, now, ended, failed=failed)
    began = min(claimed + attempt.wait_ms / 1000, now)
    done = min(began + attempt.execution_ms / 1000, now)
    last = "upload" if attempt.uploaded else "report"
    execute = own.child("execute")
    yield TraceSpan("assign", own.child("assign"), own.span, claimed, began, named)
    yield TraceSpan("execute", execute, own.span, began, done, named, failed=failed)
    yield TraceSpan(last, own.child(last), own.span, done, now, named)
