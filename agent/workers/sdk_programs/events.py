"""The events and commands of `agent.workers.sdk_programs.protocol_machine`.

Every event has a time: `at`, in seconds of the loop's clock. Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stoker.agent.workers.sdk_programs.bodies import Post
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A job that a program has not taken. `text` is the job as the program will get it."""

    key: AttemptKey
    text: bytes


# ---- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeRequested:
    """A job-take. `busy`: whether the program reports a job in progress; None if it does not report that."""

    at: float
    request: int
    room: int
    many: bool
    busy: bool | None


@dataclass(frozen=True, slots=True)
class Handed:
    """The answer of a job-take was sent, or its caller had hung up."""

    at: float
    request: int
    keys: tuple[AttemptKey, ...]
    arrived: bool


@dataclass(frozen=True, slots=True)
class StopsRequested:
    at: float
    request: int


@dataclass(frozen=True, slots=True)
class Left:
    """The caller of this poll has hung up."""

    at: float
    request: int


@dataclass(frozen=True, slots=True)
class Pinged:
    at: float
    jobs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unfit:
    """The program's own checks report that it cannot work here."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Posted:
    at: float
    job: str
    post: Post


@dataclass(frozen=True, slots=True)
class RunRequested:
    at: float
    key: AttemptKey
    text: bytes


@dataclass(frozen=True, slots=True)
class CancelRequested:
    at: float
    key: AttemptKey


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """The stop frame: the worker ends after the jobs that run."""

    at: float


@dataclass(frozen=True, slots=True)
class Terminated:
    """The agent sends SIGTERM."""

    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Call: TypeAlias = TakeRequested | Handed | StopsRequested | Left | Pinged | Unfit | Posted
Event: TypeAlias = Call | RunRequested | CancelRequested | DrainRequested | Terminated | Tick


# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerTake:
    """Answer a job-take; without jobs the answer is 204."""

    request: int
    jobs: tuple[PendingJob, ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class AnswerStops:
    """Answer a job-stop; without jobs the answer is 204. The id of no job ends the poll without the pause
    that follows an empty answer."""

    request: int
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SendFrame:
    frame: Frame


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


Command: TypeAlias = AnswerTake | AnswerStops | SendFrame | Terminate
