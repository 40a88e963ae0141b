"""`stoker image`: submits a prompt, shows each step, downloads the picture, tells cost and time.

A plain caller: it knows the API and nothing of what is behind it. Ctrl-C cancels the job.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stoker.cli.access import RESENDS, asking, find_key
from stoker.cli.errors import CliError
from stoker.client import Client, Event, JobFailed, JobRecord

FORMATS = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}


@dataclass(frozen=True, slots=True)
class ImageRequest:
    """What is None is left to the service's defaults."""

    prompt: str
    out: Path
    url: str = "http://127.0.0.1:8000"
    endpoint: str = "text-to-image"
    negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance: float | None = None
    seed: int | None = None

    def input(self) -> dict[str, Any]:
        given = {
            "prompt": self.prompt,
            "negative_prompt": self.negative_prompt,
            "width": self.width,
            "height": self.height,
            "num_inference_steps": self.steps,
            "guidance": self.guidance,
            "seed": self.seed,
            "image_format": FORMATS.get(self.out.suffix.lower()),
        }
        return {name: value for name, value in given.items() if value is not None}


def run(request: ImageRequest, data_dir: Path, console: Console) -> JobRecord:
    if request.out.suffix.lower() not in FORMATS:
        raise CliError(f"{request.out} must end in one of {', '.join(FORMATS)}")
    if not request.out.parent.is_dir():
        raise CliError(f"there is no folder {request.out.parent.absolute()} to write the picture to; make it")
    began = time.monotonic()
    with asking(request.url):
        record = _submit_and_watch(request, find_key(data_dir), console)
    if not record.succeeded:
        raise JobFailed(record)
    _download(record.output["image_url"], request.out)
    _tell(record, request.out, time.monotonic() - began, console)
    return record


def _submit_and_watch(request: ImageRequest, key: str, console: Console) -> JobRecord:
    with Client(request.url, key, resends=RESENDS) as stoker:
        job = stoker.run(request.endpoint, request.input())
        try:
            return _watch(stoker, request, job.id, console)
        except KeyboardInterrupt:
            stoker.cancel(request.endpoint, job.id)
            raise CliError(f"cancelled job {job.id}") from None


def _watch(stoker: Client, request: ImageRequest, job: str, console: Console) -> JobRecord:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task, steps = bar.add_task("waiting", total=None), None
        for event in stoker.events(request.endpoint, job):
            if event.kind == "end":
                record = JobRecord.read(event.value)
                if record.succeeded and steps is not None:
                    bar.update(task, completed=steps)  # not every step is told: at most one a second
                return record
            if (step := step_of(event)) is not None:
                done, steps = step
                bar.update(task, description="step", completed=done, total=steps)
    raise AssertionError("events end with `end`, or raise")


def step_of(event: Event) -> tuple[int, int] | None:
    """How many steps of how many are done, where the event tells."""
    if event.kind not in {"progress", "chunk"} or not isinstance(event.value, dict):
        return None
    value = event.value.get("output")
    if not isinstance(value, dict):
        return None
    step, steps = value.get("step"), value.get("steps")
    return (step, steps) if isinstance(step, int) and isinstance(steps, int) else None


def _download(url: str, out: Path) -> None:
    """Whole or not at all. The signed URL needs no key, and gets none."""
    part = out.with_name(f".{out.name}.part")
    try:
        with httpx.stream("GET", url, timeout=60, trust_env=False) as answer, open(part, "wb") as file:
            answer.raise_for_status()
            for piece in answer.iter_bytes():
                file.write(piece)
        os.replace(part, out)
    except httpx.HTTPError as error:
        raise CliError(f"the picture at {url} could not be downloaded: {error}") from error
    except OSError as error:
        raise CliError(f"{out} could not be written: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def _tell(record: JobRecord, out: Path, seconds: float, console: Console) -> None:
    output, execution = record.output, record.execution_time
    made = "" if execution is None else f", made in {execution / 1000:.2f} s"
    seed = f", seed {output['seed']}" if "seed" in output else ""
    console.print(f"{out}{seed}: {output['cost']:.8f} USD{made}, {seconds:.2f} s in all")
