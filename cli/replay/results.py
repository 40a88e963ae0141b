"""The results of a run in a folder: its output and chunks as JSON, and the files that these name.

    output.json   what the handler returned; a file of it stands there as `{"$file": name}`
    chunks.json   {"first": number of the first, "values": […]}: a run from a save has none before the save

A job's results are downloaded; those of a replay here are written by its process.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from stoker.cli.jobs.hosted_call import download
from stoker.client import Client, Event, JobRecord

OUTPUT, CHUNKS = "output.json", "chunks.json"


def write_results(folder: Path, output: Any, chunks: Any, *, first: int, returned: bool) -> None:
    """Writes what a run gave; an output of an earlier run is removed where this one returned none."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHUNKS).write_text(json.dumps({"first": first, "values": chunks}, indent=1))
    if returned:
        (folder / OUTPUT).write_text(json.dumps(output, indent=1))
    else:
        (folder / OUTPUT).unlink(missing_ok=True)


def download_results(stoker: Client, endpoint: str, job: str, folder: Path, covered: int = 0) -> JobRecord:
    """Downloads what a job gave that has ended. `covered`: the chunks before the save that it began from.
    Returns its record. Raises CliError for a file that cannot be had any more."""
    chunks: list[Event] = []
    for event in stoker.events(endpoint, job):
        if event.kind == "reset":
            chunks.clear()
        elif event.kind == "chunk":
            chunks.append(event)
    record = stoker.status(endpoint, job)
    folder.mkdir(parents=True, exist_ok=True)
    save = _saver(job, folder)
    values = [save(event.value["output"]) for event in chunks]
    returned = record.succeeded
    write_results(
        folder,
        save(record.output) if returned else None,
        values,
        first=_number(chunks[0]) if chunks else covered,
        returned=returned,
    )
    return record


def _number(chunk: Event) -> int:
    """Returns the number of a chunk, which the id of its event ends with."""
    return int((chunk.id or "0-0").rpartition("-")[2])


def _saver(job: str, folder: Path) -> Callable[[Any], Any]:
    """Returns a function that downloads the files in a value and puts their names in the places of their
    URLs. A file of a job has the job's id in its path."""
    numbers = itertools.count()

    def saved(value: Any) -> Any:
        match value:
            case dict():
                return {name: saved(below) for name, below in value.items()}
            case list():
                return [saved(below) for below in value]
            case str() if value.startswith(("http://", "https://")) and f"/{job}/" in urlsplit(value).path:
                name = f"{next(numbers)}-{PurePosixPath(urlsplit(value).path).name}"
                download(value, folder / name, "file")
                return {"$file": name}
        return value

    return saved
