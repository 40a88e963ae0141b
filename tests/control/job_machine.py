"""The job machine: a model of what may happen to a job, which the store is compared with.

Pure: no clock, no store. The states and moves are those of `control.rules.job_states`, and
`control.rules.retries` decides what is tried again: the store uses the same two.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from stoker.control.rules.job_states import MOVES, PURGED, JobState
from stoker.control.rules.retries import (
    FAILURES,
    MAX_ATTEMPTS,
    Again,
    Counts,
    after_drop,
    after_failure,
    after_loss,
    after_no_sending,
    after_refusal,
    after_yield,
    retries,
)
from tests.control.job_events import (
    AssignToWorker,
    AttemptRefused,
    Cancelled,
    CancelOnNode,
    CancelRequested,
    Command,
    Completed,
    Dropped,
    Ended,
    Event,
    Expired,
    Failed,
    Gone,
    InProgress,
    JobClaimed,
    NodeLost,
    NotSent,
    Publish,
    Purged,
    Queued,
    Resumed,
    Retry,
    RetryRequested,
    Shortened,
    State,
    TimedOut,
    WaitOver,
)

RETENTION_S = 1800.0
"""How long an ended job is kept, if its submission says nothing else."""


# ---- the record --------------------------------------------------------------------------------

NAMES: dict[type, JobState] = {
    Queued: JobState.IN_QUEUE,
    InProgress: JobState.IN_PROGRESS,
    Completed: JobState.COMPLETED,
    Failed: JobState.FAILED,
    TimedOut: JobState.TIMED_OUT,
    Cancelled: JobState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job's facts, its state, and what was counted: failures are those after which it was tried again.

    `refused` are all attempts that an agent handed back, or was not sent; `backoffs` those of them after
    which it had to wait. `assigned_before` and `first_attempt` tell what lay before its caller's last wish to
    try it again.
    `reason`: why its last attempt failed, while it waits for the next; or why it was cancelled.
    """

    created_at: float
    ttl_at: float
    retention_s: float = RETENTION_S
    max_attempts: int = MAX_ATTEMPTS
    handler_retries: int = 0
    low: bool = False
    state: State = field(default=Queued(0.0))
    attempt: int = 0
    failures: int = 0
    handler_failures: int = 0
    refused: int = 0
    backoffs: int = 0
    assigned_before: int = 0
    first_attempt: int = 1
    reason: str | None = None

    @property
    def name(self) -> JobState | None:
        return NAMES.get(type(self.state))

    @property
    def expires_at(self) -> float:
        """Its ttl is the hard limit; once it has ended, it is kept for its retention."""
        match self.state:
            case Completed(at=at) | Failed(at=at) | TimedOut(at=at) | Cancelled(at=at):
                return min(self.ttl_at, at + self.retention_s)
            case _:
                return self.ttl_at

    @property
    def counts(self) -> Counts:
        return Counts(self.failures, self.handler_failures, self.max_attempts, self.handler_retries)

    @property
    def assigned(self) -> int:
        """How often it was assigned since its caller last submitted or retried it; refusals do not count."""
        return self.attempt - self.refused - self.assigned_before

    @property
    def retries(self) -> int:
        return retries(self.attempt, self.refused)


Stepped: TypeAlias = tuple[Job, tuple[Command, ...]]


# ---- the machine ----------------------------------------------------------------------------------


def step(job: Job, event: Event) -> Stepped:
    """What `event` makes of `job`. An event that may not happen now changes nothing and commands nothing."""
    match event:
        case JobClaimed():
            return _claim(job, event)
        case Resumed():
            return _resume(job, event)
        case Ended():
            return _end(job, event)
        case AttemptRefused() | NotSent():
            return _refuse(job, event)
        case Dropped() | NodeLost():
            return _lose(job, event)
        case CancelRequested() | Purged():
            return _cancel(job, event)
        case WaitOver():
            return _wait_over(job, event)
        case RetryRequested(at):
            return _reopen(job, at)
        case Shortened():
            return _shorten(job, event)
        case Expired(at):
            return _expire(job, at)


def wake_at(job: Job) -> float | None:
    """When the job itself needs a look: it expires, or its back-off is over."""
    match job.state:
        case Gone():
            return None
        case Queued(not_before=later) if later > job.created_at:
            return min(later, job.expires_at)
        case _:
            return job.expires_at


def holder(job: Job) -> str | None:
    """The node that may still end the current attempt."""
    match job.state:
        case Queued(holder=node) | InProgress(holder=node):
            return node
        case _:
            return None


def _may(job: Job, move: str, node: str | None = None, attempt: int | None = None) -> bool:
    rule = MOVES[move]
    if job.name not in rule.sources:
        return False
    return not rule.open or (holder(job) == node is not None and attempt in (None, job.attempt))


def _claim(job: Job, event: JobClaimed) -> Stepped:
    if not _may(job, "claim") or event.at >= job.expires_at:
        return job, ()
    assert isinstance(job.state, Queued)
    if job.state.not_before > event.at:
        return job, ()
    number = job.attempt + 1
    now = InProgress(event.node)
    failures = job.failures + job.state.suspect
    return replace(job, state=now, attempt=number, failures=failures), (
        AssignToWorker(event.node, event.worker, number),
        Publish(JobState.IN_PROGRESS),
    )


def _resume(job: Job, event: Resumed) -> Stepped:
    if not _may(job, "resume", event.node, event.attempt):
        return job, ()
    return replace(job, state=InProgress(event.node)), (Publish(JobState.IN_PROGRESS),)


def _end(job: Job, event: Ended) -> Stepped:
    if not _may(job, "end", event.node, event.attempt):
        return job, ()
    if event.end == "yielded":
        back = replace(job, refused=job.refused + 1)
        return _again(back, after_yield(event.error or "", event.at), event.at)
    if event.end not in FAILURES:
        return _finish(job, _terminal(event))
    again, counts = after_failure(event.end, event.retryable, event.error, job.counts, event.at)
    job = replace(job, failures=counts.failures, handler_failures=counts.handler_failures)
    return _again(job, again, event.at)


def _terminal(event: Ended) -> Completed | Failed | TimedOut | Cancelled:
    match event.end:
        case "completed":
            return Completed(event.at)
        case "timed_out":
            return TimedOut(event.at, event.error or "")
        case "cancelled":
            return Cancelled(event.at)
        case _:
            return Failed(event.at, event.error or "")


def _refuse(job: Job, event: AttemptRefused | NotSent) -> Stepped:
    if not _may(job, "refuse", event.node, event.attempt):
        return job, ()
    if isinstance(event, NotSent):
        return _again(replace(job, refused=job.refused + 1), after_no_sending(event.node, event.at), event.at)
    again = after_refusal(job.backoffs, event.why, event.at, at_once=event.at_once)
    backoffs = job.backoffs + (not event.at_once)
    return _again(replace(job, refused=job.refused + 1, backoffs=backoffs), again, event.at)


def _lose(job: Job, event: Dropped | NodeLost) -> Stepped:
    if isinstance(event, Dropped):
        if not _may(job, "drop", event.node):
            return job, ()
        if isinstance(job.state, Queued):  # it was lost before: now it will not come back
            job = replace(job, failures=job.failures + job.state.suspect)
        return _again(job, after_drop(event.node, job.assigned, event.at), event.at)
    if not _may(job, "lose", event.node):
        return job, ()
    again = after_loss(event.node, event.why, job.counts, job.assigned, event.at, uncounted=event.ahead)
    return _again(job, again, event.at, lost=event.node, suspect=not event.ahead)


def _again(job: Job, again: Again, at: float, lost: str | None = None, *, suspect: bool = False) -> Stepped:
    """Back to the queue, or failed. A lost node keeps the attempt open, as it may come back."""
    if again.not_before is None:
        return _finish(job, Failed(at, again.why))
    state = Queued(_place(job, again.not_before, at), lost, suspect)
    job = replace(job, state=state, reason=again.why)
    return job, (Publish(JobState.IN_QUEUE), Retry(again.not_before))


def _place(job: Job, not_before: float, at: float) -> float:
    """A low job that need not wait goes back to where it stood."""
    return job.created_at - 3_600.0 if job.low and not_before <= at else not_before


def _cancel(job: Job, event: CancelRequested | Purged) -> Stepped:
    purged = isinstance(event, Purged)
    if (
        not _may(job, "purge" if isinstance(event, Purged) and not event.ahead else "cancel")
        or event.at >= job.expires_at
    ):
        return job, ()
    return _stopped(job, Cancelled(event.at), PURGED if purged else None)


def _wait_over(job: Job, event: WaitOver) -> Stepped:
    if not _may(job, "wait_over") or event.at >= job.expires_at:
        return job, ()
    return _stopped(job, TimedOut(event.at, event.why))


def _stopped(job: Job, end: Cancelled | TimedOut, reason: str | None = None) -> Stepped:
    ended, published = _finish(job, end, reason)
    return ended, (*_stop(job, "cancelled"), *published)


def _reopen(job: Job, at: float) -> Stepped:
    if not _may(job, "reopen") or at >= job.expires_at:
        return job, ()
    fresh = replace(
        job,
        state=Queued(_place(job, at, at)),
        failures=0,
        handler_failures=0,
        backoffs=0,
        assigned_before=job.attempt - job.refused,
        first_attempt=job.attempt + 1,
    )
    return fresh, (Publish(JobState.IN_QUEUE), Retry(at))


def _shorten(job: Job, event: Shortened) -> Stepped:
    """Wakes nobody: readers see it, and the sweep stops the work."""
    if job.name is None or event.at >= job.expires_at:
        return job, ()
    return replace(job, ttl_at=min(job.ttl_at, event.until)), ()


def _expire(job: Job, at: float) -> Stepped:
    if not _may(job, "expire") or at < job.expires_at:
        return job, ()
    return replace(job, state=Gone()), (*_stop(job, "expired"), Publish(None))


def _stop(job: Job, reason: str) -> tuple[CancelOnNode, ...]:
    node = holder(job)
    return () if node is None else (CancelOnNode(node, job.attempt, reason),)


def _finish(job: Job, state: Completed | Failed | TimedOut | Cancelled, reason: str | None = None) -> Stepped:
    return replace(job, state=state, reason=reason), (Publish(NAMES[type(state)]),)
