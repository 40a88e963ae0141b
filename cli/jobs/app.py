"""The options of `stoker job ...`; what the commands do is `job_commands`."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from stoker.cli.options import DATA_DIR, URL, DataDir, Url

app = typer.Typer(help="Jobs: submit, watch, list, stop, try again.", no_args_is_help=True)

Endpoint = Annotated[str, typer.Argument(help="The endpoint's id or name.")]
Job = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Stay until the job has ended.")]


class State(StrEnum):
    IN_QUEUE = "IN_QUEUE"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"


@app.command("run")
def run(
    endpoint: Endpoint,
    given: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="A JSON object, @FILE, or - for standard input.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="One value of the input.")
    ] = None,
    wait: Wait = True,
    timeout: Annotated[float | None, typer.Option(help="Seconds that one attempt may run.")] = None,
    ttl: Annotated[float | None, typer.Option(help="Seconds until the job and its record are gone.")] = None,
    low_priority: Annotated[
        bool, typer.Option("--low-priority", help="Start no worker for this job.")
    ] = False,
    webhook: Annotated[str | None, typer.Option(help="URL that is told of the end.")] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Submissions with the same key make one job, for 24 hours.")
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Submits a job and shows its way; its output is printed as JSON."""
    from stoker.cli import job_commands as jobs
    from stoker.cli.job_input import read_input

    read = read_input(given, sets or (), sys.stdin.buffer.read)
    options = jobs.RunOptions(timeout, ttl, low_priority, webhook, idempotency_key)
    jobs.run(jobs.Where(url, endpoint, data_dir), read, options, wait=wait)


@app.command("status")
def status(
    endpoint: Endpoint,
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="The record as the service writes it.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """How a job stands."""
    from stoker.cli import job_commands as jobs

    jobs.status(jobs.Where(url, endpoint, data_dir), job, as_json=as_json)


@app.command("stream")
def stream(
    endpoint: Endpoint,
    job: Job,
    after: Annotated[
        str | None, typer.Option("--from", metavar="EVENT_ID", help="Go on after this event.")
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """A job's partial outputs as they come, one line of JSON each."""
    from stoker.cli import job_commands as jobs

    jobs.stream(jobs.Where(url, endpoint, data_dir), job, after)


@app.command("cancel")
def cancel(endpoint: Endpoint, job: Job, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Stops a job."""
    from stoker.cli import job_commands as jobs

    jobs.cancel(jobs.Where(url, endpoint, data_dir), job)


@app.command("retry")
def retry(
    endpoint: Endpoint, job: Job, wait: Wait = False, url: Url = URL, data_dir: DataDir = DATA_DIR
) -> None:
    """Queues a job that FAILED or TIMED_OUT once more."""
    from stoker.cli import job_commands as jobs

    jobs.retry(jobs.Where(url, endpoint, data_dir), job, wait=wait)


@app.command("logs")
def logs(
    endpoint: Endpoint,
    job: Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Lines as they are printed, until the job has ended.")
    ] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """The last lines that the handler wrote, attempt by attempt."""
    from stoker.cli import job_commands as jobs

    where = jobs.Where(url, endpoint, data_dir)
    (jobs.follow_logs if follow else jobs.logs)(where, job)


@app.command("list")
def show(
    endpoint: Endpoint,
    state: Annotated[
        State | None, typer.Option("--status", case_sensitive=False, help="Of this status only.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """An endpoint's jobs, newest first; in a pipe, columns are parted by tabs."""
    from stoker.cli import job_commands as jobs

    jobs.show(jobs.Where(url, endpoint, data_dir), state, limit)


@app.command("purge")
def purge(
    endpoint: Endpoint,
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Cancels every job that waits on an endpoint."""
    from stoker.cli import job_commands as jobs

    jobs.purge(jobs.Where(url, endpoint, data_dir), sure=sure)
