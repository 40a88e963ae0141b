"""The job machine: what may happen to a job, when it is tried again, and what is said when it is given up.

Pure: no clock, no store. The store performs the same moves as guarded statements; their guards are
generated from `MOVES`, and `step` is the oracle that the store is tested against.

                  claim, resume
      IN_QUEUE --------------------> IN_PROGRESS
          ^   retry, refuse, lose, drop   |
          +-------------------------------+
      either --- end -------> COMPLETED, FAILED, TIMED_OUT, CANCELLED
      either --- give_up ---> FAILED
      either --- cancel ----> CANCELLED
      any ------ expire ----> gone

- Only a claim raises `attempt`, and nothing lowers it.
- An attempt is *open* while a node may still end it: from its claim until its end, refusal or drop, also in
  the queue after the node was lost. News of any other attempt, or of another node, changes nothing.
- A terminal state is final but for its expiry: the first end wins.
- `lost` ends and lost nodes count to MAX_ATTEMPTS; a refusal and an attempt that its node does not know of
  do not. A lost node counts when the job is claimed again: until then the node may come back and resume.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from stoker.control.job_words import (
    Assign,
    CancelAsked,
    Cancelled,
    CancelOnNode,
    Claimed,
    Command,
    Completed,
    Dropped,
    Ended,
    Event,
    Expired,
    Failed,
    Gone,
    InProgress,
    NodeLost,
    Publish,
    Queued,
    Refused,
    Resumed,
    Retry,
    State,
    TimedOut,
)
from stoker.control.types import JobState

MAX_ATTEMPTS = 3
"""A job whose attempts failed this often, through no fault of its handler's answer, fails."""

MAX_GIVEN = 10
"""A job that was given out this often and came back uncounted fails: it may be what kills its agents."""

BACKOFF_S = (0.0, 2.0, 10.0)
"""The wait before the next try after the first, second, third counted failure."""

REFUSED_BACKOFF_S = 0.1
REFUSED_BACKOFF_MAX_S = 30.0

RETENTION_S = 1800.0
RETENTION_SYNC_S = 60.0


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
    """A job's facts, its state, and what was counted: `failures` are those after which it was tried again."""

    created_at: float
    expires_at: float
    sync: bool = False
    state: State = field(default=Queued(0.0))
    attempt: int = 0
    failures: int = 0
    refused: int = 0

    @property
    def name(self) -> JobState | None:
        return NAMES.get(type(self.state))

    @property
    def retries(self) -> int:
        return retries(self.attempt, self.refused)


Stepped: TypeAlias = tuple[Job, tuple[Command, ...]]


# ---- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Move:
    """`open`: the news must be of the current attempt and from the node that holds it."""

    sources: frozenset[JobState]
    targets: frozenset[JobState]
    open: bool = False


_Q, _P = JobState.IN_QUEUE, JobState.IN_PROGRESS
_ENDS = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED})

MOVES: dict[str, Move] = {
    "claim": Move(frozenset({_Q}), frozenset({_P})),
    "resume": Move(frozenset({_Q}), frozenset({_P}), open=True),
    "end": Move(frozenset({_P, _Q}), _ENDS, open=True),
    "retry": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "refuse": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "lose": Move(frozenset({_P}), frozenset({_Q}), open=True),
    "drop": Move(frozenset({_P, _Q}), frozenset({_Q}), open=True),
    "give_up": Move(frozenset({_P, _Q}), frozenset({JobState.FAILED}), open=True),
    "cancel": Move(frozenset({_P, _Q}), frozenset({JobState.CANCELLED})),
    "expire": Move(frozenset(JobState), frozenset()),
}


# ---- policy: what the store asks, too -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Again:
    """Try again, not before `not_before`; or, when that is None, fail with the sentence `why`."""

    not_before: float | None
    why: str


def retries(attempt: int, refused: int) -> int:
    """How often the job was given out again; attempts that an agent refused do not show."""
    return max(attempt - refused - 1, 0)


def retention(sync: bool) -> float:
    """Seconds that an ended job is kept."""
    return RETENTION_SYNC_S if sync else RETENTION_S


def is_retried(end: str, retryable: bool) -> bool:
    """Whether an attempt that ended so is a failure to try again: infrastructure's, or one that says so."""
    return end == "lost" or (end == "failed" and retryable)


def after_failure(end: str, reason: str | None, failures: int, at: float) -> Again:
    """`failures` were counted before this one. A handler's own words stay as they are."""
    counted = failures + 1
    why = reason or ("worker died" if end == "lost" else "the handler failed")
    if counted < MAX_ATTEMPTS:
        return Again(at + BACKOFF_S[counted - 1], why)
    return Again(None, f"{why}; gave up after {counted} attempts" if end == "lost" else why)


def after_refusal(refused: int, at: float) -> Again:
    """`refused` attempts were refused before this one. Never given up: the ttl bounds it."""
    wait = min(REFUSED_BACKOFF_S * 2 ** min(refused, 16), REFUSED_BACKOFF_MAX_S)
    return Again(at + wait, "the agent refused it")


def after_loss(node: str, why: str, failures: int, given: int, at: float) -> Again:
    """The node that ran it fell silent, or its stream broke. `given`: how often it was given out."""
    counted = failures + 1
    if counted >= MAX_ATTEMPTS:
        return Again(None, f"node {node} was lost: {why}; gave up after {counted} attempts")
    return after_drop(node, given, at)


def after_drop(node: str, given: int, at: float) -> Again:
    """The node came back without it: the Assign was never taken, or its agent was restarted."""
    if given >= MAX_GIVEN:
        return Again(None, f"node {node} came back without it; gave up after it was given out {given} times")
    return Again(at, "back to the queue")


# ---- the machine ----------------------------------------------------------------------------------


def step(job: Job, event: Event) -> Stepped:
    """What `event` makes of `job`. An event that may not happen now changes nothing and commands nothing."""
    match event:
        case Claimed():
            return _claim(job, event)
        case Resumed():
            return _resume(job, event)
        case Ended():
            return _end(job, event)
        case Refused():
            return _refuse(job, event)
        case Dropped() | NodeLost():
            return _lose(job, event)
        case CancelAsked(at):
            return _cancel(job, at)
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


def _claim(job: Job, event: Claimed) -> Stepped:
    if not _may(job, "claim") or event.at >= job.expires_at:
        return job, ()
    assert isinstance(job.state, Queued)
    if job.state.not_before > event.at:
        return job, ()
    number = job.attempt + 1
    now = InProgress(event.node)
    failures = job.failures + job.state.suspect
    return replace(job, state=now, attempt=number, failures=failures), (
        Assign(event.node, event.worker, number),
        Publish(JobState.IN_PROGRESS),
    )


def _resume(job: Job, event: Resumed) -> Stepped:
    if not _may(job, "resume", event.node, event.attempt):
        return job, ()
    return replace(job, state=InProgress(event.node)), (Publish(JobState.IN_PROGRESS),)


def _end(job: Job, event: Ended) -> Stepped:
    if not _may(job, "end", event.node, event.attempt):
        return job, ()
    if not is_retried(event.end, event.retryable):
        return _finish(job, _terminal(event), event.at)
    again = after_failure(event.end, event.error, job.failures, event.at)
    if again.not_before is not None:
        job = replace(job, failures=job.failures + 1)
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


def _refuse(job: Job, event: Refused) -> Stepped:
    if not _may(job, "refuse", event.node, event.attempt):
        return job, ()
    again = after_refusal(job.refused, event.at)
    return _again(replace(job, refused=job.refused + 1), again, event.at)


def _lose(job: Job, event: Dropped | NodeLost) -> Stepped:
    given = job.attempt - job.refused
    if isinstance(event, Dropped):
        if not _may(job, "drop", event.node):
            return job, ()
        if isinstance(job.state, Queued):  # it was lost before: now it will not come back
            job = replace(job, failures=job.failures + job.state.suspect)
        return _again(job, after_drop(event.node, given, event.at), event.at)
    if not _may(job, "lose", event.node):
        return job, ()
    again = after_loss(event.node, event.why, job.failures, given, event.at)
    return _again(job, again, event.at, suspect=event.node)


def _again(job: Job, again: Again, at: float, suspect: str | None = None) -> Stepped:
    """Back to the queue, or failed. A suspect node keeps the attempt open, as it may come back."""
    if again.not_before is None:
        return _finish(job, Failed(at, again.why), at)
    state = Queued(again.not_before, suspect, suspect is not None)
    return replace(job, state=state), (Publish(JobState.IN_QUEUE), Retry(again.not_before))


def _cancel(job: Job, at: float) -> Stepped:
    if not _may(job, "cancel") or at >= job.expires_at:
        return job, ()
    ended, published = _finish(job, Cancelled(at), at)
    return ended, (*_stop(job, "cancelled"), *published)


def _expire(job: Job, at: float) -> Stepped:
    if not _may(job, "expire") or at < job.expires_at:
        return job, ()
    return replace(job, state=Gone()), (*_stop(job, "expired"), Publish(None))


def _stop(job: Job, reason: str) -> tuple[CancelOnNode, ...]:
    node = holder(job)
    return () if node is None else (CancelOnNode(node, job.attempt, reason),)


def _finish(job: Job, state: Completed | Failed | TimedOut | Cancelled, at: float) -> Stepped:
    until = min(job.expires_at, at + retention(job.sync))
    return replace(job, state=state, expires_at=until), (Publish(NAMES[type(state)]),)


__all__ = [
    "BACKOFF_S",
    "MAX_ATTEMPTS",
    "MAX_GIVEN",
    "MOVES",
    "NAMES",
    "Again",
    "Assign",
    "CancelAsked",
    "CancelOnNode",
    "Cancelled",
    "Claimed",
    "Command",
    "Completed",
    "Dropped",
    "Ended",
    "Event",
    "Expired",
    "Failed",
    "Gone",
    "InProgress",
    "Job",
    "Move",
    "NodeLost",
    "Publish",
    "Queued",
    "Refused",
    "Resumed",
    "Retry",
    "State",
    "TimedOut",
    "after_drop",
    "after_failure",
    "after_loss",
    "after_refusal",
    "holder",
    "is_retried",
    "retention",
    "retries",
    "step",
    "wake_at",
]
