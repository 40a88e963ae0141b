"""The options of `stoker job ...`; `jobs.commands` implements the commands."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from stoker.cli.jobs.target import JobTarget
from stoker.cli.options import DATA_DIR, URL, DataDir, Url, examples
from stoker.cli.pasted import clean_option

app = typer.Typer(help="Submit, watch, list, cancel and retry jobs.", no_args_is_help=True)

Endpoint = Annotated[str, typer.Argument(help="The endpoint's id or name, or the beginning of its id.")]
Job = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its beginning.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the job has ended.")]


class State(StrEnum):
    IN_QUEUE = "IN_QUEUE"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"


class Class(StrEnum):
    URGENT = "urgent"
    NORMAL = "normal"
    LOW = "low"


@app.command(
    "run",
    epilog=examples(
        'stoker job run caption \'{"text": "hello"}\'',
        "stoker job run caption --set text=hello --no-wait --ttl 600",
    ),
)
def run(
    endpoint: Endpoint,
    input_: Annotated[
        str | None, typer.Argument(metavar="INPUT", help="A JSON object, @FILE, or - for standard input.")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One value of the input; may be repeated."),
    ] = None,
    wait: Wait = True,
    timeout: Annotated[
        float | None,
        typer.Option(help="How long one attempt may run, in seconds; the endpoint's setting by default."),
    ] = None,
    ttl: Annotated[
        float | None,
        typer.Option(
            help="How long the job and its record are kept, in seconds; the endpoint's setting by default."
        ),
    ] = None,
    low_priority: Annotated[
        bool, typer.Option("--low-priority", help="Run the job only on workers that already run.")
    ] = False,
    priority: Annotated[
        Class | None,
        typer.Option(
            help="The class of the job: an urgent one stands in the queue as if it came an hour ago."
        ),
    ] = None,
    start_by: Annotated[
        float | None,
        typer.Option(help="End the job if no worker was given it after so many seconds."),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="End the job if it has not ended after so many seconds.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(callback=clean_option, help="URL that gets a POST when the job has ended."),
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Submissions with the same key make one job, for 24 hours.")
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Submits a job, shows its progress, and prints its output as JSON."""
    from stoker.cli.jobs import commands as jobs
    from stoker.cli.jobs.input import read_input

    read = read_input(input_, sets or (), sys.stdin.buffer.read)
    options = jobs.RunOptions(
        timeout, ttl, low_priority, webhook, idempotency_key, priority, start_by, deadline
    )
    jobs.run(JobTarget(url, endpoint, data_dir), read, options, wait=wait)


@app.command("status", epilog=examples("stoker job status caption d3b0a1c2 --json"))
def status(
    endpoint: Endpoint,
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's record as JSON.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Shows the state of a job."""
    from stoker.cli.jobs import commands as jobs

    jobs.status(JobTarget(url, endpoint, data_dir, job), as_json=as_json)


@app.command("stream", epilog=examples("stoker job stream caption d3b0a1c2 --from 1-7"))
def stream(
    endpoint: Endpoint,
    job: Job,
    after: Annotated[
        str | None, typer.Option("--from", metavar="EVENT_ID", help="Resume after this event.")
    ] = None,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Prints a job's partial outputs as they arrive, one line of JSON each."""
    from stoker.cli.jobs import commands as jobs

    jobs.stream(JobTarget(url, endpoint, data_dir, job), after)


@app.command("cancel", epilog=examples("stoker job cancel caption d3b0a1c2"))
def cancel(endpoint: Endpoint, job: Job, url: Url = URL, data_dir: DataDir = DATA_DIR) -> None:
    """Cancels a job."""
    from stoker.cli.jobs import commands as jobs

    jobs.cancel(JobTarget(url, endpoint, data_dir, job))


@app.command("retry", epilog=examples("stoker job retry caption d3b0a1c2 --wait"))
def retry(
    endpoint: Endpoint, job: Job, wait: Wait = False, url: Url = URL, data_dir: DataDir = DATA_DIR
) -> None:
    """Queues a job that FAILED or TIMED_OUT again."""
    from stoker.cli.jobs import commands as jobs

    jobs.retry(JobTarget(url, endpoint, data_dir, job), wait=wait)


@app.command("logs", epilog=examples("stoker job logs caption d3b0a1c2 --follow"))
def logs(
    endpoint: Endpoint,
    job: Job,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Print new lines as they are written, until the job has ended."),
    ] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Prints the last lines that the handler wrote, for each attempt."""
    from stoker.cli.jobs import commands as jobs

    (jobs.follow_logs if follow else jobs.logs)(JobTarget(url, endpoint, data_dir, job))


@app.command("attempts", epilog=examples("stoker job attempts caption d3b0a1c2 --json"))
def attempts(
    endpoint: Endpoint,
    job: Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's attempts as JSON.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Shows each attempt at a job: worker, node, its moments, and why it ended."""
    from stoker.cli.jobs import commands as jobs

    jobs.attempts(JobTarget(url, endpoint, data_dir, job), as_json=as_json)


@app.command("list", epilog=examples("stoker job list caption --status FAILED --limit 5"))
def show(
    endpoint: Endpoint,
    state: Annotated[
        State | None, typer.Option("--status", case_sensitive=False, help="Only jobs with this status.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many jobs at most.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print the API's records as JSON.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Lists an endpoint's jobs, newest first; in a pipe, columns are separated by tabs."""
    from stoker.cli.jobs import commands as jobs

    jobs.show(JobTarget(url, endpoint, data_dir), state, limit, as_json=as_json)


@app.command("purge", epilog=examples("stoker job purge caption --yes"))
def purge(
    endpoint: Endpoint,
    sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    url: Url = URL,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Cancels all queued jobs of an endpoint."""
    from stoker.cli.jobs import commands as jobs

    jobs.purge(JobTarget(url, endpoint, data_dir), sure=sure)
