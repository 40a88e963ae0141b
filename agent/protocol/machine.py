"""The protocol machine: what each call of a worker, and each frame for it, leads to.

Pure: no clock, no socket. The worker is a program that asks for jobs over HTTP; the agent speaks frames. This
stands between: jobs wait here until the program takes them, and its posts become frames.

    Starting --first job-take--> Serving --retire, stop frame--> Draining --nothing runs--> Leaving
        |                           '------------------- SIGTERM of a ladder ----------------^
        '-------------------------------------------------------------------------------'
                                    run frame
    an attempt:                         '-> waiting --handed to a held job-take--> open --post--> gone
                                               '-- cancel, or the worker drains       '-- lost

- A poll is held: an answer at once makes a stock worker ask a thousand times a second. Only in Leaving it is
  let go, since the program ends when its polls have returned.
- No job is handed to a program that was told to stop: it would take the job, and never run it.
- Lost is what the program can no longer be running, by what it says itself: `job_in_progress=0` in two
  job-takes in a row (some versions of the stock worker ask once more before they count what they have just
  been given, so the first is answered at once); a batch that is larger than what runs allows, once a job was
  told to stop; two pings in a row without the job, after a job-take has shown that it had arrived, and of a
  program whose pings have ever named a job.
- What is said of a job that is not open (a late progress, a second result) changes nothing.
- How many jobs it takes at once is the room of a job-take while nothing runs; that is told. Programs that
  know no batches ask for each job alone, so what they ask for beside what runs counts, too. Its own modifier
  changes the number as it likes, so a job may find less room than was told: it waits here, and its time
  begins when it is handed over.
- A program that runs nothing and asks for nothing, while a job waits, is stuck: it is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from stoker.agent.protocol_bodies import Failed, Finished, Piece, Post, Progressed
from stoker.agent.protocol_events import (
    Call,
    CancelAsked,
    Command,
    DrainAsked,
    Event,
    GiveJobs,
    GiveStops,
    Handed,
    Left,
    Pinged,
    Posted,
    RunAsked,
    Say,
    StopAsked,
    TakeAsked,
    Terminate,
    Terminated,
    Tick,
    Unfit,
    Waiting,
)
from stoker.wire.messages import AttemptKey
from stoker.worker.frames import Frame

TAKE_HOLD_S = 25.0
STOP_HOLD_S = 60.0
"""Below the 30 s and the 90 s after which stock workers give their polls up. After an empty answer about
stops they sleep for a second, in which a cancel cannot reach them: that is why this one is longer."""

LEAVE_HOLD_S = 1.0
"""Of a poll that comes after SIGTERM: a program that ignores the signal must not spin."""

TELL_AGAIN_S = 0.5
"""A job that was told to stop and had not begun yet has not heard of it."""

MISSING_MAX = 2

STUCK_S = 60.0
"""How long a program that runs no job may leave one waiting. No stock worker pauses for more than 5 s."""

LOST = (
    "the worker went on without a result for this job: it could not be written as JSON, could not be"
    " delivered, or the job was dropped before it ran; its log says which"
)
STOPPED = "the job was stopped"
RETIRES = "the handler asked for a fresh worker (refresh_worker)"
STUCK = f"the worker runs no job and has not asked for one for {STUCK_S:g} s, although one waits"

Phase = Literal["starting", "serving", "draining", "leaving"]


@dataclass(frozen=True, slots=True)
class Open:
    """At the program. `text` is kept until its delivery is known. `settled`: a later job-take has shown that
    the program counts it; `doubted`: the last one has said that it runs nothing."""

    key: AttemptKey
    text: bytes | None
    settled: bool = False
    doubted: bool = False
    missing: int = 0
    stopping: bool = False
    told_at: float | None = None
    pieces: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """A call that is held. `room`: how many jobs it can bring; `many`: as a list."""

    request: int
    until: float
    room: int = 0
    many: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """`slots` is what the endpoint allows; `at_once` how many the program takes, known when nothing runs;
    `told` what was last said of that. `batches`, `names`: it has asked for several jobs at once, its pings
    have named one. `stuck_at`: when it counts as stuck, if it asks for nothing until then."""

    slots: int = 1
    told: int | None = None
    phase: Phase = "starting"
    at_once: int = 0
    batches: bool = False
    names: bool = False
    stuck_at: float | None = None
    waiting: tuple[Waiting, ...] = ()
    open: tuple[Open, ...] = ()
    take: Poll | None = None
    stop: Poll | None = None


Stepped: TypeAlias = tuple[State, tuple[Command, ...]]

NOBODY = ("",)


# ---- the machine ----------------------------------------------------------------------------------


def step(state: State, event: Event) -> Stepped:
    after, commands = _happened(state, event)
    after, given = _hand_over(after)
    after, told = _tell_stops(after, event.at)
    after, replaced = _replace_if_stuck(after, event.at)
    after, left = _leave_if_drained(after)
    return after, (*commands, *given, *told, *replaced, *left)


def wake_at(state: State) -> float | None:
    """When the machine wants a Tick, if nothing else happens."""
    times = [poll.until for poll in (state.take, state.stop) if poll is not None]
    times += [state.stuck_at] if state.stuck_at is not None else []
    if state.stop is not None:
        times += [one.told_at + TELL_AGAIN_S for one in state.open if one.told_at is not None]
    return min(times, default=None)


def _happened(state: State, event: Event) -> Stepped:
    match event:
        case RunAsked(_, key, text):
            return replace(state, waiting=(*state.waiting, Waiting(key, text))), ()
        case CancelAsked(_, key):
            return _cancel(state, key)
        case DrainAsked():
            return (state if state.phase == "leaving" else replace(state, phase="draining")), ()
        case Terminated():
            return _let_go(replace(state, phase="leaving"))
        case Tick(at):
            return _overdue(state, at)
        case _:
            return _called(state, event)


def _called(state: State, event: Call) -> Stepped:
    match event:
        case TakeAsked():
            return _take(state, event)
        case Handed():
            return _handed(state, event)
        case StopAsked(at, request):
            return _stop(state, at, request)
        case Left(_, request):
            return _without(state, request), ()
        case Posted(_, job, post):
            return _posted(state, job, post)
        case Pinged(_, jobs):
            return _pinged(state, jobs)
        case Unfit(_, why):
            return state, (Say(Frame("setup_failed", {"error": why})),) if state.phase == "starting" else ()


# -- polls


def _take(state: State, event: TakeAsked) -> Stepped:
    """The newest poll counts: of an older one nobody reads the answer."""
    commands: tuple[Command, ...] = ()
    if state.take is not None:
        commands = (GiveJobs(state.take.request),)
    if state.phase == "starting":
        told = min(state.slots, event.room) if event.busy is False else state.slots
        state = replace(state, phase="serving", told=told)
        commands += (Say(Frame("ready", {"concurrency": told})),)
    state = replace(state, batches=state.batches or event.many)
    if event.busy is False and any(one.text is None and not one.doubted for one in state.open):
        return _doubt(state), (*commands, GiveJobs(event.request))
    state, said = _counted(state, event)
    hold = LEAVE_HOLD_S if state.phase == "leaving" else TAKE_HOLD_S
    poll = Poll(event.request, event.at + hold, event.room, event.many)
    return replace(state, take=poll), (*commands, *said)


def _doubt(state: State) -> State:
    """It is asked once more, at once."""
    doubted = tuple(replace(one, doubted=True) if one.text is None else one for one in state.open)
    return replace(state, open=doubted, take=None)


def _counted(state: State, event: TakeAsked) -> Stepped:
    """What the poll says of the jobs that had arrived before."""
    if event.busy is None:
        return state, ()
    arrived = [one for one in state.open if one.text is None]
    if not event.busy:
        state, said = _lose(state, arrived)
        return _tell_slots(replace(state, at_once=_at_once(state, event)), said)
    surplus = len(arrived) - max(state.at_once - event.room, 0) if state.at_once else 0
    told = [one for one in arrived if one.told_at is not None]
    state, said = _lose(state, told[: max(surplus, 0)])
    settled = tuple(
        replace(one, settled=True, doubted=False) if one.text is None else one for one in state.open
    )
    state = replace(state, open=settled)
    if state.batches:
        return state, said
    return _tell_slots(replace(state, at_once=_at_once(state, event)), said)


def _at_once(state: State, event: TakeAsked) -> int:
    if state.batches:
        return event.room
    return max(state.at_once, event.room + sum(one.text is None for one in state.open))


def _tell_slots(state: State, said: tuple[Command, ...]) -> Stepped:
    """Before what is lost: no slot is free before it is known how many there are."""
    now = min(state.slots, state.at_once)
    if now < 1 or now == state.told:
        return state, said
    return replace(state, told=now), (Say(Frame("slots", {"n": now})), *said)


def _hand_over(state: State) -> Stepped:
    """One job at a time under one id: the program knows nothing of attempts."""
    if state.phase != "serving" or state.take is None:
        return state, ()
    taken = {one.key.job for one in state.open}
    jobs: list[Waiting] = []
    for one in state.waiting:
        if one.key.job not in taken and len(jobs) < state.take.room:
            taken.add(one.key.job)
            jobs.append(one)
    if not jobs:
        return state, ()
    waiting = tuple(one for one in state.waiting if one not in jobs)
    opened = tuple(Open(one.key, one.text) for one in jobs)
    give = GiveJobs(state.take.request, tuple(jobs), state.take.many)
    return replace(state, waiting=waiting, open=state.open + opened, take=None), (give,)


def _handed(state: State, event: Handed) -> Stepped:
    """A job that found nobody waits again, ahead."""
    mine = [one for one in state.open if one.key in event.keys and one.text is not None]
    if not event.arrived:
        return _back(state, mine)
    arrived = tuple(replace(one, text=None) if one in mine else one for one in state.open)
    return replace(state, open=arrived), tuple(Say(_about("begun", one.key)) for one in mine)


def _back(state: State, mine: list[Open]) -> Stepped:
    stopped = tuple(_failed(one.key, STOPPED) for one in mine if one.stopping)
    back = tuple(Waiting(one.key, one.text or b"") for one in mine if not one.stopping)
    left = tuple(one for one in state.open if one not in mine)
    return replace(state, open=left, waiting=back + state.waiting), stopped


def _stop(state: State, at: float, request: int) -> Stepped:
    older = () if state.stop is None else (GiveStops(state.stop.request),)
    hold = LEAVE_HOLD_S if state.phase == "leaving" else STOP_HOLD_S
    return replace(state, stop=Poll(request, at + hold)), older


def _tell_stops(state: State, at: float) -> Stepped:
    if state.stop is None:
        return state, ()
    due = [one for one in state.open if one.stopping and _is_due(one, at)]
    if not due:
        return state, ()
    told = tuple(replace(one, told_at=at) if one in due else one for one in state.open)
    give = GiveStops(state.stop.request, tuple(one.key.job for one in due))
    return replace(state, open=told, stop=None), (give,)


def _is_due(one: Open, at: float) -> bool:
    return one.told_at is None or at >= one.told_at + TELL_AGAIN_S


def _without(state: State, request: int) -> State:
    if state.take is not None and state.take.request == request:
        return replace(state, take=None)
    if state.stop is not None and state.stop.request == request:
        return replace(state, stop=None)
    return state


def _overdue(state: State, at: float) -> Stepped:
    commands: tuple[Command, ...] = ()
    if state.take is not None and at >= state.take.until:
        commands += (GiveJobs(state.take.request),)
        state = replace(state, take=None)
    if state.stop is not None and at >= state.stop.until:
        commands += (GiveStops(state.stop.request),)
        state = replace(state, stop=None)
    return state, commands


# -- posts


def _posted(state: State, job: str, post: Post) -> Stepped:
    one = next((one for one in state.open if one.key.job == job), None)
    if one is None:
        return state, ()
    if one.text is not None:  # it has it, whatever became of the answer
        state, one = _arrived(state, one)
    match post:
        case Progressed(value):
            return state, (Say(_about("progress", one.key, value)),)
        case Piece(value):
            more = replace(one, pieces=one.pieces + 1)
            opened = tuple(more if other is one else other for other in state.open)
            return replace(state, open=opened), (Say(_about("chunk", one.key, value, n=one.pieces)),)
        case Finished(output, retire):
            fields = {"files": 0, "metrics": {}, "has_output": output is not None}
            return _ended(state, one, Say(_about("done", one.key, output or b"", **fields)), retire)
        case Failed(error, output, retire):
            return _ended(state, one, _failed(one.key, error, output or b""), retire)


def _arrived(state: State, one: Open) -> tuple[State, Open]:
    known = replace(one, text=None)
    return replace(state, open=tuple(known if other is one else other for other in state.open)), known


def _ended(state: State, one: Open, said: Say, retire: bool) -> Stepped:
    """Before a slot is free it must be known that the worker goes: nothing is assigned to it then."""
    state = replace(state, open=tuple(other for other in state.open if other is not one))
    if not retire or state.phase not in ("starting", "serving"):
        return state, (said,)
    state, retired = _retire(state, RETIRES)
    return state, (*retired, said)


def _retire(state: State, why: str) -> Stepped:
    back = tuple(Say(_about("returned", other.key, reason=why)) for other in state.waiting)
    return replace(state, phase="draining", waiting=()), (Say(Frame("retire", {"reason": why})), *back)


# -- losses and stops


def _pinged(state: State, jobs: frozenset[str]) -> Stepped:
    names = state.names or any(one.key.job in jobs for one in state.open)
    if not names:  # of some versions they cannot, in a folder that they may not write to
        return state, ()
    seen = tuple(
        replace(one, missing=0 if one.key.job in jobs else one.missing + 1) if one.settled else one
        for one in state.open
    )
    state = replace(state, open=seen, names=True)
    return _lose(state, [one for one in seen if one.missing >= MISSING_MAX])


def _lose(state: State, lost: list[Open]) -> Stepped:
    left = tuple(one for one in state.open if one not in lost)
    said = tuple(_failed(one.key, STOPPED if one.stopping else LOST) for one in lost)
    return replace(state, open=left), said


def _cancel(state: State, key: AttemptKey) -> Stepped:
    if any(one.key == key for one in state.waiting):
        left = tuple(one for one in state.waiting if one.key != key)
        return replace(state, waiting=left), (_failed(key, STOPPED),)
    stopping = tuple(replace(one, stopping=True) if one.key == key else one for one in state.open)
    return replace(state, open=stopping), ()


def _replace_if_stuck(state: State, at: float) -> Stepped:
    if state.phase != "serving" or state.take is not None or state.open or not state.waiting:
        return (state if state.stuck_at is None else replace(state, stuck_at=None)), ()
    if state.stuck_at is None:
        return replace(state, stuck_at=at + STUCK_S), ()
    if at < state.stuck_at:
        return state, ()
    return _retire(replace(state, stuck_at=None), STUCK)


def _leave_if_drained(state: State) -> Stepped:
    if state.phase != "draining" or state.open:
        return state, ()
    state, commands = _let_go(replace(state, phase="leaving"))
    return state, (Terminate(), *commands)


def _let_go(state: State) -> Stepped:
    """The signal first, then the polls: one that returns too early would ask again."""
    commands: tuple[Command, ...] = ()
    if state.take is not None:
        commands += (GiveJobs(state.take.request),)
    if state.stop is not None:
        commands += (GiveStops(state.stop.request, NOBODY),)
    return replace(state, take=None, stop=None), commands


def _failed(key: AttemptKey, error: str, output: bytes = b"") -> Say:
    return Say(_about("failed", key, output, error=error, retryable=False))


def _about(kind: str, key: AttemptKey, body: bytes = b"", **fields: object) -> Frame:
    return Frame(kind, {"job": key.job, "attempt": key.attempt, **fields}, body)
