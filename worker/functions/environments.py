"""Environments of dependencies, each made once for all workers of a node, and kept.

    FOLDER/HASH/         the virtual environment; complete when it has the file `complete`
    FOLDER/HASH.lock     locked shared by who uses it, exclusively by who makes or removes it

An environment without `complete` was never finished: it is made again, or removed with the old. The least
recently used ones are removed if there are more than KEPT, unless a worker uses them. The hash is of the
dependencies, of pip's variables and of the interpreter.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.worker.errors import HandlerError
from stoker.worker.functions.install import Log, make_environment, python_of

KEPT = 8
LOOK_S = 0.1
"""Between two tries of a lock: no thread waits for it, which a cancel could not end."""

VARIABLE = "STOKER_ENVIRONMENTS"
"""Names the folder, which the agent gives workers that may share one."""

Make = Callable[[Path, Sequence[str], Log], Awaitable[None]]


@dataclass(slots=True)
class Environment:
    """An environment of dependencies, which is not removed until `close`. `python` is its interpreter."""

    python: str
    _lock: int = -1

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class Environments:
    def __init__(self, folder: Path, *, kept: int = KEPT, make: Make = make_environment) -> None:
        self._folder, self._kept, self._make = folder, kept, make

    async def get(self, dependencies: Sequence[str], log: Log) -> Environment:
        """Returns the environment, made if there is none. Raises InstallFailed."""
        if not dependencies:
            return Environment(sys.executable)
        self._prepare_folder()
        folder = self._folder / name_of(dependencies, os.environ)
        lock = os.open(folder.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await self._complete(folder, lock, dependencies, log)
        except BaseException:
            os.close(lock)
            raise
        os.utime(_mark(folder))
        self._remove_old()
        return Environment(str(python_of(folder)), lock)

    async def _complete(self, folder: Path, lock: int, dependencies: Sequence[str], log: Log) -> None:
        """Returns with a shared lock of a complete environment."""
        await _locked(lock, fcntl.LOCK_SH, log)
        while not _mark(folder).exists():
            fcntl.flock(lock, fcntl.LOCK_UN)
            await _locked(lock, fcntl.LOCK_EX, log)
            if not _mark(folder).exists():
                shutil.rmtree(folder, ignore_errors=True)
                try:
                    await self._make(folder, dependencies, log)
                except BaseException:
                    shutil.rmtree(folder, ignore_errors=True)
                    raise
                _mark(folder).touch()
            await _locked(lock, fcntl.LOCK_SH, log)  # it may be removed meanwhile: that needs no lock

    def _prepare_folder(self) -> None:
        """Makes the folder, and refuses one that another user may write to: code in the folder runs as this
        user.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = self._folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise HandlerError(
                f"{self._folder} must belong to the worker's user, and no other may write to it"
            )

    def _remove_old(self) -> None:
        folders = sorted(self._folder.glob("*/"), key=_used_at)
        surplus = len(folders) - self._kept
        for folder in folders:
            if surplus <= 0 and _mark(folder).exists():
                return
            with open(folder.with_suffix(".lock"), "a", encoding="ascii") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # a worker uses or makes it
                _mark(folder).unlink(missing_ok=True)
                shutil.rmtree(folder, ignore_errors=True)
                surplus -= 1


def cache_folder(environ: Mapping[str, str]) -> Path:
    return Path(
        environ.get(VARIABLE) or Path(environ.get("HOME") or "/tmp") / ".cache" / "stoker-environments"
    )


def name_of(dependencies: Sequence[str], environ: Mapping[str, str]) -> str:
    """Returns the hash by which an environment is found. Pure."""
    pip = sorted((name, value) for name, value in environ.items() if name.startswith("PIP_"))
    known = [sorted(set(dependencies)), pip, sys.version, sys.prefix]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]


def _mark(folder: Path) -> Path:
    return folder / "complete"


def _used_at(folder: Path) -> float:
    """Returns when the environment was last used; 0 if the environment was never finished."""
    try:
        return _mark(folder).stat().st_mtime
    except FileNotFoundError:
        return 0.0


async def _locked(lock: int, kind: int, log: Log) -> None:
    reported = False
    while True:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not reported:
                log("waiting for another worker that installs the same dependencies")
                reported = True
            await asyncio.sleep(LOOK_S)
