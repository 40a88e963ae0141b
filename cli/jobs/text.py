"""Job records, events and lists as text and JSON. Prints nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from stoker.cli.terminal import json_text
from stoker.client import Attempt, Event, JobRecord

LONGEST_TEXT = 500
"""Longer texts are cut in the lines of a job's events."""


def wire_record(job: JobRecord) -> dict[str, Any]:
    """Returns the record as in the API, without fields that were not sent."""
    fields = {
        "id": job.id,
        "status": job.status,
        "createdAt": job.created_at,
        "delayTime": job.delay_time,
        "executionTime": job.execution_time,
        "workerId": job.worker_id,
        "retries": job.retries or None,
        "position": job.position,
        "expectedStartAt": job.expected_start_at,
        "reason": job.reason,
        "replayOf": job.replay_of,
        "replayedOn": job.replayed_on,
        "output": job.output,
        "error": job.error,
        "logs": list(job.logs) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def state(job: JobRecord) -> str:
    """Returns `IN_QUEUE: <reason>`, `IN_PROGRESS on <worker>`, or the status alone."""
    if job.status == "IN_PROGRESS" and job.worker_id:
        return f"{job.status} on {job.worker_id}"
    return f"{job.status}: {job.reason}" if job.reason else job.status


def happened(event: Event) -> str:
    """Returns a chunk, a progress value or a reset as a line of text."""
    if event.kind == "reset":
        attempt = event.value.get("attempt") if isinstance(event.value, dict) else None
        return f"attempt {attempt} begins: what came before is void"
    return f"{event.kind} {json_text(shortened(output_of(event)))}"


def shortened(value: Any) -> Any:
    """Returns the value with long texts cut, as those of previews: such lines are for people;
    `stoker job stream` prints chunks whole."""
    if isinstance(value, dict):
        return {name: shortened(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shortened(part) for part in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        return f"{value[:20]}… ({len(value)} characters)"
    return value


def output_of(event: Event) -> Any:
    return event.value.get("output") if isinstance(event.value, dict) else event.value


def end(job: JobRecord) -> str:
    """Returns a sentence about a job that has ended."""
    if job.succeeded:
        return f"job {job.id} COMPLETED{_took(job)}"
    why = (job.error or job.reason or "no reason was given").strip()
    first, _, rest = why.partition("\n")
    return f"job {job.id} ended {job.status}: {first}" + ("; its status has the rest" if rest else "")


def details(job: JobRecord) -> list[tuple[str, str]]:
    """Returns the lines of `stoker job status`: name and text."""
    rows = [("id", job.id), ("status", job.status)]
    for name, text in (
        ("reason", job.reason),
        ("position", None if job.position is None else str(job.position)),
        ("starts", None if job.expected_start_at is None else _expected(job.expected_start_at)),
        ("waited", _seconds(job.delay_time)),
        ("ran", _seconds(job.execution_time)),
        ("worker", job.worker_id),
        ("retries", str(job.retries) if job.retries else None),
        ("replay of", job.replay_of),
        ("replayed on", job.replayed_on),
        ("output", None if job.output is None else json_text(job.output)),
        ("error", job.error),
    ):
        if text:
            rows.append((name, text))
    return rows


def _expected(at_ms: int) -> str:
    return f"at about {datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


COLUMNS = ("id", "status", "created", "waited", "ran", "retries", "worker")


def row(job: JobRecord) -> tuple[str, ...]:
    """Returns a line of `stoker job list`, in the order of COLUMNS."""
    return (
        job.id,
        job.status,
        "" if job.created_at is None else _moment(job.created_at),
        _seconds(job.delay_time) or "",
        _seconds(job.execution_time) or "",
        str(job.retries),
        job.worker_id or "",
    )


ATTEMPT_COLUMNS = ("attempt", "assigned", "started", "chunk", "upload", "ended", "node", "worker", "end")


def attempt_row(one: Attempt) -> tuple[str, ...]:
    """Returns a line of `stoker job attempts`, in the order of ATTEMPT_COLUMNS: moments after the first are
    seconds since the attempt was assigned."""
    moments = (one.started_at, one.first_chunk_at, one.uploading_at, one.ended_at)
    since = ("" if at is None else f"+{(at - one.assigned_at) / 1000:.2f} s" for at in moments)
    why = ": ".join(filter(None, (one.end, one.reason))) or "running"
    return (str(one.attempt), _moment(one.assigned_at), *since, one.node or "", one.worker, why)


def wire_attempt(one: Attempt) -> dict[str, Any]:
    """Returns the attempt as in the API, without fields that were not sent."""
    fields = {
        "attempt": one.attempt,
        "worker": one.worker,
        "node": one.node,
        "assignedAt": one.assigned_at,
        "startedAt": one.started_at,
        "firstChunkAt": one.first_chunk_at,
        "uploadingAt": one.uploading_at,
        "endedAt": one.ended_at,
        "executionTime": one.execution_time,
        "end": one.end,
        "reason": one.reason,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _took(job: JobRecord) -> str:
    if job.delay_time is None or job.execution_time is None:
        return ""
    tried = f", retried {job.retries} x" if job.retries else ""
    return f": ran {_seconds(job.execution_time)} after {_seconds(job.delay_time)} in the queue{tried}"


def _seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:.2f} s"


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
