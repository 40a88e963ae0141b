"""The attempt machine: one try at one job, from its Assign to the acknowledgement of its outcome.

Pure: no clock, no process. The shell (`agent.attempts`) holds the payloads and descriptors, performs the
commands and turns what happens into events. A process outlives attempts, and an attempt outlives the death
of its process: what is uploading or reporting needs it no more.

    Fetching --input--> Running --done--> Uploading --------> Reporting --ack--> Over
       |                  |   |--- done without files ------------^  ^
       |                  |   '--- pieces of its stream wait --> Emptying --> Uploading or Reporting
       |                  | timeout, cancel, lease lost, ttl         ^
       |                  v                                          |
       |              Cancelling --term_at--> Terminating --kill_at--> Killed
       |                  '-- answered, or the worker's exit --------^ (the worker's exit only)
       '-- cancel, ttl, no input --------------------------------^

- The verdict is fixed when the ladder begins: a `done` that arrives after the timeout fired changes nothing.
- A cooperative end (an answer to the cancel frame) leaves the worker alive; after SIGTERM only the worker's
  exit ends the attempt, so that its slot is free when the outcome says so.
- `Dropped`: control wants to hear nothing of it. The ladder runs all the same, then the slot is released.
- Pieces of the stream that wait for the object store hold no slot. Those of a completed attempt are waited
  for until the ttl. Any other end is reported at once when the store fails or had just failed, and after
  FLUSH_S at the latest; what is not there by then is dropped, together with what was emitted behind it.
- `given back`: ended through no fault of its own (a neighbour's kill, a shutdown); it is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from stoker.agent.attempt_events import (
    COMPLETED,
    Acked,
    Begun,
    Command,
    Done,
    Dropped,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    Forget,
    HandlerFailed,
    KillWorker,
    LeaseLost,
    LeaveWorker,
    PieceFailed,
    PiecesOut,
    Report,
    SayReleased,
    SayUploading,
    SendCancel,
    SendRun,
    Stop,
    StopTransfer,
    Tail,
    TerminateWorker,
    Tick,
    Upload,
    Uploaded,
    UploadFailed,
    Verdict,
    WorkerGone,
)
from stoker.wire.messages import AttemptPhase


@dataclass(frozen=True, slots=True)
class Ladder:
    """How long a handler may take to answer a cancel frame, and its worker to die of SIGTERM."""

    cooperative_s: float = 2.0
    term_s: float = 3.0


UPLOAD_FIRST_S = 0.5
UPLOAD_LONGEST_S = 30.0
FLUSH_S = 2.0
"""How long an end that is no success may wait for what its handler had emitted before."""


def wait_after(failures: int) -> float:
    """How long the object store is left alone after it has failed, having failed `failures` times before."""
    return min(UPLOAD_FIRST_S * 2.0 ** min(failures, 16), UPLOAD_LONGEST_S)


# ---- states -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fetching:
    """Its input is being fetched; it holds a slot. `timeout_s` starts to count when it runs."""

    ttl_at: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Running:
    started: float
    deadline: float
    ttl_at: float


@dataclass(frozen=True, slots=True)
class Cancelling:
    """The cancel frame is sent. A verdict of None: nobody wants to know."""

    term_at: float
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Terminating:
    kill_at: float
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Killed:
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Uploading:
    """The handler is done and the slot free; executionTimeout counts no more, ttl does."""

    ttl_at: float
    failures: int = 0
    retry_at: float | None = None
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class Emptying:
    """The handler is done, the slot free, and pieces of the stream wait: they are told before the verdict.

    `until` is the ttl for a completed attempt, of which `upload` says whether its result is uploaded next.
    """

    until: float
    verdict: Verdict
    upload: bool = False
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class Reporting:
    """The outcome is in the outbox."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Over:
    """Nothing is left to do, and nothing is kept."""


State: TypeAlias = (
    Fetching | Running | Cancelling | Terminating | Killed | Emptying | Uploading | Reporting | Over
)


Stepped: TypeAlias = tuple[State, tuple[Command, ...]]


# ---- the machine ----------------------------------------------------------------------------------


def begin(at: float, timeout_s: float, ttl_s: float, *, fetch: bool) -> Stepped:
    """The Assign has been taken."""
    if fetch:
        return Fetching(at + ttl_s, timeout_s), (Fetch(),)
    return Running(at, at + timeout_s, at + ttl_s), (SendRun(),)


def step(state: State, event: Event, ladder: Ladder = Ladder()) -> Stepped:
    """What `event` makes of `state`. Late news changes nothing and commands nothing."""
    match state:
        case Fetching():
            return _fetching(state, event)
        case Running():
            return _running(state, event, ladder)
        case Cancelling() | Terminating() | Killed():
            return _stopping(state, event, ladder)
        case Emptying():
            return _emptying(state, event)
        case Uploading():
            return _uploading(state, event)
        case Reporting():
            return _reporting(state, event)
        case Over():
            return state, ()
        case _:
            assert_never(state)


def wake_at(state: State) -> float | None:
    """When the machine wants a Tick, if nothing else happens."""
    match state:
        case Fetching(ttl_at=at) | Cancelling(term_at=at) | Terminating(kill_at=at) | Emptying(until=at):
            return at
        case Running(deadline=deadline, ttl_at=ttl_at):
            return min(deadline, ttl_at)
        case Uploading(ttl_at=ttl_at, retry_at=retry_at):
            return ttl_at if retry_at is None else min(ttl_at, retry_at)
        case Killed() | Reporting() | Over():
            return None
        case _:
            assert_never(state)


def phase(state: State) -> AttemptPhase | None:
    """The word for it that control knows; None when there is nothing to tell."""
    match state:
        case Fetching() | Running() | Cancelling() | Terminating() | Killed():
            return "running"
        case Emptying() | Uploading():
            return "uploading"
        case Reporting():
            return "reporting"
        case Over():
            return None
        case _:
            assert_never(state)


def _fetching(state: Fetching, event: Event) -> Stepped:
    match event:
        case Fetched(at):
            return Running(at, at + state.timeout_s, state.ttl_at), (SendRun(),)
        case FetchFailed(_, error):
            return _end_unstarted(Verdict("failed", error))
        case Stop(_, verdict):
            return _end_unstarted(verdict)
        case LeaseLost():
            return _end_unstarted(_LEASE)
        case WorkerGone(_, why, planned):
            return _end_unstarted(_lost(why, planned))
        case Dropped():
            return Over(), (StopTransfer(), LeaveWorker(), *_UNWANTED)
        case Tick(at) if at >= state.ttl_at:
            return _end_unstarted(_TTL)
        case _:
            return state, ()


def _end_unstarted(verdict: Verdict) -> Stepped:
    return Reporting(verdict), (StopTransfer(), LeaveWorker(), Report(verdict))


def _running(state: Running, event: Event, ladder: Ladder) -> Stepped:
    match event:
        case Begun(at):
            return Running(at, at + state.deadline - state.started, state.ttl_at), ()
        case Done(_, upload, tail) if tail:
            return Emptying(state.ttl_at, COMPLETED, upload), (LeaveWorker(), SayUploading())
        case Done(_, upload=True):
            return Uploading(state.ttl_at), (LeaveWorker(), SayUploading(), Upload())
        case Done(at):
            return _leave(at, COMPLETED)
        case HandlerFailed(at, error, retryable, tail):
            return _leave(at, Verdict("failed", error, retryable), tail)
        case WorkerGone(at, why, planned, tail):
            return _leave(at, _lost(why, planned), tail)
        case PieceFailed(at, error, retryable=False):
            return _cancel(at, Verdict("failed", error), error, ladder)
        case Stop(at, verdict):
            return _cancel(at, verdict, verdict.error or verdict.end, ladder)
        case LeaseLost(at):
            return _cancel(at, _LEASE, _LEASE.error or "", ladder)
        case Dropped(at):
            return _cancel(at, None, "control no longer wants it", ladder)
        case Tick(at) if at >= min(state.deadline, state.ttl_at):
            verdict = _timeout(state) if at >= state.deadline else _TTL
            return _cancel(at, verdict, verdict.error or "", ladder)
        case _:
            return state, ()


def _cancel(at: float, verdict: Verdict | None, reason: str, ladder: Ladder) -> Stepped:
    return Cancelling(at + ladder.cooperative_s, verdict), (SendCancel(reason),)


def _stopping(state: Cancelling | Terminating | Killed, event: Event, ladder: Ladder) -> Stepped:
    match state, event:
        case _, WorkerGone(at, tail=tail):
            return _leave(at, state.verdict, tail)
        case _, Dropped():
            return replace(state, verdict=None), ()
        case Cancelling(), (Done(at, tail=tail) | HandlerFailed(at, tail=tail)):
            return _leave(at, state.verdict, tail)
        case Cancelling(term_at, verdict), Tick(at) if at >= term_at:
            return Terminating(at + ladder.term_s, verdict), (TerminateWorker(_words(verdict)),)
        case Terminating(kill_at, verdict), Tick(at) if at >= kill_at:
            return Killed(verdict), (KillWorker(_words(verdict)),)
        case _:
            return state, ()


def _leave(at: float, verdict: Verdict | None, tail: Tail = "") -> Stepped:
    if verdict is None:
        return Over(), (LeaveWorker(), *_UNWANTED)
    if tail == "moving" and not verdict.given_back:
        return Emptying(at + FLUSH_S, verdict), (LeaveWorker(), SayReleased())
    return Reporting(verdict), (LeaveWorker(), Report(verdict))


def _emptying(state: Emptying, event: Event) -> Stepped:
    completed = state.verdict == COMPLETED
    match event:
        case PiecesOut() if state.upload:
            return Uploading(state.until), (Upload(),)
        case PiecesOut():
            return Reporting(state.verdict), (Report(state.verdict),)
        case PieceFailed(_, error, retryable=True) if completed:
            return replace(state, last_error=error), ()
        case PieceFailed(_, error):
            return _end_upload(Verdict("failed", error) if completed else state.verdict)
        case Stop(_, verdict):
            return _end_upload(verdict if completed else state.verdict)
        case Dropped():
            return Over(), (StopTransfer(), *_UNWANTED)
        case Tick(at) if at >= state.until:
            late = _too_late("partial output", state.last_error)
            return _end_upload(late if completed else state.verdict)
        case _:
            return state, ()


def _uploading(state: Uploading, event: Event) -> Stepped:
    match event:
        case Uploaded():
            return Reporting(COMPLETED), (Report(COMPLETED),)
        case UploadFailed(at, error, retryable=True):
            wait = wait_after(state.failures)
            return replace(state, failures=state.failures + 1, retry_at=at + wait, last_error=error), ()
        case UploadFailed(_, error):
            return _end_upload(Verdict("failed", error))
        case Stop(_, verdict):
            return _end_upload(verdict)
        case Dropped():
            return Over(), (StopTransfer(), *_UNWANTED)
        case Tick(at) if at >= state.ttl_at:
            return _end_upload(_too_late("result", state.last_error))
        case Tick(at) if state.retry_at is not None and at >= state.retry_at:
            return replace(state, retry_at=None), (Upload(),)
        case _:
            return state, ()


def _end_upload(verdict: Verdict) -> Stepped:
    return Reporting(verdict), (StopTransfer(), Report(verdict))


def _reporting(state: Reporting, event: Event) -> Stepped:
    match event:
        case Acked():
            return Over(), (Forget(),)
        case Dropped():
            return Over(), _UNWANTED
        case _:
            return state, ()


_UNWANTED = (Forget(reports=True), SayReleased())
"""Its reports go, and with them the one that frees its slot: that is said anew."""

_LEASE = Verdict("lost", "the node was cut off for longer than its lease", retryable=True)
_TTL = Verdict("timed_out", "the job's ttl elapsed while it ran")


def _too_late(what: str, error: str) -> Verdict:
    words = f": {error}" if error else ""
    return Verdict("failed", f"the {what} was not uploaded before the job's ttl{words}")


def _timeout(state: Running) -> Verdict:
    return Verdict("timed_out", f"executionTimeout of {state.deadline - state.started:g} s exceeded")


def _lost(why: str, planned: bool) -> Verdict:
    return Verdict("lost", why, retryable=True, given_back=planned)


def _words(verdict: Verdict | None) -> str:
    """Why the worker is killed, for whoever reads its state."""
    return (
        "an unwanted job did not stop"
        if verdict is None
        else f"a job did not stop: {verdict.error or verdict.end}"
    )
