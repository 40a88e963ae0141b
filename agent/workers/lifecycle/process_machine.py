"""The process machine: one life of one worker process, from its start to its reaping.

Pure: no clock, no process. The shell (`agent.workers.lifecycle.worker`) performs the commands and turns what
happens into events. Whether and when a dead worker is started again is `agent.workers.lifecycle.restarts`;
attempts are `agent.jobs.attempts.attempt_machine`.

    Starting --ready--> Ready --drain--> Draining      (and back: keep)
       |                  '------.-----------'
       | setup failed            | stop, or idle and drained         (retired: for good, no keep)
       '-----------------------> Stopping --term_at--> Terminating --kill_at--> Killed
       '-- deadline ------------------------------------------------------------->
    An attempt that does not stop enters at Terminating. Any of them --exit--> Exited

- `why` is the reason of the end. The first reason is kept.
- `planned` is False when the process died by itself or failed to start.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from stoker.wire.messages import WorkerPhase


class StopLadder(Struct, frozen=True):
    """The times that an idle worker may take to end after the stop frame, and any worker after SIGTERM."""

    stop_s: float = 3.0
    term_s: float = 3.0


LADDER = StopLadder()


# ---- states -----------------------------------------------------------------------------------


class Starting(Struct, frozen=True):
    deadline: float
    started: float


class Ready(Struct, frozen=True):
    since: float


class Draining(Struct, frozen=True):
    """Takes no new attempts; its attempts may end. `for_good`: a worker that is wanted gets another process.
    `context_lost`: its device cannot be used any more, so it is ended by a signal."""

    since: float
    why: str
    for_good: bool = False
    context_lost: bool = False


class Stopping(Struct, frozen=True):
    """The stop frame is sent."""

    term_at: float
    why: str
    planned: bool = True


class Terminating(Struct, frozen=True):
    kill_at: float
    why: str
    planned: bool = True


class Killed(Struct, frozen=True):
    """The state of a process that was sent SIGKILL and is not reaped yet."""

    why: str
    planned: bool


class Exited(Struct, frozen=True):
    """The event that the process has ended. `ready_for` is None when it never was ready. `is_cause`: `why` is
    the cause of the end, and not only how the process ended."""

    at: float
    why: str
    planned: bool
    ready_for: float | None = None
    is_cause: bool = True


State: TypeAlias = Starting | Ready | Draining | Stopping | Terminating | Killed | Exited


# ---- events ------------------------------------------------------------------------------------


class BecameReady(Struct, frozen=True):
    at: float


class SetupFailed(Struct, frozen=True):
    at: float
    error: str


class Drain(Struct, frozen=True):
    """The event that control no longer desires this worker; `busy` while attempts run on it."""

    at: float
    why: str
    busy: bool


class Retire(Struct, frozen=True):
    """The process is to be replaced, perhaps because it lost its device's context (`context_lost`). `busy`:
    attempts run on it."""

    at: float
    why: str
    busy: bool
    context_lost: bool = False


class Keep(Struct, frozen=True):
    """The event that the worker is wanted again."""

    at: float


class Idle(Struct, frozen=True):
    """The event that the process's last attempt has ended."""

    at: float


class Stop(Struct, frozen=True):
    at: float
    why: str


class TerminateNow(Struct, frozen=True):
    """An attempt did not stop: SIGTERM now, and SIGKILL after `term_s`."""

    at: float
    why: str


class KillNow(Struct, frozen=True):
    """The event that orders SIGKILL now: the device is unhealthy, or the worker broke the protocol (`planned`
    False)."""

    at: float
    why: str
    planned: bool = True


class ProcessExited(Struct, frozen=True):
    at: float
    reason: str


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = (
    BecameReady
    | SetupFailed
    | Drain
    | Retire
    | Keep
    | Idle
    | Stop
    | TerminateNow
    | KillNow
    | ProcessExited
    | Tick
)


# ---- commands -----------------------------------------------------------------------------------


class SendSetup(Struct, frozen=True):
    pass


class SendStop(Struct, frozen=True):
    pass


class Terminate(Struct, frozen=True):
    pass


class Kill(Struct, frozen=True):
    pass


class Announce(Struct, frozen=True):
    state: WorkerPhase
    reason: str = ""


Command: TypeAlias = SendSetup | SendStop | Terminate | Kill | Announce
Stepped: TypeAlias = tuple[State, tuple[Command, ...]]


# ---- the machine ----------------------------------------------------------------------------------


def begin(at: float, start_timeout_s: float) -> Stepped:
    """Begins with a process that has been spawned."""
    return Starting(at + start_timeout_s, at), (SendSetup(),)


def step(state: State, event: Event, ladder: StopLadder = LADDER) -> Stepped:
    """Returns the state after `event`, and the commands. Late events change nothing."""
    match state, event:
        case Exited(), _:
            return state, ()
        case _, ProcessExited():
            return _exited(state, event), ()
        case Killed(), _:
            return state, ()
        case _, KillNow(_, why, planned):
            return _kill(state, why, planned)
        case _, TerminateNow(at, why) if not isinstance(state, Terminating):
            first, planned = _reason(state, why)
            return Terminating(at + ladder.term_s, first, planned), (Terminate(), *_stopping(state, why))
        case Starting(), _:
            return _starting(state, event, ladder)
        case ((Ready() | Draining()), _):
            return _serving(state, event, ladder)
        case ((Stopping() | Terminating()), Tick(at)):
            return _overdue(state, at, ladder)
        case _:
            return state, ()


def wake_at(state: State) -> float | None:
    """Returns when the machine wants a Tick, if nothing else happens."""
    match state:
        case Starting(deadline=at) | Stopping(term_at=at) | Terminating(kill_at=at):
            return at
        case Ready() | Draining() | Killed() | Exited():
            return None
        case _:
            assert_never(state)


def why_closed(state: State) -> str | None:
    """Returns why a worker that was ready takes nothing new; None where it does, or is not ready yet."""
    match state:
        case Draining(why=why) | Stopping(why=why) | Terminating(why=why) | Killed(why=why) | Exited(why=why):
            return why
        case _:
            return None


def signalled_because(state: State) -> str:
    """Returns why the process was sent a signal; empty where it was not. The signal also reaches what its
    handlers started, so an error that they report afterwards need not be their own."""
    return state.why if isinstance(state, Terminating | Killed) else ""


def _starting(state: Starting, event: Event, ladder: StopLadder) -> Stepped:
    match event:
        case BecameReady(at):
            return Ready(at), (Announce("ready"),)
        case SetupFailed(at, error):
            return Stopping(at + ladder.stop_s, error, planned=False), (SendStop(),)
        case Tick(at) if at >= state.deadline:
            took = state.deadline - state.started
            return Killed(f"the worker was not ready within {took:g} s", planned=False), (Kill(),)
        case Stop(_, why) | Drain(_, why):
            return Killed(why, planned=True), (Kill(), Announce("stopping", why))
        case _:
            return state, ()


def _serving(state: Ready | Draining, event: Event, ladder: StopLadder) -> Stepped:
    match event:
        case Drain(at, why, busy) if isinstance(state, Ready):
            if busy:
                return Draining(state.since, why), (Announce("stopping", why),)
            return Stopping(at + ladder.stop_s, why), (SendStop(), Announce("stopping", why))
        case Retire():
            return _retire(state, event, ladder)
        case Keep() if isinstance(state, Draining) and not state.for_good:
            return Ready(state.since), (Announce("ready"),)
        case Idle(at) if isinstance(state, Draining):
            return _drained(state, at, ladder)
        case Stop(at, why):
            return Stopping(at + ladder.stop_s, why), (SendStop(), *_stopping(state, why))
        case _:
            return state, ()


def _retire(state: Ready | Draining, event: Retire, ladder: StopLadder) -> Stepped:
    was = state if isinstance(state, Draining) else Draining(state.since, event.why)
    going = replace(was, for_good=True, context_lost=was.context_lost or event.context_lost)
    announced = _stopping(state, event.why)
    if event.busy:
        return going, announced
    after, commands = _drained(going, event.at, ladder)
    return after, (*commands, *announced)


def _drained(state: Draining, at: float, ladder: StopLadder) -> Stepped:
    if state.context_lost:
        return Terminating(at + ladder.term_s, state.why), (Terminate(),)
    return Stopping(at + ladder.stop_s, state.why), (SendStop(),)


def _overdue(state: Stopping | Terminating, at: float, ladder: StopLadder) -> Stepped:
    match state:
        case Stopping(term_at, why, planned) if at >= term_at:
            return Terminating(at + ladder.term_s, why, planned), (Terminate(),)
        case Terminating(kill_at, why, planned) if at >= kill_at:
            return Killed(why, planned), (Kill(),)
        case _:
            return state, ()


def _kill(state: State, why: str, planned: bool) -> Stepped:
    first, was_planned = _reason(state, why, planned)
    return Killed(first, was_planned), (Kill(), *_stopping(state, why))


def _reason(state: State, why: str, planned: bool = True) -> tuple[str, bool]:
    """Returns the first reason to end, which is kept."""
    match state:
        case Stopping(_, first, was_planned) | Terminating(_, first, was_planned):
            return first, was_planned
        case _:
            return why, planned


def _stopping(state: State, why: str) -> tuple[Announce, ...]:
    """Reports once that the worker stops."""
    return (Announce("stopping", why),) if isinstance(state, Starting | Ready) else ()


def _exited(state: State, event: ProcessExited) -> Exited:
    match state:
        case Starting():
            why = f"the worker ended before it was ready: {event.reason}"
            return Exited(event.at, why, planned=False, is_cause=False)
        case Ready(since) | Draining(since):
            return Exited(event.at, event.reason, planned=False, ready_for=event.at - since, is_cause=False)
        case Stopping(_, why, planned) | Terminating(_, why, planned) | Killed(why, planned):
            return Exited(event.at, why, planned)
        case _:
            return Exited(event.at, event.reason, planned=False)
