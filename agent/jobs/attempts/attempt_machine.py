"""The attempt machine: one try at one job, from its Assign to the acknowledgement of its outcome.

Pure: no clock, no process. The shell (`agent.jobs.attempts.attempts`) holds the payloads and descriptors,
performs the commands and turns what happens into events. A process outlives its attempts, and an attempt may
outlive its process: uploading and reporting need none.

    Waiting --next--> Fetching or Running       (its worker runs another; only these two hold a slot)
       '-- cancel, ttl, handed back, the worker's exit: no ladder ----> Reporting

    Fetching --input--> Running --done--> Uploading --------> Reporting --ack--> Over
       |                  |   |--- done without files ------------^  ^
       |                  |   '--- chunks of its stream wait --> Flushing --> Uploading or Reporting
       |                  | timeout, cancel, lease lost, ttl         ^
       |                  v                                          |
       |              Cancelling --term_at--> Terminating -----------'
       |                  '-- answered, or the worker's exit         (the worker's exit only)
       '-- cancel, ttl, no input --------------------------------^

- The verdict is fixed when the attempt is cancelled: a `done` that arrives after the timeout changes nothing.
- A handler that answers the cancel frame leaves the worker alive. One that does not loses its worker to
  SIGTERM, and then to SIGKILL (`agent.workers.lifecycle.process_machine` counts that time). Only the worker's
  exit ends the attempt then, so its slot is free when the outcome is reported.
- `Dropped`: control accepts no more reports about it. It is stopped all the same; then its slot is free.
- Chunks of the stream that wait for the object store hold no slot. Those of a completed attempt are waited
  for until the ttl, and so is the save of one that yielded. Any other end is reported at once when the store
  fails or has just failed, and after FLUSH_S at the latest; the chunks that are not stored by then are
  dropped, with all that follow them.
- `Waiting`: its clock, its scratch folder and its log begin once the attempt before it has left the worker.
  Its run may be sent before that, and withdrawn until the worker has begun it; where that is too late, its
  end waits until the one before has left. The worker's death is not counted to it.
- `AskedToYield` changes nothing by itself once the handler has begun: the handler decides at its next save.
- `given_back`: ended through no fault of its own (a neighbour's kill, a shutdown); it is not counted.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec.structs import replace

from stoker.agent.jobs.attempts.events import (
    COMPLETED,
    Acked,
    AskedToYield,
    Backlog,
    Begin,
    Begun,
    ChunkFailed,
    ChunksUploaded,
    Command,
    Done,
    Dropped,
    Event,
    Fetch,
    Fetched,
    FetchFailed,
    Forget,
    HandBack,
    HandlerFailed,
    LeaseLost,
    Next,
    ReleaseSlot,
    ReportDelay,
    ReportOutcome,
    ReportReleased,
    ReportUploading,
    RoomAhead,
    SendAhead,
    SendCancel,
    SendRun,
    SendYield,
    Stop,
    StopTransfer,
    TerminateWorker,
    Tick,
    Upload,
    Uploaded,
    UploadFailed,
    Verdict,
    Withdraw,
    Withdrawn,
    WorkerGone,
    Yielded,
)
from stoker.agent.jobs.attempts.states import (
    Cancelling,
    Fetching,
    Flushing,
    Over,
    Reporting,
    Running,
    State,
    Terminating,
    Uploading,
    Waiting,
)
from stoker.wire.messages import AttemptPhase

CANCEL_S = 2.0
"""How long a handler may take to answer a cancel frame, before its worker gets SIGTERM."""

UPLOAD_FIRST_S = 0.5
UPLOAD_LONGEST_S = 30.0
FLUSH_S = 2.0
"""How long any end but success may wait for the chunks that its handler had emitted before."""


def wait_after(failures: int) -> float:
    """Returns the pause after a failure of the object store that `failures` others preceded."""
    return min(UPLOAD_FIRST_S * 2.0 ** min(failures, 16), UPLOAD_LONGEST_S)


Stepped: TypeAlias = tuple[State, tuple[Command, ...]]


# ---- the machine ----------------------------------------------------------------------------------


def begin(at: float, timeout_s: float, ttl_s: float, *, fetch: bool, waits: bool = False) -> Stepped:
    """Begins an attempt whose Assign has been taken. `waits`: its worker runs another."""
    if waits:
        return Waiting(at + ttl_s, timeout_s, fetch), ()
    if fetch:
        return Fetching(at + ttl_s, timeout_s), (Fetch(),)
    return Running(at, at + timeout_s, at + ttl_s), (SendRun(),)


def step(state: State, event: Event, cancel_s: float = CANCEL_S) -> Stepped:
    """Returns the state after `event`, and the commands. Late events change nothing."""
    match state:
        case Waiting():
            return _waiting(state, event, cancel_s)
        case Fetching():
            return _fetching(state, event)
        case Running() if isinstance(event, Withdrawn):
            return state, (SendRun(),)
        case Running():
            return _running(state, event, cancel_s)
        case Cancelling() | Terminating():
            return _stopping(state, event)
        case Flushing():
            return _flushing(state, event)
        case Uploading():
            return _uploading(state, event)
        case Reporting():
            return _reporting(state, event)
        case Over():
            return state, ()
        case _:
            assert_never(state)


def wake_at(state: State) -> float | None:
    """Returns when the machine needs a Tick, if nothing else happens."""
    match state:
        case Waiting(end=end, ttl_at=ttl_at):
            return ttl_at if end is None or isinstance(end, HandBack) else None
        case Fetching(ttl_at=at) | Cancelling(term_at=at) | Flushing(until=at):
            return at
        case Running(deadline=deadline, ttl_at=ttl_at):
            return min(deadline, ttl_at)
        case Uploading(ttl_at=ttl_at, retry_at=retry_at):
            return ttl_at if retry_at is None else min(ttl_at, retry_at)
        case Terminating() | Reporting() | Over():
            return None
        case _:
            assert_never(state)


def phase(state: State) -> AttemptPhase | None:
    """Returns the phase that is reported to control; None when there is none."""
    match state:
        case Waiting():
            return "waiting"
        case Fetching() | Running() | Cancelling() | Terminating():
            return "running"
        case Flushing() | Uploading():
            return "uploading"
        case Reporting():
            return "reporting"
        case Over():
            return None
        case _:
            assert_never(state)


def _waiting(state: Waiting, event: Event, cancel_s: float) -> Stepped:
    match event:
        case RoomAhead() if not (state.sent or state.fetch):
            return replace(state, sent=True), (SendAhead(),)
        case Withdrawn():
            return (replace(state, sent=False), ()) if state.end is None else _end_waiting(state.end)
        case Next(at):
            return _next(state, at, cancel_s)
        case WorkerGone(_, why):
            return _end_waiting(HandBack(event.at, why))
        case Tick(at) if at >= state.ttl_at:
            return _stop_waiting(state, Stop(at, _WAITED))
        case AskedToYield(at, why):
            return _stop_waiting(state, HandBack(at, why))
        case Stop() | LeaseLost() | Dropped() | HandBack():
            return _stop_waiting(state, event)
        case _:
            return state, ()


def _next(state: Waiting, at: float, cancel_s: float) -> Stepped:
    if state.fetch:
        return Fetching(state.ttl_at, state.timeout_s), (Fetch(),)
    running = Running(at, at + state.timeout_s, state.ttl_at)
    if not state.sent:
        return running, (SendRun(),)
    if state.end is None:
        return running, (Begin(),)
    stopping, commands = _running(running, replace(state.end, at=at), cancel_s)
    return stopping, (Begin(), *commands)


def _stop_waiting(state: Waiting, end: Stop | LeaseLost | Dropped | HandBack) -> Stepped:
    """Ends a waiting attempt; if its run is in the socket, the end is known once the run is withdrawn."""
    if not state.sent:
        return _end_waiting(end)
    if state.end is None or isinstance(state.end, HandBack):
        return replace(state, end=end), (Withdraw(),)
    return (replace(state, end=end) if isinstance(end, Dropped) else state), ()


def _end_waiting(end: Stop | LeaseLost | Dropped | HandBack) -> Stepped:
    match end:
        case Dropped(at):
            return _leave(at, None)
        case Stop(at, verdict):
            return _leave(at, verdict)
        case HandBack(at, why):
            return _leave(at, Verdict("lost", why, retryable=True, given_back=True, at_once=True))
        case LeaseLost(at):
            return _leave(at, replace(_LEASE, given_back=True))
        case _:
            assert_never(end)


def _fetching(state: Fetching, event: Event) -> Stepped:
    match event:
        case Fetched(at):
            return Running(at, at + state.timeout_s, state.ttl_at), (SendRun(),)
        case FetchFailed(_, error, retryable, save_gone):
            return _end_unstarted(Verdict("failed", error, retryable, save_gone=save_gone))
        case AskedToYield(_, why):
            return _end_unstarted(Verdict("lost", why, retryable=True, given_back=True, at_once=True))
        case Stop(_, verdict):
            return _end_unstarted(verdict)
        case LeaseLost():
            return _end_unstarted(_LEASE)
        case WorkerGone(_, why, planned):
            return _end_unstarted(_lost(why, planned))
        case Dropped():
            return Over(), (StopTransfer(), ReleaseSlot(), *_FORGET)
        case Tick(at) if at >= state.ttl_at:
            return _end_unstarted(_TTL)
        case _:
            return state, ()


def _end_unstarted(verdict: Verdict) -> Stepped:
    return Reporting(verdict), (StopTransfer(), ReleaseSlot(), ReportOutcome(verdict))


def _running(state: Running, event: Event, cancel_s: float) -> Stepped:
    match event:
        case Begun(at):
            return Running(at, at + state.deadline - state.started, state.ttl_at), ()
        case Done() | HandlerFailed() | Yielded():
            return _answered(state, event)
        case AskedToYield(_, why):
            return state, (SendYield(why),)
        case WorkerGone(at, why, planned, backlog):
            return _leave(at, _lost(why, planned), backlog)
        case ChunkFailed(at, error, retryable=False):
            return _cancel(at, Verdict("failed", error), error, cancel_s)
        case Stop(at, verdict):
            return _cancel(at, verdict, verdict.error or verdict.end, cancel_s)
        case LeaseLost(at):
            return _cancel(at, _LEASE, _LEASE.error or "", cancel_s)
        case Dropped(at):
            return _cancel(at, None, "control no longer wants it", cancel_s)
        case Tick(at) if at >= min(state.deadline, state.ttl_at):
            verdict = _timeout(state) if at >= state.deadline else _TTL
            return _cancel(at, verdict, verdict.error or "", cancel_s)
        case _:
            return state, ()


def _answered(state: Running, event: Done | HandlerFailed | Yielded) -> Stepped:
    """Ends an attempt as its handler did. Where it yielded, a save that is on its way to the object store is
    waited for: without it the work was in vain."""
    match event:
        case Done(_, upload, backlog) if backlog:
            return Flushing(state.ttl_at, COMPLETED, upload), (ReleaseSlot(), ReportUploading())
        case Done(_, upload=True):
            return Uploading(state.ttl_at), (ReleaseSlot(), ReportUploading(), Upload())
        case Done():
            return Reporting(COMPLETED), (ReleaseSlot(), ReportOutcome(COMPLETED))
        case Yielded(_, why, backlog) if backlog:
            verdict = Verdict("yielded", why, retryable=True)
            return Flushing(state.ttl_at, verdict), (ReleaseSlot(), ReportUploading())
        case Yielded(at, why):
            return _leave(at, Verdict("yielded", why, retryable=True))
        case HandlerFailed(at, error, retryable, backlog):
            return _leave(at, Verdict("failed", error, retryable), backlog)


def _cancel(at: float, verdict: Verdict | None, reason: str, cancel_s: float) -> Stepped:
    return Cancelling(at + cancel_s, verdict), (SendCancel(reason),)


def _stopping(state: Cancelling | Terminating, event: Event) -> Stepped:
    match state, event:
        case _, WorkerGone(at, backlog=backlog):
            return _leave(at, state.verdict, backlog)
        case _, Dropped():
            return replace(state, verdict=None), ()
        case Cancelling(), Withdrawn(at):
            return _leave(at, state.verdict)
        case Cancelling(), Yielded(at, backlog=backlog):
            return _leave(at, state.verdict, backlog)
        case Cancelling(), (Done(at, backlog=backlog) | HandlerFailed(at, backlog=backlog)):
            return _leave(at, state.verdict, backlog)
        case Cancelling(term_at, verdict), Tick(at) if at >= term_at:
            why = "an unwanted job did not stop"
            if verdict is not None:
                why = f"a job did not stop: {verdict.error or verdict.end}"
            return Terminating(verdict), (TerminateWorker(why),)
        case _:
            return state, ()


def _leave(at: float, verdict: Verdict | None, backlog: Backlog = "") -> Stepped:
    if verdict is None:
        return Over(), (ReleaseSlot(), *_FORGET)
    if backlog == "moving" and not verdict.given_back:
        return Flushing(at + FLUSH_S, verdict), (ReleaseSlot(), ReportReleased())
    return Reporting(verdict), (ReleaseSlot(), ReportOutcome(verdict))


def _flushing(state: Flushing, event: Event) -> Stepped:
    completed = state.verdict == COMPLETED
    waits = completed or state.verdict.end == "yielded"
    match event:
        case ChunksUploaded() if state.upload:
            return Uploading(state.until), (Upload(),)
        case ChunksUploaded():
            return Reporting(state.verdict), (ReportOutcome(state.verdict),)
        case ChunkFailed(_, error, retryable=True) if waits:
            return replace(state, last_error=error), _report_delay(error, state.last_error)
        case ChunkFailed(_, error):
            return _end_upload(Verdict("failed", error) if completed else state.verdict)
        case Stop(_, verdict):
            return _end_upload(verdict if completed else state.verdict)
        case Dropped():
            return Over(), (StopTransfer(), *_FORGET)
        case Tick(at) if at >= state.until:
            late = _too_late("partial output", state.last_error)
            return _end_upload(late if completed else state.verdict)
        case _:
            return state, ()


def _uploading(state: Uploading, event: Event) -> Stepped:
    match event:
        case Uploaded():
            return Reporting(COMPLETED), (ReportOutcome(COMPLETED),)
        case UploadFailed(at, error, retryable=True):
            wait = wait_after(state.failures)
            waiting = replace(state, failures=state.failures + 1, retry_at=at + wait, last_error=error)
            return waiting, _report_delay(error, state.last_error)
        case UploadFailed(_, error):
            return _end_upload(Verdict("failed", error))
        case Stop(_, verdict):
            return _end_upload(verdict)
        case Dropped():
            return Over(), (StopTransfer(), *_FORGET)
        case Tick(at) if at >= state.ttl_at:
            return _end_upload(_too_late("result", state.last_error))
        case Tick(at) if state.retry_at is not None and at >= state.retry_at:
            return replace(state, retry_at=None), (Upload(),)
        case _:
            return state, ()


def _report_delay(error: str, before: str) -> tuple[Command, ...]:
    """Returns the command to report a delay, once for each reason: a store may be down for hours."""
    return () if error == before else (ReportDelay(error),)


def _end_upload(verdict: Verdict) -> Stepped:
    return Reporting(verdict), (StopTransfer(), ReportOutcome(verdict))


def _reporting(state: Reporting, event: Event) -> Stepped:
    match event:
        case Acked():
            return Over(), (Forget(),)
        case Dropped():
            return Over(), _FORGET
        case _:
            return state, ()


_FORGET = (Forget(reports=True), ReportReleased())
"""Its reports are dropped, and with them the one that frees its slot, which is reported again."""

_LEASE = Verdict("lost", "the node was cut off for longer than its lease", retryable=True)
_TTL = Verdict("timed_out", "the job's ttl elapsed while it ran")
_WAITED = Verdict("timed_out", "the job's ttl elapsed while it waited for its worker")


def _too_late(what: str, error: str) -> Verdict:
    reason = f": {error}" if error else ""
    return Verdict("failed", f"the {what} was not uploaded before the job's ttl{reason}")


def _timeout(state: Running) -> Verdict:
    return Verdict("timed_out", f"executionTimeout of {state.deadline - state.started:g} s exceeded")


def _lost(why: str, planned: bool) -> Verdict:
    return Verdict("lost", why, retryable=True, given_back=planned)
