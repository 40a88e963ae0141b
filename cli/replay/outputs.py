"""The results of two runs, compared: equal, or the first difference.

Files are equal with the same bytes; images also with the same pixels, videos with the same frames and sound.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stoker.cli.errors import CliError
from stoker.cli.replay import pictures
from stoker.cli.replay.results import CHUNKS, OUTPUT


def first_difference(one: Path, other: Path) -> str:
    """Returns where the outputs in two folders differ first, as a sentence; empty where they are equal.
    Raises CliError where a folder has no output."""
    return _differ("output", _read(one, OUTPUT), _read(other, OUTPUT), (one, other))


def first_difference_from_job(job: Path, replay: Path) -> str:
    """Returns the same of a job's results and those of its replay: their chunks, as far as both have them to
    the end, and their outputs. A `cost` that only the job's output has is the platform's."""
    if found := _chunks_differ(job, replay):
        return found
    there = [(folder / OUTPUT).is_file() for folder in (job, replay)]
    if not all(there):
        return f"only {job if there[0] else replay} has an output" if any(there) else ""
    one, other = _read(job, OUTPUT), _read(replay, OUTPUT)
    if isinstance(one, dict) and isinstance(other, dict) and "cost" not in other:
        one = {name: value for name, value in one.items() if name != "cost"}
    return _differ("output", one, other, (job, replay))


def _chunks_differ(job: Path, replay: Path) -> str:
    one, other = _read(job, CHUNKS), _read(replay, CHUNKS)
    first = max(one["first"], other["first"])
    values = [found["values"][first - found["first"] :] for found in (one, other)]
    pairs = enumerate(zip(values[0], values[1], strict=False), first)
    differ = (_differ(f"chunk[{n}]", mine, its, (job, replay)) for n, (mine, its) in pairs)
    if found := next(filter(None, differ), ""):
        return found
    ends = [first + len(each) for each in values]
    return "" if ends[0] == ends[1] else f"{job} has {ends[0]} chunks and {replay} {ends[1]}"


def _read(folder: Path, name: str) -> Any:
    try:
        return json.loads((folder / name).read_text())
    except FileNotFoundError:
        raise CliError(f"{folder} has no {name}: a replay that returns an output writes one") from None
    except ValueError as error:
        raise CliError(f"{folder / name} is not the JSON of a replay: {error}") from None


def _differ(where: str, one: Any, other: Any, folders: tuple[Path, Path]) -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        if "$file" in one and "$file" in other:
            return _files_differ(where, folders[0] / one["$file"], folders[1] / other["$file"])
        for name in [*one, *(name for name in other if name not in one)]:
            if name not in one or name not in other:
                return f"{where}.{name} is in {folders[0] if name in one else folders[1]} only"
            if found := _differ(f"{where}.{name}", one[name], other[name], folders):
                return found
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        differ = (_differ(f"{where}[{n}]", *pair, folders) for n, pair in pairs)
        return next(filter(None, differ), "")
    if type(one) is type(other) and one == other:
        return ""
    return f"{where} is {json.dumps(one):.200} in {folders[0]} and {json.dumps(other):.200} in {folders[1]}"


def _files_differ(where: str, one: Path, other: Path) -> str:
    first, second = one.read_bytes(), other.read_bytes()
    if first == second:
        return ""
    for compare in (pictures.images_differ, pictures.videos_differ):
        if (found := compare(one, other)) is not None:
            return found and f"{where}: {found}"
    if len(first) != len(second):
        return f"{where}: {one} has {len(first)} bytes and {other} has {len(second)}"
    at = next(n for n in range(len(first)) if first[n] != second[n])
    return f"{where}: {one} and {other} differ at byte {at}"
