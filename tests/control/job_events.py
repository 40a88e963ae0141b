"""The types of the job machine: its states, the events of a job, and the commands that follow.

Pure data. `job_machine` decides what each event changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stoker.control.rules.job_states import JobState

# ---- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queued:
    """Waits. `holder` is the node that may still end the last attempt; `suspect`: that node was lost,
    and the attempt had begun."""

    not_before: float
    holder: str | None = None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class InProgress:
    holder: str


@dataclass(frozen=True, slots=True)
class Completed:
    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    at: float
    error: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    at: float
    error: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    at: float


@dataclass(frozen=True, slots=True)
class Gone:
    """The record is deleted."""


State: TypeAlias = Queued | InProgress | Completed | Failed | TimedOut | Cancelled | Gone


# ---- events and commands ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobClaimed:
    at: float
    node: str
    worker: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The node's Hello still holds the attempt."""

    at: float
    node: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The agent's outcome. `end` is one of wire.messages.End."""

    at: float
    node: str
    attempt: int
    end: str
    error: str | None = None
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class AttemptRefused:
    """The agent could not take the Assign, or gave it back. `at_once`: it
    needs no pause, as its node is about to go, or it only waited for its worker."""

    at: float
    node: str
    attempt: int
    why: str = ""
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class NotSent:
    """The node's session ended before the Assign was sent: it never had the attempt."""

    at: float
    node: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """The node's Hello does not hold the attempt."""

    at: float
    node: str


@dataclass(frozen=True, slots=True)
class NodeLost:
    """`ahead`: the job lay ahead of a worker there."""

    at: float
    node: str
    why: str
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class CancelRequested:
    at: float


@dataclass(frozen=True, slots=True)
class Purged:
    """The queue that it stands in is cleared. `ahead`: it lay ahead of a worker."""

    at: float
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class WaitOver:
    """Its caller waited for an end, was promised one by now, and gets this one."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class RetryRequested:
    """Its caller wants it tried once more."""

    at: float


@dataclass(frozen=True, slots=True)
class Shortened:
    """Its caller wants nothing of it after `until`."""

    at: float
    until: float


@dataclass(frozen=True, slots=True)
class Expired:
    at: float


Event: TypeAlias = (
    JobClaimed
    | Resumed
    | Ended
    | AttemptRefused
    | NotSent
    | Dropped
    | NodeLost
    | CancelRequested
    | Purged
    | WaitOver
    | RetryRequested
    | Shortened
    | Expired
)


@dataclass(frozen=True, slots=True)
class AssignToWorker:
    node: str
    worker: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CancelOnNode:
    node: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Publish:
    """Wakes everyone who waits for this job."""

    state: JobState | None


@dataclass(frozen=True, slots=True)
class Retry:
    at: float


Command: TypeAlias = AssignToWorker | CancelOnNode | Publish | Retry
