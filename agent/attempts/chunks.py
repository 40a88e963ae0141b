"""The pieces of one attempt's stream on their way to control: in their order, however large they are.

Pure: no clock, no bytes. The shell (`agent.piece_stream`) holds the bodies and performs the commands.

    small, and nothing waits ------------------------------------------------> Tell
    large, or behind a large one ---> waiting --its turn--> Move --moved-----> Tell, and small ones behind it
                                                 ^--retry_at-- failed
                                                               '-- for good --> nothing waits any more

- At most one is moved at a time, always the first that waits; so the first that waits is always a large one.
- What waits is bounded. Whoever sent a large piece waits for `Took`, which comes while HOLD_MAX bytes or less
  wait; and when the small ones alone are more than HOLD_MAX, their worker is not read (`is_full`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from stoker.agent.attempt import wait_after
from stoker.agent.attempt_events import Tail

HOLD_MAX = 8_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """`large`: it goes to the object store, and control hears where it lies."""

    n: int
    size: int
    large: bool


@dataclass(frozen=True, slots=True)
class Pieces:
    """`untaken` are the numbers of large ones whose sender still waits."""

    waiting: tuple[Piece, ...] = ()
    untaken: tuple[int, ...] = ()
    failures: int = 0
    retry_at: float | None = None


# ---- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Produced:
    at: float
    piece: Piece


@dataclass(frozen=True, slots=True)
class Moved:
    """The first that waits is in the object store."""

    at: float


@dataclass(frozen=True, slots=True)
class MoveFailed:
    at: float
    retryable: bool


@dataclass(frozen=True, slots=True)
class Unheard:
    """Nothing that is produced from now on counts: no sender is to wait any more."""

    at: float


@dataclass(frozen=True, slots=True)
class Abandon:
    """What waits is dropped."""

    at: float


@dataclass(frozen=True, slots=True)
class Tick:
    at: float


Event: TypeAlias = Produced | Moved | MoveFailed | Unheard | Abandon | Tick

# ---- commands -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Report the first that is held, and let go of it."""

    piece: Piece


@dataclass(frozen=True, slots=True)
class Move:
    piece: Piece


@dataclass(frozen=True, slots=True)
class Took:
    """Its sender may go on."""

    n: int


Command: TypeAlias = Tell | Move | Took
Stepped: TypeAlias = tuple[Pieces, tuple[Command, ...]]


# ---- the machine --------------------------------------------------------------------------------


def step(state: Pieces, event: Event) -> Stepped:
    match event:
        case Produced(_, piece):
            after, commands = _produced(state, piece)
        case Moved() if state.waiting:
            after, commands = _moved(state)
        case MoveFailed(_, retryable=False) | Abandon():
            after, commands = Pieces(untaken=state.untaken), ()
        case MoveFailed(at) if state.waiting:
            wait = wait_after(state.failures)
            return replace(state, failures=state.failures + 1, retry_at=at + wait), ()
        case Tick(at) if state.retry_at is not None and at >= state.retry_at:
            return replace(state, retry_at=None), (Move(state.waiting[0]),)
        case Unheard():
            return _all_taken(state, ())
        case _:
            return state, ()
    return _taken(after, commands)


def wake_at(state: Pieces) -> float | None:
    return state.retry_at


def tail(state: Pieces) -> Tail:
    if not state.waiting:
        return ""
    return "stuck" if state.failures else "moving"


def is_full(state: Pieces) -> bool:
    return sum(piece.size for piece in state.waiting if not piece.large) > HOLD_MAX


def _produced(state: Pieces, piece: Piece) -> Stepped:
    untaken = (*state.untaken, piece.n) if piece.large else state.untaken
    after = replace(state, waiting=(*state.waiting, piece), untaken=untaken)
    if state.waiting:
        return after, ()
    return (after, (Move(piece),)) if piece.large else (state, (Tell(piece),))


def _moved(state: Pieces) -> Stepped:
    """The first, and the small ones up to the next large one, are told."""
    said = 1
    while said < len(state.waiting) and not state.waiting[said].large:
        said += 1
    told, rest = state.waiting[:said], state.waiting[said:]
    after = Pieces(rest, state.untaken)
    return after, (*map(Tell, told), *(Move(piece) for piece in rest[:1]))


def _taken(state: Pieces, commands: tuple[Command, ...]) -> Stepped:
    if not state.untaken or sum(piece.size for piece in state.waiting) > HOLD_MAX:
        return state, commands
    return _all_taken(state, commands)


def _all_taken(state: Pieces, commands: tuple[Command, ...]) -> Stepped:
    return replace(state, untaken=()), (*commands, *map(Took, state.untaken))
