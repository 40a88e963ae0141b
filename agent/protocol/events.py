"""What can happen to a protocol worker, and what its machine can ask for: the vocabulary of
`agent.protocol_machine`.

Every event says when (`at`, seconds of the loop's clock). Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from stoker.agent.protocol_bodies import Post
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame


@dataclass(frozen=True, slots=True)
class Waiting:
    """`text` is the job as the program will get it."""

    key: AttemptKey
    text: bytes


# ---- events -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TakeAsked:
    """`busy` is what the program says: whether a job is in progress; None when it does not say."""

    at: float
    request: int
    room: int
    many: bool
    busy: bool | None


@dataclass(frozen=True, slots=True)
class Handed:
    """The answer of a job-take went out, or found nobody."""

    at: float
    request: int
    keys: tuple[AttemptKey, ...]
    arrived: bool


@dataclass(frozen=True, slots=True)
class StopAsked:
    at: float
    request: int


@dataclass(frozen=True, slots=True)
class Left:
    """Whoever had sent this call has hung up."""

    at: float
    request: int


@dataclass(frozen=True, slots=True)
class Pinged:
    at: float
    jobs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unfit:
    """The program's own checks say that it cannot work here."""

    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Posted:
    at: float
    job: str
    post: Post


@dataclass(frozen=True, slots=True)
class RunAsked:
    at: float
    key: AttemptKey
    text: bytes


@dataclass(frozen=True, slots=True)
class CancelAsked:
    at: float
    key: AttemptKey


@dataclass(frozen=True, slots=True)
class DrainAsked:
    """The stop frame: after what runs."""

    at: float


@dataclass(frozen=True, slots=True)
class Terminated:
    """The agent sends SIGTERM."""

    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Call: TypeAlias = TakeAsked | Handed | StopAsked | Left | Pinged | Unfit | Posted
Event: TypeAlias = Call | RunAsked | CancelAsked | DrainAsked | Terminated | Tick


# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GiveJobs:
    """The answer of a job-take; none: 204."""

    request: int
    jobs: tuple[Waiting, ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class GiveStops:
    """The answer of a job-stop; none: 204. An id that no job has ends the poll without the pause after it."""

    request: int
    jobs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Say:
    frame: Frame


@dataclass(frozen=True, slots=True)
class Terminate:
    pass


Command: TypeAlias = GiveJobs | GiveStops | Say | Terminate
