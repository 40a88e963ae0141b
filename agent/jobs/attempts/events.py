"""The events and commands of `agent.jobs.attempts.attempt_machine`. Pure data.

`at` is when an event happened, in seconds of the loop's clock.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from stoker.wire.messages import End

Backlog = Literal["", "moving", "stuck"]
"""Chunks of the stream that are not reported yet: none; being stored; or the object store has just failed."""


class Verdict(Struct, frozen=True):
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


class RoomAhead(Struct, frozen=True):
    """The event that the attempt's run may be sent to its worker's socket, behind the run of another."""

    at: float


class Next(Struct, frozen=True):
    """The one before it has left their worker."""

    at: float


class Withdrawn(Struct, frozen=True):
    """The event that the worker had not begun the run in its socket, and will not."""

    at: float


class HandBack(Struct, frozen=True):
    """The event that the attempt is not to wait for its worker any more."""

    at: float
    why: str


class Fetched(Struct, frozen=True):
    at: float


class FetchFailed(Struct, frozen=True):
    """The event that an input, or a save, could not be fetched. `retryable`: another attempt may have it.
    `save_gone`: it is the save, and no attempt can have it."""

    at: float
    error: str
    retryable: bool = False
    save_gone: bool = False


class Begun(Struct, frozen=True):
    """The handler has the job only now, so its execution time starts here."""

    at: float


class Done(Struct, frozen=True):
    """The handler returned. `upload`: files, or an output too large for a message, must be uploaded."""

    at: float
    upload: bool
    backlog: Backlog = ""


class HandlerFailed(Struct, frozen=True):
    at: float
    error: str
    retryable: bool
    backlog: Backlog = ""


class AskedToYield(Struct, frozen=True):
    """The event that the attempt is to give up its place: at once if it has not begun, else at its next
    save."""

    at: float
    why: str


class Yielded(Struct, frozen=True):
    """The handler saved, and gave up its place."""

    at: float
    why: str
    backlog: Backlog = ""


class Stop(Struct, frozen=True):
    """The event that ends the attempt with this verdict: a cancel, a refused file, the agent's shutdown."""

    at: float
    verdict: Verdict


class LeaseLost(Struct, frozen=True):
    """The node may no longer run its attempts. Those that have left their worker go on."""

    at: float


class Dropped(Struct, frozen=True):
    """The event that control needs neither the work nor its reports."""

    at: float


class WorkerGone(Struct, frozen=True):
    """The process was reaped. `planned`: the agent ended it for another reason than this attempt."""

    at: float
    why: str
    planned: bool
    backlog: Backlog = ""


class ChunksUploaded(Struct, frozen=True):
    """The event that no chunk of the stream waits any more."""

    at: float


class ChunkFailed(Struct, frozen=True):
    """A chunk could not be uploaded. Unless this is `retryable`, all that wait are dropped."""

    at: float
    error: str
    retryable: bool


class Uploaded(Struct, frozen=True):
    at: float


class UploadFailed(Struct, frozen=True):
    at: float
    error: str
    retryable: bool


class Acked(Struct, frozen=True):
    at: float


class Tick(Struct, frozen=True):
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


class Fetch(Struct, frozen=True):
    pass


class SendRun(Struct, frozen=True):
    """The command to send the attempt's run: the attempt begins."""


class SendAhead(Struct, frozen=True):
    """The command to put the attempt's run into the worker's socket; the attempt does not begin."""


class Begin(Struct, frozen=True):
    """The command to begin the attempt, whose run was sent ahead."""


class Withdraw(Struct, frozen=True):
    """The command to take back what is in the worker's socket. Runs that the worker has not begun are
    `Withdrawn`."""


class SendCancel(Struct, frozen=True):
    reason: str


class SendYield(Struct, frozen=True):
    reason: str


class TerminateWorker(Struct, frozen=True):
    why: str


class ReleaseSlot(Struct, frozen=True):
    """The command to free the attempt's slot, or its position behind the one that runs, and to remove its
    scratch folder."""


class ReportUploading(Struct, frozen=True):
    """The command to tell control that the slot is free and the upload begun."""


class ReportDelay(Struct, frozen=True):
    """The command to tell control why the upload is late."""

    why: str


class Upload(Struct, frozen=True):
    pass


class StopTransfer(Struct, frozen=True):
    """The command to stop the transfer; chunks that wait are dropped."""


class ReportOutcome(Struct, frozen=True):
    verdict: Verdict


class ReportReleased(Struct, frozen=True):
    pass


class Forget(Struct, frozen=True):
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
