"""The queue of one attempt's stream chunks: they are reported in order, and large ones are uploaded first.

Pure: no clock, no bytes. The shell (`agent.jobs.attempts.chunk_stream`) holds the bodies and performs the
commands.

    small, and none waits ---------------------------------------------------> Report
    large, or behind a large one --> waiting --its turn--> Upload --stored--> Report, and small ones behind it
                                                ^--retry_at-- failed
                                                              '-- not retryable --> all that wait are dropped

- At most one is uploaded at a time, the first that waits. So the first that waits is always a large one.
- A save takes the place of those that wait behind the first: the newer covers as much, and is stored sooner.
  So after an outage of the store the newest save waits for one upload, however long the outage was.
- The queue is bounded. The sender of a large chunk waits for `Taken`, which comes when HOLD_MAX bytes or less
  wait. When the small chunks alone are more than HOLD_MAX, their worker is not read (`is_full`).
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.jobs.attempts.attempt_machine import wait_after
from stoker.agent.jobs.attempts.events import Backlog

HOLD_MAX = 8_000_000


class QueuedChunk(Struct, frozen=True):
    """A chunk that waits for those before it. `large`: it is uploaded to the object store, and its report
    refers to it. `save`: it is a save, which is ordered among the chunks."""

    n: int
    size: int
    large: bool
    save: bool = False


class ChunkQueue(Struct, frozen=True):
    """The queue of an attempt's chunks, in their order. `untaken` are the numbers of large chunks whose
    sender still waits."""

    waiting: tuple[QueuedChunk, ...] = ()
    untaken: tuple[int, ...] = ()
    failures: int = 0
    retry_at: float | None = None


# ---- events ------------------------------------------------------------------------------------


class Produced(Struct, frozen=True):
    at: float
    chunk: QueuedChunk


class Uploaded(Struct, frozen=True):
    """The first that waits is in the object store."""

    at: float


class UploadFailed(Struct, frozen=True):
    at: float
    retryable: bool


class VerdictFixed(Struct, frozen=True):
    """No chunk that is produced from now on counts, so no sender waits."""

    at: float


class Abandon(Struct, frozen=True):
    """The chunks that wait are dropped."""

    at: float


class Tick(Struct, frozen=True):
    at: float


Event: TypeAlias = Produced | Uploaded | UploadFailed | VerdictFixed | Abandon | Tick

# ---- commands -----------------------------------------------------------------------------------


class ReportChunk(Struct, frozen=True):
    """The command to report the first chunk that waits, and to drop its body."""

    chunk: QueuedChunk


class Upload(Struct, frozen=True):
    chunk: QueuedChunk


class DropSave(Struct, frozen=True):
    """The command to drop save `n`, which a newer one has replaced."""

    n: int


class Taken(Struct, frozen=True):
    """The command to let the sender of chunk `n` go on."""

    n: int


Command: TypeAlias = ReportChunk | Upload | DropSave | Taken
Stepped: TypeAlias = tuple[ChunkQueue, tuple[Command, ...]]


# ---- the machine --------------------------------------------------------------------------------


def step(state: ChunkQueue, event: Event) -> Stepped:
    match event:
        case Produced(_, chunk):
            after, commands = _produced(state, chunk)
        case Uploaded() if state.waiting:
            after, commands = _uploaded(state)
        case UploadFailed(_, retryable=False) | Abandon():
            after, commands = ChunkQueue(untaken=state.untaken), ()
        case UploadFailed(at) if state.waiting:
            wait = wait_after(state.failures)
            return replace(state, failures=state.failures + 1, retry_at=at + wait), ()
        case Tick(at) if state.retry_at is not None and at >= state.retry_at:
            return replace(state, retry_at=None), (Upload(state.waiting[0]),)
        case VerdictFixed():
            return _all_taken(state, ())
        case _:
            return state, ()
    return _taken(after, commands)


def wake_at(state: ChunkQueue) -> float | None:
    return state.retry_at


def backlog(state: ChunkQueue) -> Backlog:
    if not state.waiting:
        return ""
    return "stuck" if state.failures else "moving"


def is_full(state: ChunkQueue) -> bool:
    return sum(chunk.size for chunk in state.waiting if not chunk.large) > HOLD_MAX


def _produced(state: ChunkQueue, chunk: QueuedChunk) -> Stepped:
    untaken = (*state.untaken, chunk.n) if chunk.large else state.untaken
    older = [one for one in state.waiting[1:] if one.save and chunk.save]
    waiting = *(one for one in state.waiting if one not in older), chunk
    after = replace(state, waiting=waiting, untaken=untaken)
    if state.waiting:
        return after, tuple(DropSave(one.n) for one in older)
    return (after, (Upload(chunk),)) if chunk.large else (state, (ReportChunk(chunk),))


def _uploaded(state: ChunkQueue) -> Stepped:
    """Reports the first, and the small ones up to the next large one."""
    end = 1
    while end < len(state.waiting) and not state.waiting[end].large:
        end += 1
    ready, rest = state.waiting[:end], state.waiting[end:]
    after = ChunkQueue(rest, state.untaken)
    return after, (*map(ReportChunk, ready), *(Upload(chunk) for chunk in rest[:1]))


def _taken(state: ChunkQueue, commands: tuple[Command, ...]) -> Stepped:
    if not state.untaken or sum(chunk.size for chunk in state.waiting) > HOLD_MAX:
        return state, commands
    return _all_taken(state, commands)


def _all_taken(state: ChunkQueue, commands: tuple[Command, ...]) -> Stepped:
    return replace(state, untaken=()), (*commands, *map(Taken, state.untaken))
