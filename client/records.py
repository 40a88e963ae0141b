"""What the service answers, as plain frozen data. A field that was not sent is None, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TERMINAL = frozenset({"COMPLETED", "FAILED", "TIMED_OUT", "CANCELLED"})


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job as it stood when the answer was written. Times are in milliseconds.

    `reason` says why a job waits, or why it was taken away. `created_at` is told in listings only. `logs`
    are the last lines that an attempt wrote which failed.
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

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def succeeded(self) -> bool:
        return self.status == "COMPLETED"

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> JobRecord:
        """From the JSON object of any job answer; keys it does not know are ignored."""
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
        )


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some of an endpoint's jobs, newest first, without their outputs. `cursor` asks for the next page."""

    jobs: tuple[JobRecord, ...]
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """The last lines that a handler wrote during one attempt at a job."""

    attempt: int
    worker: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Poll:
    """What a job gave since the last poll of its stream."""

    status: str
    outputs: tuple[Any, ...]

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event of a job: `kind` is chunk, progress, reset or end; of its logs log, skipped,
    reset or end. `value` is its JSON.

    A reset says that an attempt was lost: the chunks that came before it are void.
    """

    kind: str
    id: str
    value: Any


@dataclass(frozen=True, slots=True)
class Health:
    """The counters of one endpoint, as they were sent."""

    jobs: Mapping[str, int]
    workers: Mapping[str, int]
