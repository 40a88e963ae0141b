"""Is a folder exactly what the lock says? Every file there, none more, each with its digest.

A digest that was computed once is remembered in a file beside the folder, together with the file's size,
time of change and inode: 33 GB are read once and not at each start. What is remembered are digests and not
verdicts, so a changed lock is noticed. Whoever may write that file may write the weights too.

Every other file is refused by name, a README too: only what is locked need be trusted or looked at. The one
exception are the notes that the hub's library leaves in a folder it downloads to; no pipeline reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from stoker.models.weights.lock import Entry, LockedFile, WeightsError

LOADED: Final = frozenset({".safetensors", ".json", ".txt", ".model"})
"""The kinds of file that a pipeline may consist of. None of them can hold code."""

PICKLES: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})

HUB_NOTES: Final = os.path.join(".cache", "huggingface")
"""Where the hub's library keeps times and ETags of what it has brought."""

_NAMED = 10
_HEADER_MAX = 100_000_000

Stamp: TypeAlias = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, inode."""
Memory: TypeAlias = dict[str, tuple[Stamp, str]]


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class WeightsRefused(WeightsError):
    """A folder is not what the lock says."""

    def __init__(self, entry: Entry, problems: tuple[Problem, ...], hint: str = "") -> None:
        self.problems = problems
        named = "; ".join(str(problem) for problem in problems[:_NAMED])
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        super().__init__(f"the weights of {entry.name} are refused: {named}{more}{hint}")


def verify(entry: Entry, folder: Path, *, remember: bool = True) -> None:
    """Raises WeightsRefused naming each file that is missing, altered, not locked, or not safetensors."""
    if not folder.is_dir():
        raise WeightsRefused(entry, (Problem(str(folder), "there is no such folder"),), _fetch_hint(entry))
    found = dict(_walk(folder))
    problems = [*_strangers(entry, found), *_unlocked(entry), *_missing(entry, found)]
    if problems:
        raise WeightsRefused(entry, tuple(problems), _hint(entry, found))
    memory = _recall(folder) if remember else {}
    hashed = _hash_all(folder, entry.files, memory)
    if remember and hashed != memory:
        _keep(folder, hashed)
    altered = tuple(_compare(entry.files, hashed))
    if altered:
        raise WeightsRefused(entry, altered)


def memory_path(folder: Path) -> Path:
    """Where the digests of a folder's files are remembered."""
    return folder.parent / f".{folder.name}.digests.json"


def check_format(path: Path) -> str | None:
    """Why a file may not be part of a model at all, or None."""
    kind = path.suffix.lower()
    if kind in PICKLES:
        return "is a pickle, which can run code when it is loaded; only safetensors are"
    if kind not in LOADED:
        return f"is not locked, and {kind or 'a file without an ending'} is no kind that is ever loaded"
    if kind == ".safetensors" and path.is_file() and not _is_safetensors(path):
        return "is named safetensors and is none"
    return None


def _is_safetensors(path: Path) -> bool:
    """Whether it begins as safetensors do: the header's length, then a header of JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _HEADER_MAX:
            return False
        try:
            return isinstance(json.loads(file.read(length)), dict)
        except ValueError:
            return False


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below the folder, and every link to a folder, which is not followed. Not the hub's notes."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hub_notes(folder, os.path.join(where, name))]
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        for name in (*names, *links):
            path = os.path.join(where, name)
            try:
                yield os.path.relpath(path, folder), os.stat(path)
            except FileNotFoundError:  # a link to nothing: as if it were not there
                continue


def _is_hub_notes(folder: Path, path: str) -> bool:
    return os.path.relpath(path, folder) == HUB_NOTES and not os.path.islink(path)


def _strangers(entry: Entry, found: Mapping[str, os.stat_result]) -> Iterator[Problem]:
    locked = {file.path for file in entry.files}
    for path, status in sorted(found.items()):
        if not stat.S_ISREG(status.st_mode):
            yield Problem(path, "is not a regular file")
        elif path not in locked:
            yield Problem(path, check_format(Path(path)) or "is not in weights.lock")
        elif Path(path).suffix.lower() not in LOADED:
            yield Problem(path, check_format(Path(path)) or "")


def _unlocked(entry: Entry) -> Iterator[Problem]:
    return (Problem(path, "its digest is unknown") for path in entry.unknown)


def _missing(entry: Entry, found: Mapping[str, os.stat_result]) -> Iterator[Problem]:
    for file in entry.files:
        if file.path not in found:
            yield Problem(file.path, "is missing")
        elif file.size is not None and found[file.path].st_size != file.size:
            yield Problem(file.path, f"has {found[file.path].st_size} bytes where {file.size} are locked")


def _hint(entry: Entry, found: Mapping[str, os.stat_result]) -> str:
    if entry.unknown:
        return f". Fill the lock with: stoker weights lock {entry.name}"
    return _fetch_hint(entry) if any(file.path not in found for file in entry.files) else ""


def _fetch_hint(entry: Entry) -> str:
    return f". Get them with: stoker weights fetch {entry.name}"


def _hash_all(folder: Path, files: tuple[LockedFile, ...], memory: Memory) -> Memory:
    """The digest of each file; the largest first, so that the threads end together."""
    order = sorted(files, key=lambda file: -(file.size or 0))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), "verify") as pool:
        return dict(pool.map(lambda file: (file.path, _hash(folder, file.path, memory)), order))


def _hash(folder: Path, path: str, memory: Memory) -> tuple[Stamp, str]:
    with (folder / path).open("rb") as file:
        stamp = _stamp(os.fstat(file.fileno()))
        known = memory.get(path)
        if known is not None and known[0] == stamp:
            return known
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        # Written to while it was read: the digest belongs to no state of the file.
        return (stamp, digest) if _stamp(os.fstat(file.fileno())) == stamp else ((0, 0, 0), "changing")


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


def _compare(files: tuple[LockedFile, ...], hashed: Memory) -> Iterator[Problem]:
    for file in files:
        digest = hashed[file.path][1]
        if digest != file.sha256:
            yield Problem(file.path, f"its sha256 is {digest[:12]}… where {str(file.sha256)[:12]}… is locked")


def _recall(folder: Path) -> Memory:
    """What is remembered; nothing where it cannot be read, since it can be computed again."""
    try:
        rows = json.loads(memory_path(folder).read_text())
        return {path: ((size, mtime, inode), sha256) for path, (size, mtime, inode, sha256) in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep(folder: Path, hashed: Memory) -> None:
    """Written beside and renamed. On a read-only volume nothing is remembered, and nothing is lost."""
    path = memory_path(folder)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        part.write_text(json.dumps({name: [*stamp, digest] for name, (stamp, digest) in hashed.items()}))
        part.replace(path)
