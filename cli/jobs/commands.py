"""The commands of `stoker job ...`: their calls to the service and their output.

Standard output contains results only: an output as JSON, one chunk or job per line, log lines. Everything
else is printed to standard error. Ctrl-C leaves the job running and prints how to follow it.
"""

from __future__ import annotations

import math
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import typer

from stoker.cli import tables
from stoker.cli.access import open_client
from stoker.cli.errors import CliError
from stoker.cli.jobs import text as job_text
from stoker.cli.jobs.ids import resolve_ids
from stoker.cli.jobs.target import INTERRUPTED, JobTarget
from stoker.cli.terminal import json_text, print_text
from stoker.client import Client, Event, JobRecord, NotFound

if TYPE_CHECKING:  # with a job that is followed
    from stoker.cli.jobs.display import JobDisplay

P = ParamSpec("P")
T = TypeVar("T")

PAGE_MOST = 1000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a new job. None leaves the setting to the endpoint."""

    timeout_s: float | None = None
    ttl_s: float | None = None
    low_priority: bool = False
    webhook: str | None = None
    idempotency_key: str | None = None
    priority: str | None = None
    start_by_s: float | None = None
    deadline_s: float | None = None

    def policy(self) -> dict[str, Any] | None:
        values: dict[str, Any] = {
            "executionTimeout": _ms(self.timeout_s),
            "ttl": _ms(self.ttl_s),
            "lowPriority": self.low_priority or None,
            "priority": self.priority,
            "startBy": _ms(self.start_by_s),
            "deadline": _ms(self.deadline_s),
        }
        return {name: value for name, value in values.items() if value is not None} or None


def with_short_ids(command: Callable[Concatenate[JobTarget, P], T]) -> Callable[Concatenate[JobTarget, P], T]:
    """Runs the command again with resolved ids if the service knows no such endpoint or job."""

    def run_command(target: JobTarget, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(target, *args, **kwargs)
        except CliError as error:
            if not isinstance(error.__cause__, NotFound):
                raise
            with _client(target) as stoker:
                endpoint, job = resolve_ids(stoker, target.endpoint, target.job)
            if (endpoint, job) == (target.endpoint, target.job):
                raise
        return command(replace(target, endpoint=endpoint, job=job), *args, **kwargs)

    return run_command


@with_short_ids
def run(target: JobTarget, input_: Mapping[str, Any], options: RunOptions, *, wait: bool) -> None:
    target = replace(target, job=_submit(target, input_, options))
    if not wait:
        _print_result(target.job)
        _print_message(f"follow it: {target.command('stream')}")
        return
    _finish(_follow(target))


@with_short_ids
def status(target: JobTarget, *, as_json: bool) -> None:
    with _client(target) as stoker:
        record = stoker.status(target.endpoint, target.job)
    if as_json:
        _print_result(json_text(job_text.wire_record(record), indent=sys.stdout.isatty()))
        return
    for name, text in job_text.details(record):
        _print_result(f"{name}: {text}")


@with_short_ids
def stream(target: JobTarget, after: str | None) -> None:
    def chunk(display: JobDisplay, event: Event) -> None:
        if event.kind != "chunk":
            display.show_event(event)
            return
        display.last_id = event.id
        display.print_output(json_text(job_text.output_of(event)))

    from stoker.cli.jobs.following import follow

    record = follow(target, after=after, on_event=chunk)
    if not record.succeeded:
        raise CliError(job_text.end(record))
    _print_message(job_text.end(record))


@with_short_ids
def cancel(target: JobTarget) -> None:
    with _client(target) as stoker:
        record = stoker.cancel(target.endpoint, target.job)
    _print_result(f"job {record.id} is {record.status}")


@with_short_ids
def retry(target: JobTarget, *, wait: bool) -> None:
    with _client(target) as stoker:
        record = stoker.retry(target.endpoint, target.job)
    if not wait:
        _print_result(f"job {record.id} is {record.status}")
        return
    _finish(_follow(target))


@with_short_ids
def logs(target: JobTarget) -> None:
    with _client(target) as stoker:
        attempts = stoker.logs(target.endpoint, target.job)
    if not attempts:
        _print_message(
            f"there are no log lines of job {target.job}: none were written, or no attempt has ended"
        )
    for log in attempts:
        _print_message(f"attempt {log.attempt} on worker {log.worker}:")
        for line in log.lines:
            _print_result(line)


@with_short_ids
def follow_logs(target: JobTarget) -> None:
    with _client(target) as stoker:
        try:
            for event in stoker.logs(target.endpoint, target.job, follow=True):
                _log_event(event, target.job)
        except KeyboardInterrupt:
            _print_message(f"job {target.job} goes on; follow it: {target.command('logs', '--follow')}")
            raise typer.Exit(INTERRUPTED) from None


def _log_event(event: Event, job: str) -> None:
    match event.kind:
        case "log":
            _print_result(event.value["line"])
        case "skipped":
            _print_message(f"… {event.value['lines']:,} lines left out")
        case "reset":
            _print_message(f"attempt {event.value['attempt']}:")
        case "end":
            _print_message(f"job {job} is {event.value['status']}")


@with_short_ids
def attempts(target: JobTarget, *, as_json: bool) -> None:
    with _client(target) as stoker:
        found = stoker.attempts(target.endpoint, target.job).attempts
    records = [job_text.wire_attempt(one) for one in found]
    tables.show(job_text.ATTEMPT_COLUMNS, list(map(job_text.attempt_row, found)), records, as_json=as_json)


@with_short_ids
def show(target: JobTarget, state: str | None, limit: int, *, as_json: bool) -> None:
    with _client(target) as stoker:
        found = stoker.all_requests(target.endpoint, status=state, page=min(limit, PAGE_MOST))
        jobs = list(islice(found, limit))
    records = [job_text.wire_record(job) for job in jobs]
    tables.show(job_text.COLUMNS, list(map(job_text.row, jobs)), records, as_json=as_json)


def purge(target: JobTarget, *, sure: bool) -> None:
    if not sure:
        target = _resolve(target)
        typer.confirm(f"Cancel every job that waits on {target.endpoint}?", abort=True, err=True)
    _purge(target)


@with_short_ids
def _purge(target: JobTarget) -> None:
    with _client(target) as stoker:
        removed = stoker.purge_queue(target.endpoint)
    _print_result(f"{removed} {'job was' if removed == 1 else 'jobs were'} cancelled")


# ---- shared by the commands


@with_short_ids
def _resolve(target: JobTarget) -> JobTarget:
    """Resolves the endpoint's id before the user is asked to confirm."""
    with _client(target) as stoker:
        stoker.health(target.endpoint)
    return target


def _client(target: JobTarget) -> AbstractContextManager[Client]:
    return open_client(target.url, target.data_dir)


def _submit(target: JobTarget, input_: Mapping[str, Any], options: RunOptions) -> str:
    key = options.idempotency_key or secrets.token_hex(16)
    with _client(target) as stoker:
        try:
            return stoker.run(
                target.endpoint, input_, webhook=options.webhook, policy=options.policy(), idempotency_key=key
            ).id
        except KeyboardInterrupt:
            _print_message(
                f"the job may be queued already; the same command with --idempotency-key {key} finds it"
            )
            raise typer.Exit(INTERRUPTED) from None


def _follow(target: JobTarget) -> JobRecord:
    from stoker.cli.jobs.following import follow

    return follow(target)


def _finish(record: JobRecord) -> None:
    """Prints the output of a job that COMPLETED. Raises CliError for any other end."""
    if not record.succeeded:
        raise CliError(job_text.end(record))
    _print_message(job_text.end(record))
    _print_result(json_text(record.output, indent=sys.stdout.isatty()))


def _print_result(text: str) -> None:
    print_text(text)


def _print_message(text: str) -> None:
    print_text(text, to_stderr=True)


def _ms(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise CliError(f"a time must be a number of seconds; got {seconds}")
    return round(seconds * 1000)
