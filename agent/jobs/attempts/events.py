"""The events and commands of `agent.jobs.attempts.attempt_machine`. Pure data.

`at` is when an event happened, in seconds of the loop's clock.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from stoker.wire.messages import End
from stoker.wire.records import record

Backlog = Literal["", "moving", "stuck"]
"""Chunks of the stream that are not reported yet: none; being stored; or the object store has just failed."""


@record(frozen=True, slots=True)
class Verdict:
    """The decision on how an attempt ends. `given_back`: its job goes back to the queue, and the attempt is
    not counted. `at_once`: the job can be assigned again without a pause. `save_gone`: its save cannot be had
    any more."""

    end: End
    error: str | None = None
    retryable: bool = False
    given_back: bool = False
    at_once: bool = False
    save_gone: bool = False


COMPLETED = Verdict("completed")


# ---- events ------------------------------------------------------------------------------------


@record(frozen=True, slots=True)
class RoomAhead:
    """The event that the attempt's run may be sent to its worker's socket, behind the run of another."""

    at: float


@record(frozen=True, slots=True)
class Next:
    """The one before it has left their worker."""

    at: float


@record(frozen=True, slots=True)
class Withdrawn:
    """The event that the worker had not begun the run in its socket, and will not."""

    at: float


@record(frozen=True, slots=True)
class HandBack:
    """The event that the attempt is not to wait for its worker any more."""

    at: float
    why: str


@record(frozen=True, slots=True)
class Fetched:
    at: float


@record(frozen=True, slots=True)
class FetchFailed:
    """The event that an input, or a save, could not be fetched. `retryable`: another attempt may have it.
    `save_gone`: it is the save, and no attempt can have it."""

    at: float
    error: str
    retryable: bool = False
    save_gone: bool = False


@record(frozen=True, slots=True)
class Begun:
    """The handler has the job only now, so its execution time starts here."""

    at: float


@record(frozen=True, slots=True)
class Done:
    """The handler returned. `upload`: files, or an output too large for a message, must be uploaded."""

    at: float
    upload: bool
    backlog: Backlog = ""


@record(frozen=True, slots=True)
class HandlerFailed:
    at: float
    error: str
    retryable: bool
    backlog: Backlog = ""


@record(frozen=True, slots=True)
class AskedToYield:
    """The event that the attempt is to give up its place: at once if it has not begun, else at its next
    save."""

    at: float
    why: str


@record(frozen=True, slots=True)
class Yielded:
    """The handler saved, and gave up its place."""

    at: float
    why: str
    backlog: Backlog = ""


@record(frozen=True, slots=True)
class Stop:
    """The event that ends the attempt with this verdict: a cancel, a refused file, the agent's shutdown."""

    at: float
    verdict: Verdict


@record(frozen=True, slots=True)
class LeaseLost:
    """The node may no longer run its attempts. Those that have left their worker go on."""

    at: float


@record(frozen=True, slots=True)
class Dropped:
    """The event that control needs neither the work nor its reports."""

    at: float


@record(frozen=True, slots=True)
class WorkerGone:
    """The process was reaped. `planned`: the agent ended it for another reason than this attempt."""

    at: float
    why: str
    planned: bool
    backlog: Backlog = ""


@record(frozen=True, slots=True)
class ChunksUploaded:
    """The event that no chunk of the stream waits any more."""

    at: float


@record(frozen=True, slots=True)
class ChunkFailed:
    """A chunk could not be uploaded. Unless this is `retryable`, all that wait are dropped."""

    at: float
    error: str
    retryable: bool


@record(frozen=True, slots=True)
class Uploaded:
    at: float


@record(frozen=True, slots=True)
class UploadFailed:
    at: float
    error: str
    retryable: bool


@record(frozen=True, slots=True)
class Acked:
    at: float


@record(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = (
    RoomAhead
    | Next
    | Withdrawn
    | HandBack
    | Fetched
    | FetchFailed
    | Begun
    | Done
    | HandlerFailed
    | AskedToYield
    | Yielded
    | Stop
    | LeaseLost
    | Dropped
    | WorkerGone
    | ChunksUploaded
    | ChunkFailed
    | Uploaded
    | UploadFailed
    | Acked
    | Tick
)


# ---- commands -----------------------------------------------------------------------------------


@record(frozen=True, slots=True)
class Fetch:
    pass


@record(frozen=True, slots=True)
class SendRun:
    """The command to send the attempt's run: the attempt begins."""


@record(frozen=True, slots=True)
class SendAhead:
    """The command to put the attempt's run into the worker's socket; the attempt does not begin."""


@record(frozen=True, slots=True)
class Begin:
    """The command to begin the attempt, whose run was sent ahead."""


@record(frozen=True, slots=True)
class Withdraw:
    """The command to take back what is in the worker's socket. Runs that the worker has not begun are
    `Withdrawn`."""


@record(frozen=True, slots=True)
class SendCancel:
    reason: str


@record(frozen=True, slots=True)
class SendYield:
    reason: str


@record(frozen=True, slots=True)
class TerminateWorker:
    why: str


@record(frozen=True, slots=True)
class ReleaseSlot:
    """The command to free the attempt's slot, or its position behind the one that runs, and to remove its
    scratch folder."""


@record(frozen=True, slots=True)
class ReportUploading:
    """The command to tell control that the slot is free and the upload begun."""


@record(frozen=True, slots=True)
class ReportDelay:
    """The command to tell control why the upload is late."""

    why: str


@record(frozen=True, slots=True)
class Upload:
    pass


@record(frozen=True, slots=True)
class StopTransfer:
    """The command to stop the transfer; chunks that wait are dropped."""


@record(frozen=True, slots=True)
class ReportOutcome:
    verdict: Verdict


@record(frozen=True, slots=True)
class ReportReleased:
    pass


@record(frozen=True, slots=True)
class Forget:
    """The command to forget the attempt. `reports`: its reports in the outbox, too."""

    reports: bool = False


Command: TypeAlias = (
    Fetch
    | SendRun
    | SendAhead
    | Begin
    | Withdraw
    | SendCancel
    | SendYield
    | TerminateWorker
    | ReleaseSlot
    | ReportUploading
    | ReportDelay
    | Upload
    | StopTransfer
    | ReportOutcome
    | ReportReleased
    | Forget
)
