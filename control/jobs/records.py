"""The records of stored jobs on the wire. Payloads are JSON text already and are put in as they are.

The shapes are those that existing clients check: a terminal record always has id, status, delayTime,
executionTime and workerId (0 and "" when nothing is known), `output` and `error` only when they were
produced, `retries` only when there were any, `reason` only where there is more to say than the state does.
Before the end, what is not known is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from stoker.control.rules.attempts import Attempt, JobAttempts, moments
from stoker.control.rules.job_states import JobState
from stoker.control.rules.streams import AttemptLog, LogLine, StoredChunk
from stoker.control.rules.types import EndpointHealth, JobView, Page, Replay

Record = dict[str, Any]

_NO_RESULT = {
    JobState.TIMED_OUT: "job timed out: it ran longer than its executionTimeout",
    JobState.CANCELLED: "job was cancelled",
    JobState.FAILED: "job failed and gave no reason",
}


def accepted(view: JobView) -> Record:
    """Returns the answer to `/run`: the id, and that the job waits, even where a worker has it by now."""
    return {"id": view.id, "status": JobState.IN_QUEUE.value}


def replayed(view: JobView) -> Record:
    """Returns the answer to `/replay`: the job, and the endpoint at which it can be asked for."""
    return {"id": view.id, "endpoint": view.endpoint, "status": JobState.IN_QUEUE.value}


def purged(removed: int) -> Record:
    """Returns the answer to `/purge-queue`; existing clients look for the lower-case word."""
    return {"removed": removed, "status": "completed"}


def record(view: JobView, replay: Replay | None = None) -> Record:
    """Returns the answer to `/status`, `/status-sync`, `/runsync` and `/cancel`, and what the end event of a
    stream holds. `replay`: what the job replays."""
    if replay is not None:
        return {**record(view), "replayOf": replay.job, "replayedOn": replay.node}
    if view.state in (JobState.IN_QUEUE, JobState.IN_PROGRESS):
        return _unfinished(view)
    fields: Record = {
        "id": view.id,
        "status": view.state.value,
        "delayTime": view.delay_ms or 0,
        "executionTime": view.execution_ms or 0,
        "workerId": view.worker or "",
    }
    if view.output is not None:
        fields["output"] = orjson.Fragment(view.output)
    if view.error is not None:
        fields["error"] = view.error
    if view.reason is not None:
        fields["reason"] = view.reason
    if view.logs:
        fields["logs"] = list(view.logs)
    if view.retries:
        fields["retries"] = view.retries
    return fields


def _unfinished(view: JobView) -> Record:
    fields: Record = {"id": view.id, "status": view.state.value, "delayTime": view.delay_ms}
    if view.state is not JobState.IN_QUEUE:
        fields["executionTime"] = view.execution_ms
        fields["workerId"] = view.worker
        fields["output"] = None if view.progress is None else orjson.Fragment(view.progress)
    fields["reason"] = view.reason
    fields["retries"] = view.retries or None
    fields["position"] = None if view.ahead is None else view.ahead + 1
    fields["expectedStartAt"] = None if view.expected_start is None else round(view.expected_start * 1000)
    return {name: value for name, value in fields.items() if value is not None}


def hosted_result(view: JobView) -> Record:
    """Returns a hosted model's synchronous result, which carries COMPLETED or FAILED and no other end."""
    fields = record(view)
    if view.ended and view.state is not JobState.COMPLETED:
        fields["status"] = JobState.FAILED.value
        fields.setdefault("error", view.reason or _NO_RESULT[view.state])
    return fields


def stream_poll(view: JobView, chunks: Sequence[StoredChunk], end_reported: bool = False) -> Record:
    """Returns the answer to a `/stream` poll; `stream` is always there.

    `end_reported`: pollers have received the end. The stock Python client does not take CANCELLED for an end
    and would poll on, so from the second time the job reads FAILED.
    """
    fields: Record = {"status": view.state.value, "stream": [chunk_value(chunk.value) for chunk in chunks]}
    if end_reported and view.state is JobState.CANCELLED:
        fields["status"] = JobState.FAILED.value
        fields["error"] = _NO_RESULT[JobState.CANCELLED]
    return fields


def page(found: Page) -> Record:
    """Returns the answer to `/requests`: records without output, each with its submission's time."""
    cursor = None if found.cursor is None else str(found.cursor)
    return {"requests": [_listed(view) for view in found.views], "cursor": cursor}


def logs(job: str, attempts: Sequence[AttemptLog]) -> Record:
    """Returns the answer to `/logs`."""
    return {"id": job, "logs": [_log(attempt) for attempt in attempts]}


def _log(attempt: AttemptLog) -> Record:
    fields: Record = {"attempt": attempt.attempt, "worker": attempt.worker, "lines": list(attempt.lines)}
    return fields | ({"printedAt": list(attempt.times)} if attempt.times else {})


def attempts(job: str, found: JobAttempts) -> Record:
    """Returns the answer to `/attempts`; what is not known is absent."""
    times = _milliseconds({"createdAt": found.created_at, "endedAt": found.ended_at})
    return {"id": job, **times, "attempts": [_attempt(attempt) for attempt in found.attempts]}


def _attempt(attempt: Attempt) -> Record:
    at = moments(attempt)
    times = {
        "assignedAt": at.assigned,
        "startedAt": at.started,
        "firstChunkAt": at.chunk,
        "uploadingAt": at.uploading,
        "endedAt": at.ended,
    }
    fields: Record = {
        "node": attempt.node,
        "executionTime": attempt.execution_ms,
        "end": attempt.cause or None,
        "reason": attempt.reason,
    }
    known = {name: value for name, value in fields.items() if value is not None}
    return {"attempt": attempt.attempt, "worker": attempt.worker, **_milliseconds(times), **known}


def _milliseconds(times: Mapping[str, float | None]) -> Record:
    return {name: round(at * 1000) for name, at in times.items() if at is not None}


def worker_log(worker: str, lines: Sequence[LogLine]) -> Record:
    """Returns what a worker printed last; `printedAt` only where all times are known."""
    fields: Record = {"id": worker, "lines": [line.text for line in lines]}
    times = [line.at_ms for line in lines]
    return fields if None in times else fields | {"printedAt": times}


def log_line(line: str, at_ms: int | None) -> Record:
    """Returns the data of an event of one line of a log."""
    return {"line": line} if at_ms is None else {"line": line, "printedAt": at_ms}


def webhook_body(view: JobView, input_json: bytes) -> bytes:
    """Returns the body of a webhook: the record, and `input` and `webhook` as they were submitted."""
    fields = record(view)
    fields["input"] = orjson.Fragment(input_json)
    fields["webhook"] = view.webhook
    return orjson.dumps(fields)


def chunk_value(value: bytes) -> Record:
    return {"output": orjson.Fragment(value)}


def health(counted: EndpointHealth) -> Record:
    """Returns the answer to `/health`: all eleven counters, always; `devices` where some are unhealthy, the
    `reason` of workers that are throttled or wait before they start, and what ready workers report that they
    serve."""
    fields: Record = {
        "jobs": {
            "completed": counted.completed,
            "failed": counted.failed,
            "inProgress": counted.in_progress,
            "inQueue": counted.in_queue,
            "retried": counted.retried,
        },
        "workers": {
            "idle": counted.idle,
            "initializing": counted.initializing,
            "ready": counted.ready,
            "running": counted.running,
            "throttled": counted.throttled,
            "unhealthy": counted.unhealthy,
        },
    }
    if counted.unhealthy_devices:
        fields["devices"] = {"ill": counted.unhealthy_devices}
    if counted.reason:
        fields["reason"] = counted.reason
    if counted.serves:
        fields["serves"] = list(counted.serves)
    return fields


def _listed(view: JobView) -> Record:
    fields = record(view)
    fields.pop("output", None)
    fields["createdAt"] = round(view.created_at * 1000)
    return fields
