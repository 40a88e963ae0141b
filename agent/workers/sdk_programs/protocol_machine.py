"""The protocol machine: decides how each call of a protocol worker is answered, and which frames it causes.

Pure: no clock, no socket. The worker is a program that requests its jobs over HTTP, while the agent sends and
receives frames. The machine translates: jobs wait here until the program takes them, and its posts become
frames.

    Starting --first job-take--> Serving --retire, stop frame--> Draining --nothing runs--> Leaving
        |                           |                                                          ^
        '---------------------------'------------------------ SIGTERM from the agent ----------'

    an attempt:  run frame --> waiting --handed to a job-take--> open --post--> ended
                                  '-- cancelled, or the worker drains   '-- lost

- A poll waits for its answer: if it was answered at once, a stock worker would send a thousand a second. In
  Leaving polls are answered, because the program ends only after they have returned.
- No job is handed to a program that was asked to stop: it would take the job and never run it.
- A job is lost if the program cannot be running it any more, by its own reports:
  - two job-takes in a row have `job_in_progress=0`. Some versions of the stock worker send one more before
    they count a job that they have just received, so the first is answered at once;
  - a batch requests more jobs than the running ones leave room for, after the job was asked to stop;
  - two pings in a row do not name the job, although a job-take showed that it had arrived, and the program's
    pings have named jobs before.
- A post about a job that is not open (a late progress, a second result) changes nothing.
- The number of jobs that the program takes at once is the room of a job-take while nothing runs; it is
  reported to the agent. Programs without batches request each job alone, so the running jobs are added. The
  program may change the number at any time, so a job may find less room than was reported: it waits here, and
  its time limit begins when it is handed over.
- A program that runs nothing and requests nothing while a job waits is stuck, and is replaced.
"""

from __future__ import annotations

from msgspec.structs import replace

from stoker.agent.workers.sdk_programs.bodies import Failed, Finished, PartialOutput, Post, Progressed
from stoker.agent.workers.sdk_programs.events import (
    AnswerStops,
    AnswerTake,
    Call,
    CancelRequested,
    Command,
    DrainRequested,
    Event,
    Handed,
    Left,
    PendingJob,
    Pinged,
    Posted,
    RunRequested,
    SendFrame,
    StopsRequested,
    TakeRequested,
    Terminate,
    Terminated,
    Tick,
    Unfit,
)
from stoker.agent.workers.sdk_programs.state import Open, Poll, ProtocolState, Stepped
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame

TAKE_HOLD_S = 25.0
STOP_HOLD_S = 60.0
"""Less than the 30 s and 90 s after which stock workers give up their polls. After an empty answer to a stop
poll they sleep for a second, in which a cancel cannot reach them: therefore that poll is held longer."""

LEAVE_HOLD_S = 1.0
"""For a poll that arrives after SIGTERM, so that a program that ignores the signal does not poll in a
loop."""

STOP_AGAIN_S = 0.5
"""A stop is repeated, because a job that had not begun ignores it."""

MISSING_MAX = 2

STUCK_S = 60.0
"""How long a program that runs no job may leave a job waiting. No stock worker pauses for more than 5 s."""

LOST = (
    "the worker went on without a result for this job: it could not be written as JSON, could not be"
    " delivered, or the job was dropped before it ran; its log says which"
)
STOPPED = "the job was stopped"
RETIRES = "the handler asked for a fresh worker (refresh_worker)"
STUCK = f"the worker runs no job and has not asked for one for {STUCK_S:g} s, although one waits"

NOBODY = ("",)


# ---- the machine ----------------------------------------------------------------------------------


def step(state: ProtocolState, event: Event) -> Stepped:
    after, commands = _happened(state, event)
    after, handed = _hand_over(after)
    after, stops = _send_stops(after, event.at)
    after, replaced = _replace_if_stuck(after, event.at)
    after, left = _leave_if_drained(after)
    return after, (*commands, *handed, *stops, *replaced, *left)


def wake_at(state: ProtocolState) -> float | None:
    """Returns when the machine needs a Tick, if nothing else happens before."""
    times = [poll.until for poll in (state.take, state.stop) if poll is not None]
    times += [state.stuck_at] if state.stuck_at is not None else []
    if state.stop is not None:
        times += [one.stop_sent_at + STOP_AGAIN_S for one in state.open if one.stop_sent_at is not None]
    return min(times, default=None)


def _happened(state: ProtocolState, event: Event) -> Stepped:
    match event:
        case RunRequested(_, key, text):
            return replace(state, waiting=(*state.waiting, PendingJob(key, text))), ()
        case CancelRequested(_, key):
            return _cancel(state, key)
        case DrainRequested():
            return (state if state.phase == "leaving" else replace(state, phase="draining")), ()
        case Terminated():
            return _answer_polls(replace(state, phase="leaving"))
        case Tick(at):
            return _overdue(state, at)
        case _:
            return _called(state, event)


def _called(state: ProtocolState, event: Call) -> Stepped:
    match event:
        case TakeRequested():
            return _take(state, event)
        case Handed():
            return _handed(state, event)
        case StopsRequested(at, request):
            return _stop(state, at, request)
        case Left(_, request):
            return _without(state, request), ()
        case Posted(_, job, post):
            return _posted(state, job, post)
        case Pinged(_, jobs):
            return _pinged(state, jobs)
        case Unfit(_, why):
            return state, (
                SendFrame(Frame("setup_failed", {"error": why})),
            ) if state.phase == "starting" else ()


# -- polls


def _take(state: ProtocolState, event: TakeRequested) -> Stepped:
    """Holds the new poll. Nobody reads the answer of an older one any more."""
    commands: tuple[Command, ...] = ()
    if state.take is not None:
        commands = (AnswerTake(state.take.request),)
    if state.phase == "starting":
        slots = min(state.slots, event.room) if event.busy is False else state.slots
        state = replace(state, phase="serving", reported_slots=slots)
        commands += (SendFrame(Frame("ready", {"concurrency": slots})),)
    state = replace(state, batches=state.batches or event.many)
    if event.busy is False and any(one.text is None and not one.reported_idle for one in state.open):
        return _recheck(state), (*commands, AnswerTake(event.request))
    state, reports = _compare_jobs(state, event)
    hold = LEAVE_HOLD_S if state.phase == "leaving" else TAKE_HOLD_S
    poll = Poll(event.request, event.at + hold, event.room, event.many)
    return replace(state, take=poll), (*commands, *reports)


def _recheck(state: ProtocolState) -> ProtocolState:
    """Notes that it reported nothing running. The poll is answered at once, so that it reports again."""
    reported_idle = tuple(replace(one, reported_idle=True) if one.text is None else one for one in state.open)
    return replace(state, open=reported_idle, take=None)


def _compare_jobs(state: ProtocolState, event: TakeRequested) -> Stepped:
    """Compares what the poll reports with the jobs that have arrived, and finds those that were lost."""
    if event.busy is None:
        return state, ()
    arrived = [one for one in state.open if one.text is None]
    if not event.busy:
        state, ends = _lose(state, arrived)
        return _report_slots(replace(state, at_once=_at_once(state, event)), ends)
    surplus = len(arrived) - max(state.at_once - event.room, 0) if state.at_once else 0
    stopped = [one for one in arrived if one.stop_sent_at is not None]
    state, ends = _lose(state, stopped[: max(surplus, 0)])
    settled = tuple(
        replace(one, settled=True, reported_idle=False) if one.text is None else one for one in state.open
    )
    state = replace(state, open=settled)
    if state.batches:
        return state, ends
    return _report_slots(replace(state, at_once=_at_once(state, event)), ends)


def _at_once(state: ProtocolState, event: TakeRequested) -> int:
    if state.batches:
        return event.room
    return max(state.at_once, event.room + sum(one.text is None for one in state.open))


def _report_slots(state: ProtocolState, ends: tuple[Command, ...]) -> Stepped:
    """Reports a new number of slots before the ends of lost jobs, so that the agent knows the number when
    these free their slots."""
    now = min(state.slots, state.at_once)
    if now < 1 or now == state.reported_slots:
        return state, ends
    return replace(state, reported_slots=now), (SendFrame(Frame("slots", {"n": now})), *ends)


def _hand_over(state: ProtocolState) -> Stepped:
    """Hands over waiting jobs, but no second attempt of an open job: the program identifies jobs by id
    only."""
    if state.phase != "serving" or state.take is None:
        return state, ()
    taken = {one.key.job for one in state.open}
    jobs: list[PendingJob] = []
    for one in state.waiting:
        if one.key.job not in taken and len(jobs) < state.take.room:
            taken.add(one.key.job)
            jobs.append(one)
    if not jobs:
        return state, ()
    waiting = tuple(one for one in state.waiting if one not in jobs)
    opened = tuple(Open(one.key, one.text) for one in jobs)
    answer = AnswerTake(state.take.request, tuple(jobs), state.take.many)
    return replace(state, waiting=waiting, open=state.open + opened, take=None), (answer,)


def _handed(state: ProtocolState, event: Handed) -> Stepped:
    """Notes that jobs arrived. If they did not, they wait again, before the others."""
    mine = [one for one in state.open if one.key in event.keys and one.text is not None]
    if not event.arrived:
        return _back(state, mine)
    arrived = tuple(replace(one, text=None) if one in mine else one for one in state.open)
    return replace(state, open=arrived), tuple(SendFrame(_about("begun", one.key)) for one in mine)


def _back(state: ProtocolState, mine: list[Open]) -> Stepped:
    stopped = tuple(_failed(one.key, STOPPED) for one in mine if one.stopping)
    back = tuple(PendingJob(one.key, one.text or b"") for one in mine if not one.stopping)
    left = tuple(one for one in state.open if one not in mine)
    return replace(state, open=left, waiting=back + state.waiting), stopped


def _stop(state: ProtocolState, at: float, request: int) -> Stepped:
    older = () if state.stop is None else (AnswerStops(state.stop.request),)
    hold = LEAVE_HOLD_S if state.phase == "leaving" else STOP_HOLD_S
    return replace(state, stop=Poll(request, at + hold)), older


def _send_stops(state: ProtocolState, at: float) -> Stepped:
    if state.stop is None:
        return state, ()
    due = [one for one in state.open if one.stopping and _is_due(one, at)]
    if not due:
        return state, ()
    sent = tuple(replace(one, stop_sent_at=at) if one in due else one for one in state.open)
    answer = AnswerStops(state.stop.request, tuple(one.key.job for one in due))
    return replace(state, open=sent, stop=None), (answer,)


def _is_due(one: Open, at: float) -> bool:
    return one.stop_sent_at is None or at >= one.stop_sent_at + STOP_AGAIN_S


def _without(state: ProtocolState, request: int) -> ProtocolState:
    if state.take is not None and state.take.request == request:
        return replace(state, take=None)
    if state.stop is not None and state.stop.request == request:
        return replace(state, stop=None)
    return state


def _overdue(state: ProtocolState, at: float) -> Stepped:
    commands: tuple[Command, ...] = ()
    if state.take is not None and at >= state.take.until:
        commands += (AnswerTake(state.take.request),)
        state = replace(state, take=None)
    if state.stop is not None and at >= state.stop.until:
        commands += (AnswerStops(state.stop.request),)
        state = replace(state, stop=None)
    return state, commands


# -- posts


def _posted(state: ProtocolState, job: str, post: Post) -> Stepped:
    one = next((one for one in state.open if one.key.job == job), None)
    if one is None:
        return state, ()
    if one.text is not None:  # it has it, whatever became of the answer
        arrived = replace(one, text=None)
        state, one = replace(state, open=_replaced(state.open, one, arrived)), arrived
    match post:
        case Progressed(value):
            return state, (SendFrame(_about("progress", one.key, value)),)
        case PartialOutput(value):
            opened = _replaced(state.open, one, replace(one, chunks=one.chunks + 1))
            return replace(state, open=opened), (SendFrame(_about("chunk", one.key, value, n=one.chunks)),)
        case Finished(output, retire):
            fields = {"files": 0, "metrics": {}, "has_output": output is not None}
            return _ended(state, one, SendFrame(_about("done", one.key, output or b"", **fields)), retire)
        case Failed(error, output, retire):
            return _ended(state, one, _failed(one.key, error, output or b""), retire)


def _replaced(jobs: tuple[Open, ...], old: Open, new: Open) -> tuple[Open, ...]:
    return tuple(new if one is old else one for one in jobs)


def _ended(state: ProtocolState, one: Open, end: SendFrame, retire: bool) -> Stepped:
    """Reports that the worker retires before the job's end frees a slot, so that no job is assigned to it."""
    state = replace(state, open=tuple(other for other in state.open if other is not one))
    if not retire or state.phase not in ("starting", "serving"):
        return state, (end,)
    state, retired = _retire(state, RETIRES)
    return state, (*retired, end)


def _retire(state: ProtocolState, why: str) -> Stepped:
    back = tuple(SendFrame(_about("returned", other.key, reason=why)) for other in state.waiting)
    return replace(state, phase="draining", waiting=()), (SendFrame(Frame("retire", {"reason": why})), *back)


# -- losses and stops


def _pinged(state: ProtocolState, jobs: frozenset[str]) -> Stepped:
    names_jobs = state.names_jobs or any(one.key.job in jobs for one in state.open)
    if not names_jobs:  # some versions cannot name jobs if they may not write to their folder
        return state, ()
    seen = tuple(
        replace(one, missing=0 if one.key.job in jobs else one.missing + 1) if one.settled else one
        for one in state.open
    )
    state = replace(state, open=seen, names_jobs=True)
    return _lose(state, [one for one in seen if one.missing >= MISSING_MAX])


def _lose(state: ProtocolState, lost: list[Open]) -> Stepped:
    left = tuple(one for one in state.open if one not in lost)
    ends = tuple(_failed(one.key, STOPPED if one.stopping else LOST) for one in lost)
    return replace(state, open=left), ends


def _cancel(state: ProtocolState, key: AttemptKey) -> Stepped:
    if any(one.key == key for one in state.waiting):
        left = tuple(one for one in state.waiting if one.key != key)
        return replace(state, waiting=left), (_failed(key, STOPPED),)
    stopping = tuple(replace(one, stopping=True) if one.key == key else one for one in state.open)
    return replace(state, open=stopping), ()


def _replace_if_stuck(state: ProtocolState, at: float) -> Stepped:
    if state.phase != "serving" or state.take is not None or state.open or not state.waiting:
        return (state if state.stuck_at is None else replace(state, stuck_at=None)), ()
    if state.stuck_at is None:
        return replace(state, stuck_at=at + STUCK_S), ()
    if at < state.stuck_at:
        return state, ()
    return _retire(replace(state, stuck_at=None), STUCK)


def _leave_if_drained(state: ProtocolState) -> Stepped:
    if state.phase != "draining" or state.open:
        return state, ()
    state, commands = _answer_polls(replace(state, phase="leaving"))
    return state, (Terminate(), *commands)


def _answer_polls(state: ProtocolState) -> Stepped:
    """Answers the polls, after the signal: a program whose poll returns before it would poll again."""
    commands: tuple[Command, ...] = ()
    if state.take is not None:
        commands += (AnswerTake(state.take.request),)
    if state.stop is not None:
        commands += (AnswerStops(state.stop.request, NOBODY),)
    return replace(state, take=None, stop=None), commands


def _failed(key: AttemptKey, error: str, output: bytes = b"") -> SendFrame:
    return SendFrame(_about("failed", key, output, error=error, retryable=False))


def _about(kind: str, key: AttemptKey, body: bytes = b"", **fields: object) -> Frame:
    return Frame(kind, {"job": key.job, "attempt": key.attempt, **fields}, body)
