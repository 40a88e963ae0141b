"""The fetching of a model's weights to this machine, which also fills the lock.

fetch   file by file, by the caller's means, or made here; into `.NAME.part` next to the folder, which is
        verified and renamed: a folder with the model's name is always complete. The next fetch resumes an
        interrupted one.
lock    sizes and digests from the hub's records, or from a folder that is trusted
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from stoker.models.weights.hub import Hub
from stoker.models.weights.lock import BUILT, HUB, Entry, LockedFile, WeightsError, read_lock
from stoker.models.weights.reading import Reading
from stoker.models.weights.verification import (
    HUB_METADATA,
    DigestCache,
    Problem,
    WeightsRefused,
    check_format,
    stamp_of,
    verify,
    verify_part,
    write_cache,
)

Bring: TypeAlias = Callable[[Entry, LockedFile, Path], str]
"""Brings a file of an entry to a path, where a part of the file may lie. Returns the sha256 of the whole: the
file is not read again. Raises WeightsError, OSError."""


def folder_of(entry: Entry, folder: Path) -> Path:
    """Returns the folder of this entry below `folder`: that of its key, where an agent fetched it; else that
    of its name."""
    fetched = folder / entry.key
    return fetched if fetched.is_dir() else folder / entry.name


def fetch(
    entry: Entry,
    folder: Path,
    bring: Bring | None = None,
    on_file: Callable[[LockedFile], None] = lambda file: None,
) -> None:
    """Fills `folder` with the verified weights of `entry`. Does nothing if it already holds them. Weights
    that Stoker makes need no `bring`. `on_file` is called with each file that is there.

    Raises WeightsError. An existing folder with other contents is not changed, unless Stoker itself made it.
    """
    if entry.unknown:
        unknown = tuple(Problem(path, "its digest is unknown") for path in entry.unknown)
        raise WeightsRefused(entry, unknown, f". Fill the lock with: stoker weights lock {entry.named}")
    if folder.exists() and _is_whole(entry, folder):
        return  # without writing anything: a worker may have no permission to
    try:
        with _locked_by_us(folder):
            if folder.exists() and _is_whole(entry, folder):
                return  # another process has fetched it while this one waited
            part = folder.parent / f".{folder.name}.part"
            part.mkdir(exist_ok=True)
            known = _fetch_all(entry, part, bring, on_file)
            hashed = _verified(entry, part, known)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
            write_cache(folder, hashed)
    except OSError as error:
        raise WeightsError(f"cannot fetch {entry.name}: {error}") from error


def ready(name: str, folder: Path, lock: Path | None = None) -> tuple[Entry, Path]:
    """Returns the entry of the lock, and its verified folder below `folder`. Weights that Stoker makes itself
    are made; others must have been fetched. `lock`: a file other than this installation's. Raises
    WeightsError."""
    entry = read_lock(lock).entry(name)
    own = folder_of(entry, folder)
    if entry.is_built:
        fetch(entry, own)
    else:
        verify(entry, own)
    return entry, own


def begin(name: str, folder: Path, lock: Path | None = None) -> tuple[Entry, Path, Reading]:
    """Begins to read as `ready` does, but files of safetensors are only verified once the reading is
    finished."""
    entry = read_lock(lock).entry(name)
    own = folder_of(entry, folder)
    if entry.is_built:
        fetch(entry, own)
    return entry, own, Reading(entry, own)


def lock_from_hub(entry: Entry, hub: Hub) -> Entry:
    """Returns the entry with the digests of its files, each at its commit, or at the newest commit if that is
    unknown."""
    if not entry.source.startswith(HUB):
        raise WeightsError(f"{entry.name} does not come from the hub; its source is {entry.source}")
    repositories: dict[tuple[str, str | None], _Repository] = {}
    files = []
    for file in entry.files:
        origin = entry.origin_of(file)
        repository = (origin.source, origin.commit)
        if repository not in repositories:
            repositories[repository] = _Repository(hub, *repository)
        files.append(repositories[repository].locked(file, origin.name))
    own = repositories.get((entry.source, entry.commit))
    return replace(entry, files=tuple(files), commit=own.commit if own else entry.commit)


class _Repository:
    """A repository of the hub at one commit, with its list of files."""

    def __init__(self, hub: Hub, source: str, revision: str | None) -> None:
        self._hub, self._name = hub, source.removeprefix(HUB)
        self.commit, found = hub.resolve(self._name, revision)
        self._files = {file.path: file for file in found}

    def locked(self, file: LockedFile, name: str) -> LockedFile:
        if name not in self._files:
            raise WeightsError(f"{self._name} has no {name} at {self.commit}")
        size, sha256 = self._files[name].size, self._files[name].sha256
        if size is None or sha256 is None:  # a small file, which the hub stores without a digest
            size, sha256 = self._read(name)
        origin = file.origin and replace(file.origin, commit=self.commit)
        return LockedFile(file.path, size, sha256, origin)

    def _read(self, name: str) -> tuple[int, str]:
        content = self._hub.read(self._name, name, self.commit)
        return len(content), hashlib.sha256(content).hexdigest()


def lock_from_folder(entry: Entry, folder: Path) -> Entry:
    """Returns the entry with digests from a folder, which is trusted, except that pickles are refused.

    Locks the files that the entry names: a snapshot of a hub's repository also has images, a README and the
    same weights in a single file. With `files = []`, and for weights that come from no hub, all files are
    locked.
    """
    named = entry.files if entry.source.startswith(HUB) else ()
    files = named or tuple(LockedFile(path) for path in _all_files(folder))
    problems = tuple(
        Problem(file.path, why) for file in files if (why := _why_not_locked(folder / file.path)) is not None
    )
    if problems or not files:
        raise WeightsRefused(entry, problems or (Problem(str(folder), "there are no files"),))
    return replace(entry, files=tuple(_locked(folder, file) for file in files))


def _all_files(folder: Path) -> list[str]:
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return [path.as_posix() for path in found if not path.is_relative_to(HUB_METADATA)]


def _why_not_locked(path: Path) -> str | None:
    return check_format(path) if path.is_file() else "is missing, or is not a regular file"


def _locked(folder: Path, file: LockedFile) -> LockedFile:
    size, sha256 = _size_and_digest(folder / file.path)
    return replace(file, size=size, sha256=sha256)


def _size_and_digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, digest


def _is_whole(entry: Entry, folder: Path) -> bool:
    """Returns whether the folder is as locked. Raises WeightsError if it is not and Stoker did not make it;
    files that Stoker made are made again when an update changes them."""
    try:
        verify(entry, folder)
    except WeightsRefused as refused:
        if entry.is_built:
            return False
        raise WeightsError(f"{refused}. Remove {folder} to fetch it again") from refused
    return True


def _fetch_all(
    entry: Entry, part: Path, bring: Bring | None, on_file: Callable[[LockedFile], None]
) -> DigestCache:
    """Returns the digests of the files that were brought; those that lay there were not read."""
    known: DigestCache = {}
    if entry.is_built:
        _builder(entry)(part)
        return known
    for file in entry.files:
        to = part / file.path
        if not (to.is_file() and to.stat().st_size == file.size):
            if bring is None:
                raise WeightsError(f"{entry.name} is not here; run: stoker weights fetch {entry.named}")
            to.parent.mkdir(parents=True, exist_ok=True)
            digest = bring(entry, file, to)
            known[file.path] = (stamp_of(to.stat()), digest)
        on_file(file)
    return known


def _builder(entry: Entry) -> Callable[[Path], None]:
    module, _, name = entry.source.removeprefix(BUILT).partition(":")
    if not module.startswith("stoker.models."):
        raise WeightsError(f"{entry.name}: {module} is not a module of stoker.models")
    build: Callable[[Path], None] = getattr(importlib.import_module(module), name)
    return build


def _verified(entry: Entry, part: Path, known: DigestCache) -> DigestCache:
    """Returns the digests of all files. Removes wrong files, so that the next fetch downloads them again."""
    try:
        return verify_part(entry, part, known)
    except WeightsRefused as refused:
        for problem in refused.problems:
            with contextlib.suppress(OSError):
                (part / problem.path).unlink()
        raise


@contextlib.contextmanager
def _locked_by_us(folder: Path) -> Iterator[None]:
    """Lets one process fetch a model at a time, while others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
