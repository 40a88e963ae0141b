"""Decisions of `stoker up`: when it starts, restarts, stops and kills its children.

Pure: time arrives in events, `wake_at` returns the time of the next tick, `step` returns commands.
`cli.up.children` carries them out.

One child:

    waiting ──all before it ready──> starting ──ready──> running
       ^  ^                             │                  │ exited
       │  └─ended─ restarting <─requested─┘                │
       └────────────── backing off <────┴──────────────────┴─ had been ready once; no pause after a calm run

A running child that is to be restarted works until its successor is loaded:

    running ──requested──> relieved ──successor waits──> handing over ──ended──> starting: the successor
       ^                      │ successor ended             │ successor ended
       └──────────────────────┘                             └──> restarting

If a child ends before it was ever ready, `stoker up` ends: the cause (a port in use, a bad option) does not
go away by itself. Children are stopped from the last to the first, one at a time: SIGTERM, and SIGKILL after
STOP_PATIENCE_S. A second stop kills all at once.
"""

from __future__ import annotations

from dataclasses import replace

from stoker.cli.up.events import (
    AllReady,
    BecameReady,
    Begin,
    Command,
    Commands,
    Event,
    Exited,
    Finish,
    Kill,
    KillSuccessor,
    Print,
    Promote,
    RestartRequested,
    Start,
    StartSuccessor,
    StopRequested,
    SuccessorExited,
    SuccessorWaits,
    Terminate,
    Tick,
)
from stoker.cli.up.states import (
    BackingOff,
    Child,
    Gone,
    HandingOver,
    Phase,
    Relieved,
    Restarting,
    Running,
    Starting,
    Stopping,
    SupervisorState,
    Waiting,
)

START_PATIENCE_S = 120.0
"""A child that is not ready by then is killed."""

STOP_PATIENCE_S = 20.0
"""An agent may take 10 s to stop its workers, and some time to write its outbox."""

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
CALM_S = 60.0
"""A child that ran this long before it ended is started again at once."""


def supervise(*names: str) -> SupervisorState:
    """Returns the state before the event `Begin`."""
    return SupervisorState(tuple(Child(name) for name in names))


def step(state: SupervisorState, event: Event) -> tuple[SupervisorState, Commands]:
    match event:
        case BecameReady(at, name):
            return _became_ready(state, name, at)
        case Exited(at, name, why):
            return _exited(state, name, why, at)
        case RestartRequested(at, name):
            return (state, ()) if state.stopping else _restart(state, name, at)
        case SuccessorWaits(at, name):
            return _hand_over(state, name, at)
        case SuccessorExited(at, name, why):
            return (state, ()) if state.stopping else _stay(state, name, why)
        case StopRequested(at):
            return _kill_all(state) if state.stopping else _begin_stop(state, at)
        case Begin(at) | Tick(at):
            return _tick(state, at)


def wake_at(state: SupervisorState) -> float | None:
    """Returns when the next `Tick` is due; None if only other events can change the state."""
    times = [time for child in state.children if (time := _child_wake_at(child.phase)) is not None]
    return min(times, default=None)


def _child_wake_at(phase: Phase) -> float | None:
    match phase:
        case Starting(_, deadline):
            return deadline
        case BackingOff(_, until):
            return until
        case Relieved(_, _, deadline) | HandingOver(deadline):
            return deadline
        case Restarting(deadline) | Stopping(deadline):
            return deadline
        case _:
            return None


def _became_ready(state: SupervisorState, name: str, at: float) -> tuple[SupervisorState, Commands]:
    child = _find(state, name)
    if isinstance(child.phase, HandingOver):
        return _put(state, replace(child, phase=replace(child.phase, ready=True))), ()
    if not isinstance(child.phase, Starting):
        return state, ()  # it is being stopped
    return _runs(state, child, child.phase.tries, at)


def _runs(state: SupervisorState, child: Child, tries: int, at: float) -> tuple[SupervisorState, Commands]:
    ready = replace(child, phase=Running(tries, at), was_ready=True)
    state, commands = _start_next(_put(state, ready), at)
    if all(child.serves for child in state.children):
        commands = (*commands, AllReady())
    return state, commands


def _exited(state: SupervisorState, name: str, why: str, at: float) -> tuple[SupervisorState, Commands]:
    child = _find(state, name)
    if state.stopping:
        return _stop_next(_put(state, replace(child, phase=Gone())), at)
    if isinstance(child.phase, Restarting):
        return _start_next(_put(state, replace(child, phase=Waiting())), at)
    if isinstance(child.phase, Relieved | HandingOver):
        return _promote(state, child, why, at)
    if not child.was_ready:
        state = replace(_put(state, replace(child, phase=Gone())), code=1)
        state, commands = _begin_stop(state, at)
        return state, (Print(f"{name} did not start: {why}"), *commands)
    if isinstance(child.phase, Running) and at - child.phase.since >= CALM_S:
        state, commands = _start_next(_put(state, replace(child, phase=Waiting())), at)
        return state, (Print(f"{name} ended unexpectedly: {why}; it starts again at once"), *commands)
    tries = _tries_after(child.phase)
    pause = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(tries - 1, 10))
    state = _put(state, replace(child, phase=BackingOff(tries, at + pause)))
    return state, (Print(f"{name} ended unexpectedly: {why}; it starts again in {pause:g} s"),)


def _promote(state: SupervisorState, child: Child, why: str, at: float) -> tuple[SupervisorState, Commands]:
    """Puts the successor in the place of a process that has ended, whether it was told to end or not."""
    if isinstance(child.phase, HandingOver) and child.phase.ready:
        state, commands = _runs(state, child, 0, at)
        return state, (Promote(child.name), *commands)
    by_itself = isinstance(child.phase, Relieved)
    said = (Print(f"{child.name} ended unexpectedly: {why}; its successor takes over"),) if by_itself else ()
    state = _put(state, replace(child, phase=Starting(_tries_after(child.phase), at + START_PATIENCE_S)))
    return state, (*said, Promote(child.name))


def _hand_over(state: SupervisorState, name: str, at: float) -> tuple[SupervisorState, Commands]:
    child = _find(state, name)
    if not isinstance(child.phase, Relieved):
        return state, ()  # it leads at once, or is being killed
    return _put(state, replace(child, phase=HandingOver(at + STOP_PATIENCE_S))), (Terminate(name),)


def _stay(state: SupervisorState, name: str, why: str) -> tuple[SupervisorState, Commands]:
    """Goes on without the successor, which has ended."""
    child = _find(state, name)
    match child.phase:
        case Relieved(tries, since, _):
            state = _put(state, replace(child, phase=Running(tries, since)))
            return state, (Print(f"the next {name} did not start: {why}; the one before it goes on"),)
        case HandingOver(deadline):
            return _put(state, replace(child, phase=Restarting(deadline))), ()
        case _:
            return state, ()  # it was to be promoted in the same moment


def _restart(state: SupervisorState, name: str, at: float) -> tuple[SupervisorState, Commands]:
    """Starts the successor of a running child. A child that is still starting is restarted: it may have read
    the old configuration, which a successor reads once it takes over."""
    child = _find(state, name)
    match child.phase:
        case Running(tries, since):
            relieved = replace(child, phase=Relieved(tries, since, at + START_PATIENCE_S))
            return _put(state, relieved), (StartSuccessor(name),)
        case Starting():
            return _put(state, replace(child, phase=Restarting(at + STOP_PATIENCE_S))), (Terminate(name),)
        case BackingOff():
            return _start_next(_put(state, replace(child, phase=Waiting())), at)
        case _:
            return state, ()


def _tries_after(phase: Phase) -> int:
    match phase:
        case Running(tries, _) | Starting(tries, _) | Relieved(tries, _, _):
            return tries + 1
        case _:
            return 1


def _tick(state: SupervisorState, at: float) -> tuple[SupervisorState, Commands]:
    commands: list[Command] = []
    for child in state.children:
        match child.phase:
            case Starting(tries, deadline) if deadline is not None and at >= deadline:
                state = _put(state, replace(child, phase=Starting(tries, None)))
                commands += [
                    Print(f"{child.name} is not ready after {START_PATIENCE_S:g} s"),
                    Kill(child.name),
                ]
            case Relieved(_, _, deadline) if deadline is not None and at >= deadline:
                state = _put(state, replace(child, phase=replace(child.phase, deadline=None)))
                commands += [
                    Print(f"the next {child.name} is not loaded after {START_PATIENCE_S:g} s"),
                    KillSuccessor(child.name),
                ]
            case Stopping(deadline) | Restarting(deadline) | HandingOver(deadline) if (
                deadline is not None and at >= deadline
            ):
                state = _put(state, replace(child, phase=replace(child.phase, deadline=None)))
                commands += [
                    Print(f"{child.name} has not stopped after {STOP_PATIENCE_S:g} s"),
                    Kill(child.name),
                ]
            case BackingOff(tries, until) if at >= until:
                state = _put(state, replace(child, phase=Waiting(tries)))
            case _:
                pass
    if not state.stopping:
        state, started = _start_next(state, at)
        commands += started
    return state, tuple(commands)


def _start_next(state: SupervisorState, at: float) -> tuple[SupervisorState, Commands]:
    """Starts the first child that waits, if all before it are running."""
    for child in state.children:
        match child.phase:
            case Running() | Relieved():
                continue
            case Waiting(tries):
                started = replace(child, phase=Starting(tries, at + START_PATIENCE_S))
                return _put(state, started), (Start(child.name),)
            case _:
                break
    return state, ()


def _begin_stop(state: SupervisorState, at: float) -> tuple[SupervisorState, Commands]:
    idle = tuple(child if child.alive else replace(child, phase=Gone()) for child in state.children)
    waiting = [child for child in idle if isinstance(child.phase, Relieved | HandingOver)]
    state, commands = _stop_next(replace(state, children=idle, stopping=True), at)
    return state, (*(KillSuccessor(child.name) for child in waiting), *commands)


def _stop_next(state: SupervisorState, at: float) -> tuple[SupervisorState, Commands]:
    """Terminates the last child that is alive, unless one is stopping already; finishes when none is."""
    alive = [child for child in state.children if child.alive]
    if not alive:
        return state, (Finish(state.code),)
    if any(isinstance(child.phase, Stopping) for child in alive):
        return state, ()
    last = alive[-1]
    if isinstance(last.phase, Restarting | HandingOver):  # a second SIGTERM would end it at once
        return _put(state, replace(last, phase=Stopping(last.phase.deadline))), ()
    return _put(state, replace(last, phase=Stopping(at + STOP_PATIENCE_S))), (Terminate(last.name),)


def _kill_all(state: SupervisorState) -> tuple[SupervisorState, Commands]:
    alive = [child for child in state.children if child.alive]
    for child in alive:
        state = _put(state, replace(child, phase=Stopping(None)))
    state = replace(state, code=state.code or 130)
    return state, tuple(Kill(child.name) for child in reversed(alive))


def _find(state: SupervisorState, name: str) -> Child:
    return next(child for child in state.children if child.name == name)


def _put(state: SupervisorState, child: Child) -> SupervisorState:
    return replace(state, children=tuple(child if old.name == child.name else old for old in state.children))
