"""Whether, when and why a worker process that ended is started again.

Pure: the history goes in with what happened, and comes back with a decision and its reason. The shell obeys.

- A worker that was healthy (it ran a job to its end, or was ready for `HEALTHY_S`) starts again at once.
- One that could not start waits 1, 2, 4 … 60 s. One that became ready and then died early is let off once.
- After `IN_A_ROW` failures in a row, or `IN_WINDOW` within `WINDOW_S`, it is called unhealthy. It is still
  tried again, at the longest wait: what was wrong (a full disk, a missing driver) may be put right.
- A death that the agent itself caused (a ladder, a stop, a replacement) is no failure. If the process had
  served, what was wrong before it is forgotten all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

FIRST_S = 1.0
LONGEST_S = 60.0
HEALTHY_S = 30.0
IN_A_ROW = 3
IN_WINDOW = 5
WINDOW_S = 600.0


@dataclass(frozen=True, slots=True)
class History:
    """`row`: failures since it was last healthy. `recent`: when it failed, within the window."""

    row: int = 0
    recent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFailed:
    at: float
    why: str


@dataclass(frozen=True, slots=True)
class Died:
    """By itself, after it had been ready. `served`: it had brought a job to its end."""

    at: float
    why: str
    ready_for: float
    served: bool


@dataclass(frozen=True, slots=True)
class WasStopped:
    """By the agent, for a reason that says nothing against the worker's health. `served`: as above."""

    at: float
    why: str
    served: bool = False


Event: TypeAlias = StartFailed | Died | WasStopped


@dataclass(frozen=True, slots=True)
class RestartDecision:
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
        case Died(at, why):
            return _failed(history, at, why, waits_for=history.row)
        case StartFailed(at, why):
            return _failed(history, at, why, waits_for=history.row + 1)
        case _:
            assert_never(event)


def crash_words(why: str, told: bool, log_tail: Sequence[str]) -> str:
    """Why an unhealthy worker is that, in one line: the cause, and where the worker has not `told` it, first
    the last line that it printed. One that was killed for its memory had nothing to say of that."""
    cause = why.partition("\n")[0]
    return f"crash loop: {cause}" if told or not log_tail else f"crash loop: {log_tail[-1]} ({cause})"


def _failed(history: History, at: float, why: str, waits_for: int) -> tuple[History, RestartDecision]:
    after = History(history.row + 1, (*_recent(history, at), at))
    unhealthy = after.row >= IN_A_ROW or len(after.recent) >= IN_WINDOW
    return after, RestartDecision(at + back_off(waits_for), why, unhealthy)


def back_off(failures: int) -> float:
    """0 for none, then 1, 2, 4 … seconds, at most the longest."""
    return min(FIRST_S * 2 ** min(failures - 1, 16), LONGEST_S) if failures > 0 else 0.0


def _recent(history: History, at: float) -> tuple[float, ...]:
    return tuple(then for then in history.recent if at - then < WINDOW_S)
