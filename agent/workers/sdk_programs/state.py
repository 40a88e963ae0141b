"""The state of the protocol machine (`agent.workers.sdk_programs.protocol_machine`). Pure data."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from stoker.agent.workers.sdk_programs.events import Command, PendingJob
from stoker.wire.messages import AttemptKey

Phase = Literal["starting", "serving", "draining", "leaving"]


class Open(Struct, frozen=True):
    """A job that was handed to the program.

    text           the job's text, until it is known to have arrived
    settled        a later job-take has shown that the program counts the job
    reported_idle  the last job-take reported that the program runs nothing
    missing        how many pings in a row did not name the job
    """

    key: AttemptKey
    text: bytes | None
    settled: bool = False
    reported_idle: bool = False
    missing: int = 0
    stopping: bool = False
    stop_sent_at: float | None = None
    chunks: int = 0


class Poll(Struct, frozen=True):
    """A call that waits for its answer. `room`: how many jobs it can take; `many`: it takes a list."""

    request: int
    until: float
    room: int = 0
    many: bool = False


class ProtocolState(Struct, frozen=True):
    """The state of a protocol worker.

    slots           how many jobs at once the endpoint allows
    at_once         how many jobs at once the program takes, learned while nothing runs
    reported_slots  the last number of slots that was reported to the agent
    batches         the program has requested several jobs in one call
    names_jobs      a ping of the program has named a job
    stuck_at        when it counts as stuck, if it requests no job until then
    waiting         jobs that were not handed to the program yet
    """

    slots: int = 1
    reported_slots: int | None = None
    phase: Phase = "starting"
    at_once: int = 0
    batches: bool = False
    names_jobs: bool = False
    stuck_at: float | None = None
    waiting: tuple[PendingJob, ...] = ()
    open: tuple[Open, ...] = ()
    take: Poll | None = None
    stop: Poll | None = None


Stepped: TypeAlias = tuple[ProtocolState, tuple[Command, ...]]
