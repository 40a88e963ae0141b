"""The verification that a folder is exactly as locked: all files, no others, each with its digest.

Computed digests are cached in a file next to the folder, with each file's size, modification time and inode,
so 33 GB are read once and not at each start. The cache holds digests, not results, so a changed lock is
noticed. Whoever can write the cache can write the weights, too.

Any other file is refused and named, even a README, so only locked files must be trusted. The one exception is
the metadata that the hub's library leaves in a folder that it downloads to; no pipeline reads it.
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

from stoker.models.weights.lock import FOLDER, Entry, LockedFile, WeightsError

LOADED: Final = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja"})
"""The file types of a pipeline. None of them can contain code but for a tokenizer's chat template (.jinja),
which transformers renders in a sandbox."""

PICKLES: Final = frozenset({".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"})

HUB_METADATA: Final = os.path.join(".cache", "huggingface")
"""The folder in which the hub's library keeps times and ETags of its downloads."""

_NAMED = 10
_HEADER_MAX = 100_000_000

Stamp: TypeAlias = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""
DigestCache: TypeAlias = dict[str, tuple[Stamp, str]]

CHANGING: Final = ((0, 0, 0), "changing")
"""In place of the digest of a file that was written while it was read."""


@dataclass(frozen=True, slots=True)
class Problem:
    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


class WeightsRefused(WeightsError):
    """A folder is not as locked."""

    def __init__(self, entry: Entry, problems: tuple[Problem, ...], hint: str = "") -> None:
        self.problems = problems
        named = "; ".join(str(problem) for problem in problems[:_NAMED])
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        super().__init__(f"the weights of {entry.name} are refused: {named}{more}{hint}")


def lacking(entry: Entry, folder: Path) -> str:
    """Returns why these weights cannot be used, and the command that helps; empty if they seem usable. No
    file is read: only `verify` finds altered files of the right size."""
    if not folder.is_dir():
        return f"not fetched{_fetch_hint(entry)}"
    try:
        check_files(entry, folder)
    except WeightsRefused as refused:
        return str(refused)
    return ""


def verify(entry: Entry, folder: Path) -> None:
    """Raises WeightsRefused, which names each file that is missing, altered, not locked, or not
    safetensors."""
    check_files(entry, folder)
    cached = read_cache(folder)
    hashed = hash_all(folder, entry.files, cached)
    if hashed != cached:
        write_cache(folder, hashed)
    _require_locked(entry, hashed)


def verify_part(entry: Entry, part: Path, known: DigestCache) -> DigestCache:
    """Returns the digests of a folder that is not in its place yet, of which some are known. Raises
    WeightsRefused as `verify` does."""
    check_files(entry, part)
    hashed = hash_all(part, entry.files, known)
    _require_locked(entry, hashed)
    return hashed


def _require_locked(entry: Entry, hashed: DigestCache) -> None:
    altered = tuple(compare(entry.files, hashed))
    if altered:
        raise WeightsRefused(entry, altered)


def check_files(entry: Entry, folder: Path) -> None:
    """Checks names and sizes. Raises WeightsRefused."""
    if not folder.is_dir():
        raise WeightsRefused(entry, (Problem(str(folder), "there is no such folder"),), _fetch_hint(entry))
    found = dict(_walk(folder))
    if problems := _problems(entry, found):
        raise WeightsRefused(entry, problems, _hint(entry, found))


def state(entry: Entry, folder: Path) -> str | bool | None:
    """Returns the state of a folder without reading its files: None if it is missing, True if the cache holds
    the locked digest of each file, else a text that says why it is unknown or wrong."""
    if not folder.is_dir():
        return None
    found = dict(_walk(folder))
    for problem in _problems(entry, found):
        return f"no: {problem}"
    known = _unchanged(folder, found)
    if not known.keys() >= {file.path for file in entry.files}:
        return f"not yet: stoker weights verify {entry.named}"
    for problem in compare(entry.files, known):
        return f"no: {problem}"
    return True


def known_digests(folder: Path) -> dict[str, str]:
    """Returns the cached sha256 of each file that has not changed since, by path. Reads no file of the
    folder."""
    return {path: digest for path, (_, digest) in _unchanged(folder, dict(_walk(folder))).items()}


def record_digests(folder: Path, digests: Mapping[str, str]) -> None:
    """Caches digests that were computed elsewhere, of the files as they are now."""
    found = dict(_walk(folder))
    write_cache(folder, {path: (stamp_of(found[path]), sha256) for path, sha256 in digests.items()})


def _unchanged(folder: Path, found: Mapping[str, os.stat_result]) -> DigestCache:
    cached = read_cache(folder)
    return {
        path: known for path, known in cached.items() if path in found and known[0] == stamp_of(found[path])
    }


def cache_path(folder: Path) -> Path:
    """Returns the file that holds the cached digests of a folder's files."""
    return folder.parent / f".{folder.name}.digests.json"


def check_format(path: Path) -> str | None:
    """Returns why a file may not be part of any model, or None."""
    kind = path.suffix.lower()
    if kind in PICKLES:
        return "is a pickle, which can run code when it is loaded; only safetensors are"
    if kind not in LOADED:
        return f"is not locked, and {kind or 'a file without an extension'} is not a type that is loaded"
    if kind == ".safetensors" and path.is_file() and not _is_safetensors(path):
        return "is named safetensors but is not in that format"
    return None


def _is_safetensors(path: Path) -> bool:
    """Returns whether the file begins like safetensors: the header's length, then a header of JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _HEADER_MAX:
            return False
        try:
            return isinstance(json.loads(file.read(length)), dict)
        except ValueError:
            return False


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yields every file below the folder, and every link to a folder, which is not followed; without the
    hub's metadata."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _is_hub_metadata(folder, os.path.join(where, name))]
        links = [name for name in folders if os.path.islink(os.path.join(where, name))]
        for name in (*names, *links):
            path = os.path.join(where, name)
            try:
                yield os.path.relpath(path, folder), os.stat(path)
            except FileNotFoundError:  # a link to nothing counts as missing
                continue


def _is_hub_metadata(folder: Path, path: str) -> bool:
    return os.path.relpath(path, folder) == HUB_METADATA and not os.path.islink(path)


def _problems(entry: Entry, found: Mapping[str, os.stat_result]) -> tuple[Problem, ...]:
    unknown = (Problem(path, "its digest is unknown") for path in entry.unknown)
    return (*_unexpected(entry, found), *unknown, *_missing(entry, found))


def _unexpected(entry: Entry, found: Mapping[str, os.stat_result]) -> Iterator[Problem]:
    locked = {file.path for file in entry.files}
    for path, status in sorted(found.items()):
        if not stat.S_ISREG(status.st_mode):
            yield Problem(path, "is not a regular file")
        elif path not in locked:
            lock = "weights.lock" if entry.lock is None else entry.lock.name
            yield Problem(path, check_format(Path(path)) or f"is not in {lock}")
        elif Path(path).suffix.lower() not in LOADED:
            yield Problem(path, check_format(Path(path)) or "")


def _missing(entry: Entry, found: Mapping[str, os.stat_result]) -> Iterator[Problem]:
    for file in entry.files:
        if file.path not in found:
            yield Problem(file.path, "is missing")
        elif file.size is not None and found[file.path].st_size != file.size:
            yield Problem(file.path, f"has {found[file.path].st_size} bytes where {file.size} are locked")


def _hint(entry: Entry, found: Mapping[str, os.stat_result]) -> str:
    if entry.unknown:
        return f". Fill the lock with: stoker weights lock {entry.named}"
    return _fetch_hint(entry) if any(file.path not in found for file in entry.files) else ""


def _fetch_hint(entry: Entry) -> str:
    """Returns the command that fetches the weights, after the one that locks them if digests are unknown."""
    lock = f"stoker weights lock {entry.named} && " if entry.unknown else ""
    mirror = " --mirror FOLDER" if entry.source == FOLDER else ""
    return f". Get them with: {lock}stoker weights fetch {entry.named}{mirror}"


def hash_all(folder: Path, files: tuple[LockedFile, ...], cached: DigestCache) -> DigestCache:
    """Returns the digest of each file. The largest is first, so that the threads end at about the same
    time."""
    order = sorted(files, key=lambda file: -(file.size or 0))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1), "verify") as pool:
        return dict(pool.map(lambda file: (file.path, _hash(folder, file.path, cached)), order))


def _hash(folder: Path, path: str, cached: DigestCache) -> tuple[Stamp, str]:
    with (folder / path).open("rb") as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        known = cached.get(path)
        if known is not None and known[0] == stamp:
            return known
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        # If the file was written while it was read, the digest belongs to no state of it.
        return (stamp, digest) if stamp_of(os.fstat(file.fileno())) == stamp else CHANGING


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ino


def compare(files: tuple[LockedFile, ...], hashed: DigestCache) -> Iterator[Problem]:
    for file in files:
        digest = hashed[file.path][1]
        if digest != file.sha256:
            yield Problem(file.path, f"its sha256 is {digest[:12]}… where {str(file.sha256)[:12]}… is locked")


def read_cache(folder: Path) -> DigestCache:
    """Returns the cached digests; empty if they cannot be read, since they can be computed again."""
    try:
        rows = json.loads(cache_path(folder).read_text())
        return {path: ((size, mtime, inode), sha256) for path, (size, mtime, inode, sha256) in rows.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write_cache(folder: Path, hashed: DigestCache) -> None:
    """Replaces the cache atomically. On a read-only volume there is no cache, and digests are computed each
    time."""
    path = cache_path(folder)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        part.write_text(json.dumps({name: [*stamp, digest] for name, (stamp, digest) in hashed.items()}))
        part.replace(path)
