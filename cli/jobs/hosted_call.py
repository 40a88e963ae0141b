"""Calls of hosted models from a terminal: submit a job, show its progress, download its result.

Uses the API only, so any endpoint with the same input and output works. While the job waits, the reason is
shown. Ctrl-C, SIGTERM and SIGHUP cancel the job; a second signal ends the command at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import httpx2
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stoker.cli.access import RESENDS, address_errors, ca_file, find_key
from stoker.cli.errors import CliError
from stoker.cli.jobs import text
from stoker.cli.jobs.watch import watch
from stoker.cli.previews.screen import Screen
from stoker.cli.processes.stopping import on_first_signal
from stoker.client import AsyncClient, ClientError, Event, JobFailed, JobRecord

T = TypeVar("T")

MAX_OUTPUT_CHARACTERS = 300
"""How many characters are shown of an output that has nothing to download."""


@dataclass(frozen=True, slots=True)
class StepsDone:
    """The number of steps that are done, of how many, and what they are steps of."""

    what: str
    done: int
    of: int


ReadSteps: TypeAlias = Callable[[Event], StepsDone | None]
"""Reads the progress of a job from an event, if the event has it."""

MakeInput: TypeAlias = Callable[[AsyncClient], Coroutine[Any, Any, dict[str, Any]]]
"""Makes a job's input; may upload files first."""


def handler_output(event: Event) -> dict[str, Any]:
    """Returns the handler's output in a progress event or a chunk; empty for other events."""
    if event.kind not in {"progress", "chunk"} or not isinstance(event.value, dict):
        return {}
    value = event.value.get("output")
    return value if isinstance(value, dict) else {}


def run(
    url: str,
    endpoint: str,
    make_input: MakeInput,
    read_steps: ReadSteps,
    data_dir: Path,
    console: Console,
    screen: Screen | None = None,
) -> JobRecord:
    """Runs a job and returns its record; `screen` shows its previews. Raises JobFailed unless it
    COMPLETED."""
    view = _View(console, read_steps, screen)
    with address_errors(url):
        record = asyncio.run(_run(url, endpoint, make_input, view, find_key(data_dir)))
    if not record.succeeded:
        raise JobFailed(record)
    return record


async def _run(url: str, endpoint: str, make_input: MakeInput, view: _View, key: str) -> JobRecord:
    """Submits the job and waits for its end. A signal waits for the submission to return: without its id, a
    job cannot be cancelled."""
    stop = asyncio.Event()
    async with AsyncClient(url, key, resends=RESENDS, ca_file=ca_file()) as stoker:
        with on_first_signal(stop.set):
            try:
                inputs = await _until(stop, make_input(stoker))
            except _Stopped:
                raise CliError("stopped before the job was submitted") from None
            job = (await stoker.run(endpoint, inputs)).id
            try:
                return await _until(stop, _watch(stoker, endpoint, job, view))
            except _Stopped:
                raise CliError(await _cancelled(stoker, endpoint, job)) from None


class _Stopped(Exception):
    """A signal ended the command."""


async def _until(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Raises _Stopped after `stop` was set and the cancelled work has ended."""
    stopped, working = asyncio.create_task(stop.wait()), asyncio.create_task(work)
    try:
        await asyncio.wait((stopped, working), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise _Stopped
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.wait((stopped, working))


async def _cancelled(stoker: AsyncClient, endpoint: str, job: str) -> str:
    try:
        record = await stoker.cancel(endpoint, job)
    except ClientError as error:
        return f"job {job} may go on: {error}; cancel it: stoker job cancel {endpoint} {job}"
    too_late = record.ended and record.status != "CANCELLED"
    return text.end(record) if too_late else f"cancelled job {job}"


async def _watch(stoker: AsyncClient, endpoint: str, job: str, view: _View) -> JobRecord:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # A picture is drawn by moving the cursor, which no other thread may move meanwhile.
    with Progress(*columns, console=view.console, auto_refresh=view.screen is None) as bar:
        display = _ProgressDisplay(bar, view)
        record = await watch(stoker, endpoint, job, display.state, display.event)
        display.end(record)
        return record


@dataclass(frozen=True, slots=True)
class _View:
    """A console, and what it shows of a job."""

    console: Console
    read_steps: ReadSteps
    screen: Screen | None


class _ProgressDisplay:
    """A progress bar of steps; above it, why the job waits, printed again if more than a number changes, and
    its previews."""

    def __init__(self, bar: Progress, view: _View) -> None:
        self._bar, self._read_steps, self._screen = bar, view.read_steps, view.screen
        self._task = bar.add_task("waiting", total=None)
        self._last: StepsDone | None = None
        self._why = ""

    def state(self, job: JobRecord) -> None:
        why = job.reason or ""
        if job.status == "IN_QUEUE" and without_numbers(why) != without_numbers(self._why):
            self._print(f"waiting: {why}")
        self._why = why
        if self._last is None:
            self._bar.update(self._task, description="waiting" if job.status == "IN_QUEUE" else "running")
        self._refresh()

    def event(self, event: Event) -> None:
        if event.kind == "reset":
            self._print(text.happened(event))
        if (steps := self._read_steps(event)) is not None:
            self._last = steps
            done, of = steps.done, steps.of
            self._bar.update(self._task, description=steps.what, completed=done, total=of)
        if self._screen is not None:
            self._screen.show(handler_output(event))
        self._refresh()

    def end(self, job: JobRecord) -> None:
        if job.succeeded and self._last is not None:
            self._bar.update(self._task, completed=self._last.of)  # at most one step a second is reported

    def _print(self, line: str) -> None:
        self._bar.console.print(line, soft_wrap=True)
        if self._screen is not None:
            self._screen.moved()

    def _refresh(self) -> None:
        if self._screen is not None:
            self._bar.refresh()


def without_numbers(reason: str) -> str:
    """Returns the text without its numbers: equal for two states of one countdown."""
    return re.sub(r"\d+(\.\d+)?", "", reason)


def check_output_path(out: Path, endings: tuple[str, ...], what: str) -> None:
    """Raises CliError, before the job is paid for, if its result cannot be written to `out`."""
    if out.suffix.lower() not in endings:
        raise CliError(f"{out} must end in one of {', '.join(endings)}")
    if not out.parent.is_dir():
        raise CliError(f"there is no folder {out.parent.absolute()} to write the {what} to; make it")
    if out.is_dir():
        raise CliError(f"{out} is a folder; name a file to write the {what} to")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise CliError(f"nothing can be written to {out.parent.absolute()}: permission denied")


def download(url: str, out: Path, what: str) -> None:
    """Downloads to `out`, which is replaced only by a complete file. The signed URL needs no API key."""
    part = out.with_name(f".{out.name}.part")
    try:
        with httpx2.stream("GET", url, timeout=60, trust_env=False) as response, open(part, "wb") as file:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                file.write(chunk)
        os.replace(part, out)
    except httpx2.HTTPError as error:
        raise CliError(f"the {what} at {url} could not be downloaded: {error}") from error
    except OSError as error:
        raise CliError(f"{out} could not be written: {error.strerror}; the {what} is at {url}") from error
    finally:
        part.unlink(missing_ok=True)


def result_url(record: JobRecord, name: str, endpoint: str) -> str:
    """Returns the URL of the result: the output's field `name`, or else the only URL in the output."""
    output = record.output
    named = output.get(name) if isinstance(output, dict) else None
    found = [named] if _is_url(named) else list(dict.fromkeys(_urls(output)))
    if len(found) == 1:
        return str(found[0])
    got = json.dumps(output, ensure_ascii=False)
    progress_text = (
        got
        if len(got) <= MAX_OUTPUT_CHARACTERS
        else f"{got[:MAX_OUTPUT_CHARACTERS]}… ({len(got):,} characters)"
    )
    which = f"{len(found)} URLs and no {name!r} among them" if found else f"no {name!r} and no other URL"
    raise CliError(
        f"job {record.id} of {endpoint} COMPLETED, and its output has {which}, so there is nothing to"
        f" download: {progress_text}"
    )


def _urls(value: Any) -> Iterator[str]:
    if _is_url(value):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _urls(one)


def _is_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))


def pipeline_text(record: JobRecord) -> str:
    """Says which pipeline of a hosted model ran, and whether its weights are made up; empty for other
    endpoints."""
    output = record.output if isinstance(record.output, dict) else {}
    if not isinstance(output.get("pipeline"), str):
        return ""
    made_up = ", whose weights are made up" if output.get("made_up_weights") is True else ""
    return f", by {output['pipeline']}{made_up}"


def notes(record: JobRecord) -> list[str]:
    """Returns what the output says of the job's input, in sentences."""
    output = record.output if isinstance(record.output, dict) else {}
    found = output.get("notes")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def cost_and_time(record: JobRecord, seconds: float) -> str:
    """Returns the cost and the times as text. Only outputs with a price have a cost."""
    cost = record.output.get("cost") if isinstance(record.output, dict) else None
    priced = isinstance(cost, int | float)
    parts = [f"{cost:.8f} USD" if priced else "no cost reported"]
    if record.execution_time is not None:
        parts.append(f"made in {record.execution_time / 1000:.2f} s")
    return ", ".join((*parts, f"{seconds:.2f} s in all"))
