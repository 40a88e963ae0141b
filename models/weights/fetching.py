"""Brings a model's weights to this machine, and fills the lock.

fetch   from the hub at the locked commit, from a mirror, or made here; into `.NAME.part` beside the
        folder, verified there, and renamed: a folder with the model's name is always a whole one.
        What an interrupted fetch has left is taken up by the next.
lock    sizes and digests from the hub's own records, or from a folder that is trusted as it is
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from stoker.models.weights.hub import Hub, HuggingFaceHub
from stoker.models.weights.lock import BUILT, HUB, Entry, LockedFile, WeightsError, read_lock
from stoker.models.weights.verification import HUB_NOTES, Problem, WeightsRefused, check_format, verify

Mirror: TypeAlias = Path | Callable[[str, Path], None]
"""A folder that holds `<model>/<path>`, or a function that brings the object of that name to a path."""

OnFile: TypeAlias = Callable[[LockedFile], None]

_ELSEWHERE: Final = ".elsewhere"
"""In the folder that is being filled: files by the names that they have in their repositories."""


def weights_folder() -> Path:
    """Where models lie, each in a folder of its name: STOKER_WEIGHTS_DIR, or the user's cache."""
    chosen = os.environ.get("STOKER_WEIGHTS_DIR")
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "stoker" / "weights"


def fetch(
    entry: Entry,
    folder: Path,
    *,
    mirror: Mirror | None = None,
    hub: Hub | None = None,
    on_file: OnFile | None = None,
) -> None:
    """Make `folder` hold the weights of `entry`, verified. Does nothing where it already does.

    Raises WeightsError; a folder that is there and wrong is left alone unless Stoker itself made it.
    """
    if entry.unknown:
        unknown = tuple(Problem(path, "its digest is unknown") for path in entry.unknown)
        raise WeightsRefused(entry, unknown, f". Fill the lock with: stoker weights lock {entry.name}")
    if folder.exists() and _is_whole(entry, folder):
        return  # nothing was written: a worker may have no right to
    try:
        with _alone(folder):
            if folder.exists() and _is_whole(entry, folder):
                return  # another process has brought it while this one waited
            part = folder.parent / f".{folder.name}.part"
            part.mkdir(exist_ok=True)
            _bring_all(entry, part, mirror, hub or HuggingFaceHub(), on_file)
            _verify_part(entry, part)
            if folder.exists():
                shutil.rmtree(folder)
            part.rename(folder)
            verify(entry, folder)
    except OSError as error:
        raise WeightsError(f"cannot fetch {entry.name}: {error}") from error


def ready(name: str, folder: Path) -> tuple[Entry, Path]:
    """The entry of the lock, and its verified folder below `folder`: made where Stoker makes it itself,
    else it must be there. Raises WeightsError."""
    entry = read_lock().entry(name)
    place = folder / entry.name
    if entry.is_built:
        fetch(entry, place)
    else:
        verify(entry, place)
    return entry, place


def lock_from_hub(entry: Entry, hub: Hub | None = None) -> Entry:
    """The entry with the digests of its files, each at its commit (the newest one while that is unknown)."""
    hub = hub or HuggingFaceHub()
    if not entry.source.startswith(HUB):
        raise WeightsError(f"{entry.name} does not come from the hub; its source is {entry.source}")
    repositories: dict[tuple[str, str | None], _Repository] = {}
    files = []
    for file in entry.files:
        origin = entry.origin_of(file)
        asked = (origin.source, origin.commit)
        if asked not in repositories:
            repositories[asked] = _Repository(hub, *asked)
        files.append(repositories[asked].locked(file, origin.name))
    own = repositories.get((entry.source, entry.commit))
    return replace(entry, files=tuple(files), commit=own.commit if own else entry.commit)


class _Repository:
    """One repository of the hub at one commit, asked once."""

    def __init__(self, hub: Hub, source: str, revision: str | None) -> None:
        self._hub, self._name = hub, source.removeprefix(HUB)
        self.commit, found = hub.resolve(self._name, revision)
        self._files = {file.path: file for file in found}

    def locked(self, file: LockedFile, name: str) -> LockedFile:
        if name not in self._files:
            raise WeightsError(f"{self._name} has no {name} at {self.commit}")
        size, sha256 = self._files[name].size, self._files[name].sha256
        if size is None or sha256 is None:  # a small file, kept without a pointer: read it
            size, sha256 = self._read(name)
        origin = file.origin and replace(file.origin, commit=self.commit)
        return LockedFile(file.path, size, sha256, origin)

    def _read(self, name: str) -> tuple[int, str]:
        with tempfile.TemporaryDirectory(prefix="stoker-lock-") as scratch:
            self._hub.download(self._name, name, self.commit, Path(scratch))
            return _size_and_digest(Path(scratch) / name)


def lock_from_folder(entry: Entry, folder: Path) -> Entry:
    """The entry with digests from a folder, which is trusted as it is; pickles are refused even so.

    Of a hub's folder, the files that the entry names: a whole snapshot also has pictures, a README and the
    same numbers in a single file. With `files = []`, and of what Stoker makes itself: all that are there.
    """
    named = () if entry.is_built else entry.files
    files = named or tuple(LockedFile(path) for path in _all_files(folder))
    problems = tuple(
        Problem(file.path, why) for file in files if (why := _why_not_locked(folder / file.path)) is not None
    )
    if problems or not files:
        raise WeightsRefused(entry, problems or (Problem(str(folder), "there are no files"),))
    return replace(entry, files=tuple(_locked(folder, file) for file in files))


def _all_files(folder: Path) -> list[str]:
    found = sorted(path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return [path.as_posix() for path in found if not path.is_relative_to(HUB_NOTES)]


def _why_not_locked(path: Path) -> str | None:
    return check_format(path) if path.is_file() else "is missing, or is no regular file"


def _locked(folder: Path, file: LockedFile) -> LockedFile:
    size, sha256 = _size_and_digest(folder / file.path)
    return replace(file, size=size, sha256=sha256)


def _size_and_digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return os.fstat(file.fileno()).st_size, digest


def _is_whole(entry: Entry, folder: Path) -> bool:
    """Whether the folder may stay. Files that Stoker made are made anew when an update changes them."""
    try:
        verify(entry, folder)
    except WeightsRefused as refused:
        if entry.is_built:
            return False
        raise WeightsError(f"{refused}. Remove {folder} to fetch it anew") from refused
    return True


def _bring_all(entry: Entry, part: Path, mirror: Mirror | None, hub: Hub, on_file: OnFile | None) -> None:
    if entry.is_built:
        _builder(entry)(part)
        return
    for file in entry.files:
        to = part / file.path
        if not (to.is_file() and to.stat().st_size == file.size):
            to.parent.mkdir(parents=True, exist_ok=True)
            _bring(entry, file, part, mirror, hub)
        if on_file is not None:
            on_file(file)
    shutil.rmtree(part / _ELSEWHERE, ignore_errors=True)
    hub.tidy(part)


def _bring(entry: Entry, file: LockedFile, part: Path, mirror: Mirror | None, hub: Hub) -> None:
    if mirror is None:
        _download(entry, file, part, hub)
    elif isinstance(mirror, Path):
        shutil.copyfile(mirror / entry.name / file.path, part / file.path)
    else:
        mirror(f"{entry.name}/{file.path}", part / file.path)


def _download(entry: Entry, file: LockedFile, part: Path, hub: Hub) -> None:
    """A file that has another name there is brought beside the others first, and moved."""
    origin = entry.origin_of(file)
    if origin.commit is None:
        raise WeightsError(f"{entry.name}: its commit is unknown; run: stoker weights lock {entry.name}")
    repository = origin.source.removeprefix(HUB)
    if origin.name == file.path:
        hub.download(repository, file.path, origin.commit, part)
        return
    (part / _ELSEWHERE).mkdir(exist_ok=True)
    hub.download(repository, origin.name, origin.commit, part / _ELSEWHERE)
    os.replace(part / _ELSEWHERE / origin.name, part / file.path)


def _builder(entry: Entry) -> Callable[[Path], None]:
    module, _, name = entry.source.removeprefix(BUILT).partition(":")
    if not module.startswith("stoker.models."):
        raise WeightsError(f"{entry.name}: {module} is no module of stoker.models")
    build: Callable[[Path], None] = getattr(importlib.import_module(module), name)
    return build


def _verify_part(entry: Entry, part: Path) -> None:
    """A file that came wrong is removed, so that the next fetch brings it again."""
    try:
        verify(entry, part, remember=False)
    except WeightsRefused as refused:
        for problem in refused.problems:
            with contextlib.suppress(OSError):
                (part / problem.path).unlink()
        raise


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process fetches a model at a time; the others wait and find it there."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
