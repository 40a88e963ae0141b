"""What can happen to an attempt, and what its machine can ask for: the vocabulary of `agent.attempt`.

Every event says when (`at`, seconds of the loop's clock). Pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from stoker.wire.messages import End

Tail = Literal["", "moving", "stuck"]
"""Pieces of the stream that are not told yet: none; on their way; or the object store has just failed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How it ends. `given_back`: it is handed back uncounted instead of ended."""

    end: End
    error: str | None = None
    retryable: bool = False
    given_back: bool = False


COMPLETED = Verdict("completed")


# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetched:
    at: float


@dataclass(frozen=True, slots=True)
class FetchFailed:
    at: float
    error: str


@dataclass(frozen=True, slots=True)
class Begun:
    """The handler has it only now: what it waited for its worker is not its time."""

    at: float


@dataclass(frozen=True, slots=True)
class Done:
    """The handler returned. `upload`: files or an output too large for a message go first."""

    at: float
    upload: bool
    tail: Tail = ""


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    at: float
    error: str
    retryable: bool
    tail: Tail = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """End it with this verdict: a cancel, a refused file, the agent's shutdown."""

    at: float
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The node may no longer run its attempts. What has left its worker is kept: it may still be wanted."""

    at: float


@dataclass(frozen=True, slots=True)
class Dropped:
    """Control says stop: the work is to end and its reports are not wanted."""

    at: float


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The process has been reaped. `planned`: the agent ended it, for another attempt's or its own sake."""

    at: float
    why: str
    planned: bool
    tail: Tail = ""


@dataclass(frozen=True, slots=True)
class PiecesOut:
    """No piece of the stream waits any more."""

    at: float


@dataclass(frozen=True, slots=True)
class PieceFailed:
    """A piece could not be uploaded. Unless it is `retryable`, none that waits ever will be."""

    at: float
    error: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Uploaded:
    at: float


@dataclass(frozen=True, slots=True)
class UploadFailed:
    at: float
    error: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Acked:
    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = (
    Fetched
    | FetchFailed
    | Begun
    | Done
    | HandlerFailed
    | Stop
    | LeaseLost
    | Dropped
    | WorkerGone
    | PiecesOut
    | PieceFailed
    | Uploaded
    | UploadFailed
    | Acked
    | Tick
)


# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetch:
    pass


@dataclass(frozen=True, slots=True)
class SendRun:
    pass


@dataclass(frozen=True, slots=True)
class SendCancel:
    reason: str


@dataclass(frozen=True, slots=True)
class TerminateWorker:
    why: str


@dataclass(frozen=True, slots=True)
class KillWorker:
    why: str


@dataclass(frozen=True, slots=True)
class LeaveWorker:
    """It holds no slot any more; its scratch folder goes."""


@dataclass(frozen=True, slots=True)
class SayUploading:
    """Tell control that the slot is free and the upload begun."""


@dataclass(frozen=True, slots=True)
class Upload:
    pass


@dataclass(frozen=True, slots=True)
class StopTransfer:
    """Pieces that wait are dropped."""


@dataclass(frozen=True, slots=True)
class Report:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class SayReleased:
    pass


@dataclass(frozen=True, slots=True)
class Forget:
    """Nothing of it is kept; `reports` in the outbox go, too."""

    reports: bool = False


Command: TypeAlias = (
    Fetch
    | SendRun
    | SendCancel
    | TerminateWorker
    | KillWorker
    | LeaveWorker
    | SayUploading
    | Upload
    | StopTransfer
    | Report
    | SayReleased
    | Forget
)
