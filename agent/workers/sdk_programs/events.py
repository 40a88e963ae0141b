"""The events and commands of `agent.workers.sdk_programs.protocol_machine`.

Every event has a time: `at`, in seconds of the loop's clock. Pure data.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from stoker.agent.workers.sdk_programs.bodies import Post
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame


class PendingJob(Struct, frozen=True):
    """A job that a program has not taken. `text` is the job as the program will get it."""

    key: AttemptKey
    text: bytes


# ---- events -------------------------------------------------------------------------------------


class TakeRequested(Struct, frozen=True):
    """A job-take. `busy`: whether the program reports a job in progress; None if it does not report that."""

    at: float
    request: int
    room: int
    many: bool
    busy: bool | None


class Handed(Struct, frozen=True):
    """The answer of a job-take was sent, or its caller had hung up."""

    at: float
    request: int
    keys: tuple[AttemptKey, ...]
    arrived: bool


class StopsRequested(Struct, frozen=True):
    at: float
    request: int


class Left(Struct, frozen=True):
    """The caller of this poll has hung up."""

    at: float
    request: int


class Pinged(Struct, frozen=True):
    at: float
    jobs: frozenset[str]


class Unfit(Struct, frozen=True):
    """The program's own checks report that it cannot work here."""

    at: float
    why: str


class Posted(Struct, frozen=True):
    at: float
    job: str
    post: Post


class RunRequested(Struct, frozen=True):
    at: float
    key: AttemptKey
    text: bytes


class CancelRequested(Struct, frozen=True):
    at: float
    key: AttemptKey


class DrainRequested(Struct, frozen=True):
    """The stop frame: the worker ends after the jobs that run."""

    at: float


class Terminated(Struct, frozen=True):
    """The agent sends SIGTERM."""

    at: float


class Tick(Struct, frozen=True):
    at: float


Call: TypeAlias = TakeRequested | Handed | StopsRequested | Left | Pinged | Unfit | Posted
Event: TypeAlias = Call | RunRequested | CancelRequested | DrainRequested | Terminated | Tick


# ---- commands -----------------------------------------------------------------------------------


class AnswerTake(Struct, frozen=True):
    """Answer a job-take; without jobs the answer is 204."""

    request: int
    jobs: tuple[PendingJob, ...] = ()
    many: bool = False


class AnswerStops(Struct, frozen=True):
    """Answer a job-stop; without jobs the answer is 204. The id of no job ends the poll without the pause
    that follows an empty answer."""

    request: int
    jobs: tuple[str, ...] = ()


class SendFrame(Struct, frozen=True):
    frame: Frame


class Terminate(Struct, frozen=True):
    pass


Command: TypeAlias = AnswerTake | AnswerStops | SendFrame | Terminate
