"""One call of a hosted model from a terminal: submit, show how far it is, download what it made.

A plain caller: it knows the API and nothing of what is behind it. Ctrl-C cancels the job.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stoker.cli.access import RESENDS, asking, find_key
from stoker.cli.errors import CliError
from stoker.client import Client, Event, JobFailed, JobRecord


@dataclass(frozen=True, slots=True)
class Advance:
    """How many of how many are done, and of what."""

    what: str
    done: int
    of: int


Reads: TypeAlias = Callable[[Event], Advance | None]
"""How far a job is, where its event tells."""


def told(event: Event) -> dict[str, Any]:
    """What a handler told with this event; nothing for other kinds of events."""
    if event.kind not in {"progress", "chunk"} or not isinstance(event.value, dict):
        return {}
    value = event.value.get("output")
    return value if isinstance(value, dict) else {}


def run(
    url: str,
    endpoint: str,
    given: Callable[[Client], dict[str, Any]],
    reads: Reads,
    data_dir: Path,
    console: Console,
) -> JobRecord:
    """The record of a job that succeeded. `given` makes its input."""
    with asking(url), Client(url, find_key(data_dir), resends=RESENDS) as stoker:
        job = stoker.run(endpoint, given(stoker))
        try:
            record = _watch(stoker, endpoint, job.id, reads, console)
        except KeyboardInterrupt:
            stoker.cancel(endpoint, job.id)
            raise CliError(f"cancelled job {job.id}") from None
    if not record.succeeded:
        raise JobFailed(record)
    return record


def _watch(stoker: Client, endpoint: str, job: str, reads: Reads, console: Console) -> JobRecord:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task, last = bar.add_task("waiting", total=None), None
        for event in stoker.events(endpoint, job):
            if event.kind == "end":
                record = JobRecord.read(event.value)
                if record.succeeded and last is not None:
                    bar.update(task, completed=last.of)  # not every step is told: at most one a second
                return record
            if (advance := reads(event)) is not None:
                last = advance
                bar.update(task, description=advance.what, completed=advance.done, total=advance.of)
    raise AssertionError("events end with `end`, or raise")


def check_place(out: Path, endings: tuple[str, ...], what: str) -> None:
    """Before anything is asked: a result that cannot be written was paid for in vain."""
    if out.suffix.lower() not in endings:
        raise CliError(f"{out} must end in one of {', '.join(endings)}")
    if not out.parent.is_dir():
        raise CliError(f"there is no folder {out.parent.absolute()} to write the {what} to; make it")
    if out.is_dir():
        raise CliError(f"{out} is a folder; name a file to write the {what} to")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise CliError(f"nothing can be written to {out.parent.absolute()}: permission denied")


def download(url: str, out: Path, what: str) -> None:
    """Whole or not at all. The signed URL needs no key, and gets none."""
    part = out.with_name(f".{out.name}.part")
    try:
        with httpx.stream("GET", url, timeout=60, trust_env=False) as answer, open(part, "wb") as file:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                file.write(piece)
        os.replace(part, out)
    except httpx.HTTPError as error:
        raise CliError(f"the {what} at {url} could not be downloaded: {error}") from error
    except OSError as error:
        raise CliError(f"{out} could not be written: {error.strerror}; the {what} is at {url}") from error
    finally:
        part.unlink(missing_ok=True)


def cost_and_time(record: JobRecord, seconds: float) -> str:
    execution = record.execution_time
    made = "" if execution is None else f", made in {execution / 1000:.2f} s"
    return f"{record.output['cost']:.8f} USD{made}, {seconds:.2f} s in all"
