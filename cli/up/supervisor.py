"""Decides what `stoker up` does with its children: when each starts, starts again, stops, is killed.

Pure: time arrives in events, `wake_at` names the next tick, `step` answers with commands. The shell
that performs them is `cli.up`; what a child is (a process, the object store) it does not know.

One child:

    waiting ──all before it ready──> starting ──ready──> running
       ^                                │                  │ exited
       └────────────── backing off <────┴── exited, had been ready once

A child that ends before it was ever ready ends everything: its reason (a port in use, a bad option)
will not pass by itself. Stopping goes from the last child to the first, one at a time, each with its
patience, then SIGKILL; a second stop kills all at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

START_PATIENCE_S = 120.0
"""A child that is not ready by then is killed: counted as ended."""

STOP_PATIENCE_S = 20.0
"""An agent may spend 10 s on the ladder of its workers, and needs some time to write its outbox."""

FIRST_BACKOFF_S = 0.5
LONGEST_BACKOFF_S = 30.0
CALM_S = 60.0
"""A child that ran this long starts its back-off from the beginning."""


@dataclass(frozen=True, slots=True)
class Waiting:
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Starting:
    """`deadline` is None once it has passed and SIGKILL was sent."""

    tries: int
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Running:
    tries: int
    since: float


@dataclass(frozen=True, slots=True)
class BackingOff:
    tries: int
    until: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """`deadline` is None once SIGKILL was sent: nothing is left to do but wait for its exit."""

    deadline: float | None


@dataclass(frozen=True, slots=True)
class Gone:
    pass


Phase: TypeAlias = Waiting | Starting | Running | BackingOff | Stopping | Gone


@dataclass(frozen=True, slots=True)
class Child:
    name: str
    phase: Phase = Waiting()
    was_ready: bool = False

    @property
    def alive(self) -> bool:
        return isinstance(self.phase, Starting | Running | Stopping)


@dataclass(frozen=True, slots=True)
class State:
    """`children` in the order in which they start. `code` is what `up` will exit with."""

    children: tuple[Child, ...]
    stopping: bool = False
    code: int = 0


# ---- events


@dataclass(frozen=True, slots=True)
class Begin:
    at: float


@dataclass(frozen=True, slots=True)
class BecameReady:
    at: float
    child: str


@dataclass(frozen=True, slots=True)
class Exited:
    """`why` in words, for whoever reads the terminal."""

    at: float
    child: str
    why: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Ctrl-C, SIGTERM, or the terminal went away."""

    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = Begin | BecameReady | Exited | StopAsked | Tick


# ---- commands


@dataclass(frozen=True, slots=True)
class Start:
    child: str


@dataclass(frozen=True, slots=True)
class Terminate:
    child: str


@dataclass(frozen=True, slots=True)
class Kill:
    child: str


@dataclass(frozen=True, slots=True)
class Say:
    text: str


@dataclass(frozen=True, slots=True)
class AllReady:
    """Every child is ready; said again after each recovery."""


@dataclass(frozen=True, slots=True)
class Finish:
    code: int


Command: TypeAlias = Start | Terminate | Kill | Say | AllReady | Finish
Commands: TypeAlias = tuple[Command, ...]


def supervise(*names: str) -> State:
    """The state before `Begin`."""
    return State(tuple(Child(name) for name in names))


def step(state: State, event: Event) -> tuple[State, Commands]:
    match event:
        case BecameReady(at, name):
            return _became_ready(state, name, at)
        case Exited(at, name, why):
            return _exited(state, name, why, at)
        case StopAsked(at):
            return _kill_all(state) if state.stopping else _begin_stop(state, at)
        case Begin(at) | Tick(at):
            return _tick(state, at)


def wake_at(state: State) -> float | None:
    """When the next `Tick` is due; None while only news can change anything."""
    times = [time for child in state.children if (time := _child_wake_at(child.phase)) is not None]
    return min(times, default=None)


def _child_wake_at(phase: Phase) -> float | None:
    match phase:
        case Starting(_, deadline):
            return deadline
        case BackingOff(_, until):
            return until
        case Stopping(deadline):
            return deadline
        case _:
            return None


def _became_ready(state: State, name: str, at: float) -> tuple[State, Commands]:
    child = _find(state, name)
    if not isinstance(child.phase, Starting):
        return state, ()  # it was told to stop meanwhile
    ready = replace(child, phase=Running(child.phase.tries, at), was_ready=True)
    state, commands = _start_next(_put(state, ready), at)
    if all(isinstance(child.phase, Running) for child in state.children):
        commands = (*commands, AllReady())
    return state, commands


def _exited(state: State, name: str, why: str, at: float) -> tuple[State, Commands]:
    child = _find(state, name)
    if state.stopping:
        return _stop_next(_put(state, replace(child, phase=Gone())), at)
    if not child.was_ready:
        state = replace(_put(state, replace(child, phase=Gone())), code=1)
        state, commands = _begin_stop(state, at)
        return state, (Say(f"{name} did not start: {why}"), *commands)
    tries = _tries_after(child.phase, at)
    pause = min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(tries - 1, 10))
    state = _put(state, replace(child, phase=BackingOff(tries, at + pause)))
    return state, (Say(f"{name} ended unexpectedly: {why}; it starts again in {pause:g} s"),)


def _tries_after(phase: Phase, at: float) -> int:
    match phase:
        case Running(tries, since):
            return 1 if at - since >= CALM_S else tries + 1
        case Starting(tries, _):
            return tries + 1
        case _:
            return 1


def _tick(state: State, at: float) -> tuple[State, Commands]:
    commands: list[Command] = []
    for child in state.children:
        match child.phase:
            case Starting(tries, deadline) if deadline is not None and at >= deadline:
                state = _put(state, replace(child, phase=Starting(tries, None)))
                commands += [Say(f"{child.name} is not ready after {START_PATIENCE_S:g} s"), Kill(child.name)]
            case Stopping(deadline) if deadline is not None and at >= deadline:
                state = _put(state, replace(child, phase=Stopping(None)))
                commands += [
                    Say(f"{child.name} has not stopped after {STOP_PATIENCE_S:g} s"),
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


def _start_next(state: State, at: float) -> tuple[State, Commands]:
    """Starts the first child that waits, if all before it are running."""
    for child in state.children:
        match child.phase:
            case Running():
                continue
            case Waiting(tries):
                started = replace(child, phase=Starting(tries, at + START_PATIENCE_S))
                return _put(state, started), (Start(child.name),)
            case _:
                break
    return state, ()


def _begin_stop(state: State, at: float) -> tuple[State, Commands]:
    idle = tuple(child if child.alive else replace(child, phase=Gone()) for child in state.children)
    return _stop_next(replace(state, children=idle, stopping=True), at)


def _stop_next(state: State, at: float) -> tuple[State, Commands]:
    """Terminates the last child that is alive, unless one is stopping already; finishes when none is."""
    alive = [child for child in state.children if child.alive]
    if not alive:
        return state, (Finish(state.code),)
    if any(isinstance(child.phase, Stopping) for child in alive):
        return state, ()
    last = replace(alive[-1], phase=Stopping(at + STOP_PATIENCE_S))
    return _put(state, last), (Terminate(last.name),)


def _kill_all(state: State) -> tuple[State, Commands]:
    alive = [child for child in state.children if child.alive]
    for child in alive:
        state = _put(state, replace(child, phase=Stopping(None)))
    state = replace(state, code=state.code or 130)
    return state, tuple(Kill(child.name) for child in reversed(alive))


def _find(state: State, name: str) -> Child:
    return next(child for child in state.children if child.name == name)


def _put(state: State, child: Child) -> State:
    return replace(state, children=tuple(child if old.name == child.name else old for old in state.children))
