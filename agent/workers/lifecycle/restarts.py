"""Restarts of a worker process that ended: if, when and why it is started again.

Pure: the history goes in with what happened, and comes back with a decision and its reason, which the shell
carries out.

- A worker that was healthy (it ran a job to its end, or was ready for `HEALTHY_S`) starts again at once.
- A worker that could not start waits 1, 2, 4 … 60 s. A worker that became ready and then died early
  does not wait the first time.
- Deaths with one job in common count once: it may have caused them all, as often as it may be tried, and that
  shows no more about the worker than the first did. The next jobs would have to wait for it.
- After `IN_A_ROW` failures in a row, `IN_WINDOW` within `WINDOW_S`, or a failed start that makes
  `STARTS_IN_A_ROW`, it is reported as unhealthy. It is still tried again, at the longest wait: what was
  wrong (a full disk, a missing driver) may be put right. Control takes it elsewhere if it can.
- A death that the agent itself caused (a ladder, a stop, a replacement) is not a failure. If the process had
  served, what was wrong before it is forgotten all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

FIRST_S = 1.0
LONGEST_S = 60.0
HEALTHY_S = 30.0
IN_A_ROW = 3
STARTS_IN_A_ROW = 2
IN_WINDOW = 5
WINDOW_S = 600.0
SUSPECTS_MAX = 16


class History(Struct, frozen=True):
    """The history of a worker's failures. `row`: failures since it was last healthy. `recent`: when it
    failed, within the window. `suspects`: for each early death that was counted since, the jobs that have
    seen it and all that count as one with it."""

    row: int = 0
    recent: tuple[float, ...] = ()
    suspects: tuple[frozenset[str], ...] = ()


class StartFailed(Struct, frozen=True):
    at: float
    why: str


class Died(Struct, frozen=True):
    """The event that a process ended by itself, after it had been ready. `served`: it had brought a job to
    its end. `jobs` ran on it."""

    at: float
    why: str
    ready_for: float
    served: bool
    jobs: frozenset[str] = frozenset()


class WasStopped(Struct, frozen=True):
    """The event that the agent ended a process, for a reason that is not a sign of ill health. `served`: as
    above."""

    at: float
    why: str
    served: bool = False


Event: TypeAlias = StartFailed | Died | WasStopped


class RestartDecision(Struct, frozen=True):
    at: float
    why: str
    unhealthy: bool = False


def decide(history: History, event: Event) -> tuple[History, RestartDecision]:
    match event:
        case WasStopped(at, why, served):
            after = History(0, _recent(history, at)) if served else history
            return after, RestartDecision(at, why)
        case Died(at, why, ready_for, served) if served or ready_for >= HEALTHY_S:
            return History(0, _recent(history, at)), RestartDecision(at, why)
        case Died():
            return _died_early(history, event)
        case StartFailed(at, why):
            after, decision = _failed(history, at, why, waits_for=history.row + 1)
            return after, replace(decision, unhealthy=decision.unhealthy or after.row >= STARTS_IN_A_ROW)
        case _:
            assert_never(event)


def crash_reason(why: str, reported: bool, log_tail: Sequence[str]) -> str:
    """Returns why a worker is unhealthy, in one line: the cause; unless the worker has `reported` it itself,
    the last line that it printed comes first."""
    cause = why.partition("\n")[0]
    return f"crash loop: {cause}" if reported or not log_tail else f"crash loop: {log_tail[-1]} ({cause})"


def _died_early(history: History, event: Died) -> tuple[History, RestartDecision]:
    """Decides after an early death. A death that a suspect has seen is not counted, and waits as long as the
    last death that was."""
    at, why, jobs = event.at, event.why, event.jobs
    if not any(one & jobs for one in history.suspects):
        suspects = (*history.suspects, jobs)[-SUSPECTS_MAX:] if jobs else history.suspects
        return _failed(replace(history, suspects=suspects), at, why, waits_for=history.row)
    suspects = tuple(one & jobs or one for one in history.suspects)
    after = replace(history, suspects=suspects, recent=_recent(history, at))
    return after, RestartDecision(at + back_off(history.row - 1), why, unhealthy=_unhealthy(after))


def _failed(history: History, at: float, why: str, waits_for: int) -> tuple[History, RestartDecision]:
    after = replace(history, row=history.row + 1, recent=(*_recent(history, at), at))
    return after, RestartDecision(at + back_off(waits_for), why, unhealthy=_unhealthy(after))


def _unhealthy(history: History) -> bool:
    return history.row >= IN_A_ROW or len(history.recent) >= IN_WINDOW


def back_off(failures: int) -> float:
    """Returns the pause in seconds: 0 for no failure, then 1, 2, 4 …, at most the longest."""
    return min(FIRST_S * 2 ** min(failures - 1, 16), LONGEST_S) if failures > 0 else 0.0


def _recent(history: History, at: float) -> tuple[float, ...]:
    return tuple(then for then in history.recent if at - then < WINDOW_S)
