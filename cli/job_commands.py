"""`stoker job ...`: what each command asks of the service, and what it prints.

Standard output has the product and nothing else: an output as JSON, a chunk or a job a line, log lines.
Everything else goes to standard error. Ctrl-C leaves the job running and says how to follow it.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import shlex
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from stoker.cli import job_words
from stoker.cli.access import RESENDS, calling, find_key, told
from stoker.cli.errors import CliError
from stoker.cli.job_board import Board
from stoker.cli.job_watch import watch
from stoker.cli.terminal import plain_console
from stoker.client import AsyncClient, Client, Event, JobRecord

INTERRUPTED = 130
PAGE_MOST = 1000


@dataclass(frozen=True, slots=True)
class Where:
    """An endpoint of a service, and where the key for it may lie."""

    url: str
    endpoint: str
    data_dir: Path


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Times in seconds. What is None is left to the endpoint."""

    timeout_s: float | None = None
    ttl_s: float | None = None
    low_priority: bool = False
    webhook: str | None = None
    idempotency_key: str | None = None

    def policy(self) -> dict[str, Any] | None:
        given: dict[str, Any] = {
            "executionTimeout": _ms(self.timeout_s),
            "ttl": _ms(self.ttl_s),
            "lowPriority": self.low_priority or None,
        }
        return {name: value for name, value in given.items() if value is not None} or None


def run(where: Where, given: Mapping[str, Any], options: RunOptions, *, wait: bool) -> None:
    job = _submit(where, given, options)
    if not wait:
        _out(job)
        _say(f"follow it: {_command('stream', where, job)}")
        return
    _finish(_follow(where, job))


def status(where: Where, job: str, *, as_json: bool) -> None:
    with _client(where) as stoker:
        record = stoker.status(where.endpoint, job)
    if as_json:
        _out(job_words.as_json(job_words.wire_record(record), indent=sys.stdout.isatty()))
        return
    for name, text in job_words.details(record):
        _out(f"{name}: {text}")


def stream(where: Where, job: str, after: str | None) -> None:
    def chunk(board: Board, event: Event) -> None:
        if event.kind != "chunk":
            board.event(event)
            return
        board.last_id = event.id
        board.product(job_words.as_json(job_words.output_of(event)))

    record = _follow(where, job, after=after, chunk=chunk)
    if not record.succeeded:
        raise CliError(job_words.end(record))
    _say(job_words.end(record))


def cancel(where: Where, job: str) -> None:
    with _client(where) as stoker:
        record = stoker.cancel(where.endpoint, job)
    _out(f"job {record.id} is {record.status}")


def retry(where: Where, job: str, *, wait: bool) -> None:
    with _client(where) as stoker:
        record = stoker.retry(where.endpoint, job)
    if not wait:
        _out(f"job {record.id} is {record.status}")
        return
    _finish(_follow(where, job))


def logs(where: Where, job: str) -> None:
    with _client(where) as stoker:
        attempts = stoker.logs(where.endpoint, job)
    if not attempts:
        _say(f"there are no log lines of job {job}: none were written, or no attempt has ended")
    for log in attempts:
        _say(f"attempt {log.attempt} on worker {log.worker}:")
        for line in log.lines:
            _out(line)


def follow_logs(where: Where, job: str) -> None:
    with _client(where) as stoker:
        try:
            for event in stoker.logs(where.endpoint, job, follow=True):
                _log_event(event, job)
        except KeyboardInterrupt:
            _say(f"job {job} goes on; follow it: {_command('logs', where, job, '--follow')}")
            raise typer.Exit(INTERRUPTED) from None


def _log_event(event: Event, job: str) -> None:
    match event.kind:
        case "log":
            _out(event.value["line"])
        case "skipped":
            _say(f"… {event.value['lines']:,} lines left out")
        case "reset":
            _say(f"attempt {event.value['attempt']}:")
        case "end":
            _say(f"job {job} is {event.value['status']}")


def show(where: Where, state: str | None, limit: int) -> None:
    with _client(where) as stoker:
        found = stoker.all_requests(where.endpoint, status=state, page=min(limit, PAGE_MOST))
        jobs = list(islice(found, limit))
    if not sys.stdout.isatty():
        for job in jobs:
            _out("\t".join(job_words.row(job)))
        return
    table = Table(*job_words.COLUMNS)
    for job in jobs:
        table.add_row(*job_words.row(job))
    plain_console().print(table)


def purge(where: Where, *, sure: bool) -> None:
    if not sure:
        typer.confirm(f"Cancel every job that waits on {where.endpoint}?", abort=True, err=True)
    with _client(where) as stoker:
        removed = stoker.purge_queue(where.endpoint)
    _out(f"{removed} {'job was' if removed == 1 else 'jobs were'} cancelled")


# ---- what they share


def _client(where: Where) -> AbstractContextManager[Client]:
    return calling(where.url, where.data_dir)


def _submit(where: Where, given: Mapping[str, Any], options: RunOptions) -> str:
    key = options.idempotency_key or secrets.token_hex(16)
    with _client(where) as stoker:
        try:
            return stoker.run(
                where.endpoint, given, webhook=options.webhook, policy=options.policy(), idempotency_key=key
            ).id
        except KeyboardInterrupt:
            _say(f"the job may be queued already; the same command with --idempotency-key {key} finds it")
            raise typer.Exit(INTERRUPTED) from None


def _follow(
    where: Where,
    job: str,
    *,
    after: str | None = None,
    chunk: Callable[[Board, Event], None] | None = None,
) -> JobRecord:
    with Board(plain_console(stderr=True)) as board:
        try:
            with told(where.url):
                return asyncio.run(_watch(where, job, board, after, chunk))
        except KeyboardInterrupt:
            pass
    at = ["--from", board.last_id] if board.last_id else []
    _say(
        f"job {job} goes on; follow it: {_command('stream', where, job, *at)};"
        f" cancel it: {_command('cancel', where, job)}"
    )
    raise typer.Exit(INTERRUPTED)


async def _watch(
    where: Where,
    job: str,
    board: Board,
    after: str | None,
    chunk: Callable[[Board, Event], None] | None,
) -> JobRecord:
    def heard(event: Event) -> None:
        (chunk or Board.event)(board, event)

    async with AsyncClient(where.url, find_key(where.data_dir), resends=RESENDS) as stoker:
        return await watch(stoker, where.endpoint, job, board, heard, after=after)


def _finish(record: JobRecord) -> None:
    """The output of a job that COMPLETED; else the sentence, and exit status 1."""
    if not record.succeeded:
        raise CliError(job_words.end(record))
    _say(job_words.end(record))
    _out(job_words.as_json(record.output, indent=sys.stdout.isatty()))


def _command(name: str, where: Where, *more: str) -> str:
    return shlex.join(["stoker", "job", name, where.endpoint, *more])


def _out(text: str) -> None:
    print(text, flush=True)


def _say(text: str) -> None:
    plain_console(stderr=True).print(text, soft_wrap=True)


def _ms(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    if not math.isfinite(seconds):
        raise CliError(f"a time must be a number of seconds; got {seconds}")
    return round(seconds * 1000)
