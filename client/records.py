"""Responses of the service as plain frozen dataclasses. A field that was not sent is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TERMINAL = frozenset({"COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job at the time of the response. Times are in milliseconds.

    `reason` says why a job waits, or why an attempt was lost. `created_at` is set in listings only. `logs`
    are the last lines of a failed attempt. `position`: of a waiting job in its queue, 1 is next;
    `expected_start_at`: since the epoch. `replay_of`: the id of the job that this one is a replay of;
    `replayed_on`: the id of the replay's node.
    """

    id: str
    status: str
    output: Any = None
    error: str | None = None
    reason: str | None = None
    delay_time: int | None = None
    execution_time: int | None = None
    worker_id: str | None = None
    retries: int = 0
    created_at: int | None = None
    logs: tuple[str, ...] = ()
    position: int | None = None
    expected_start_at: int | None = None
    replay_of: str | None = None
    replayed_on: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.status == "COMPLETED"

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> JobRecord:
        """Reads the JSON object of a job; unknown keys are ignored."""
        return cls(
            id=str(body["id"]),
            status=str(body["status"]),
            output=body.get("output"),
            error=body.get("error"),
            reason=body.get("reason"),
            delay_time=body.get("delayTime"),
            execution_time=body.get("executionTime"),
            worker_id=body.get("workerId"),
            retries=body.get("retries", 0),
            created_at=body.get("createdAt"),
            logs=tuple(body.get("logs", ())),
            position=body.get("position"),
            expected_start_at=body.get("expectedStartAt"),
            replay_of=body.get("replayOf"),
            replayed_on=body.get("replayedOn"),
        )


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some of an endpoint's jobs, newest first, without their outputs. `cursor` requests the next page."""

    jobs: tuple[JobRecord, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The last lines that a handler wrote during one attempt at a job. `printed_at`: when each was printed,
    in milliseconds since the epoch; empty where that is not known."""

    attempt: int
    worker: str
    lines: tuple[str, ...]
    printed_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a job. Moments are in milliseconds since the epoch, `execution_time` is in milliseconds.
    The first chunk and the upload are of results that came in parts, or with files. `end`: why it ended, as a
    word; `reason`: why the job was tried again, in words."""

    attempt: int
    worker: str
    node: str | None
    assigned_at: int
    started_at: int | None = None
    first_chunk_at: int | None = None
    uploading_at: int | None = None
    ended_at: int | None = None
    execution_time: int | None = None
    end: str | None = None
    reason: str | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Attempt:
        """Reads the JSON object of an attempt; unknown keys are ignored."""
        return cls(
            attempt=body["attempt"],
            worker=str(body["worker"]),
            node=body.get("node"),
            assigned_at=body["assignedAt"],
            started_at=body.get("startedAt"),
            first_chunk_at=body.get("firstChunkAt"),
            uploading_at=body.get("uploadingAt"),
            ended_at=body.get("endedAt"),
            execution_time=body.get("executionTime"),
            end=body.get("end"),
            reason=body.get("reason"),
        )


@dataclass(frozen=True, slots=True)
class JobAttempts:
    """A job's attempts, oldest first, and when it was submitted and ended, in milliseconds since the
    epoch."""

    created_at: int
    ended_at: int | None
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class WorkerLog:
    """The last lines that a worker printed, through its processes, whatever it runs. `printed_at` is as of an
    AttemptLog."""

    worker: str
    lines: tuple[str, ...]
    printed_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Poll:
    """The outputs of a job since the last poll of its stream."""

    status: str
    outputs: tuple[Any, ...]

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event. Its `kind` is chunk, progress, reset or end for a job, and log, skipped, reset or
    end for the log of a job, a worker or a pod. `value` is its JSON value.

    A reset means that an attempt was lost: discard the chunks before it.
    """

    kind: str
    id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Health:
    """The counters of one endpoint. `serves`: what its ready workers run, by their own reports."""

    jobs: Mapping[str, int]
    workers: Mapping[str, int]
    serves: tuple[str, ...] = ()
