"""The folder of weights on this node's disk, which `stoker weights` and workers share. Synchronous, for
threads.

    KEY/                  complete and verified: it has its name only once it is both. KEY is `NAME@DIGEST`,
                          so other contents of the same name lie beside it
    NAME -> KEY           the contents of the worker that started last, for programs that know only the name
    .KEY.part/            what has arrived of it
    .KEY.agent            the agent fetched it, or fetches it: it may remove it. Locked while it is used; its
                          modification time is the last use, its first line the size of the whole
    .KEY.lock             locked by whoever fetches it
    .lock                 locked by whoever makes room, until that room is marked as taken
    .KEY.digests.json     the digests that were computed (`Digests`)
    ..gone-KEY-1f2e/      on its way out; what a crash leaves is removed at the next start

A folder NAME is somebody else's, as those of `stoker weights fetch`, or an older agent's. It is used if it is
as locked. Without a `.NAME.agent` it is neither counted nor removed. Locks belong to open files, so they end
with a process that is killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.weights.interfaces import Digests, WeightsFailed
from stoker.agent.weights.room import Kept, Limits
from stoker.wire.messages import LockedWeights
from stoker.wire.messages.weights import AT, key_of

GONE, MARK = "..gone-", ".agent"
"""No name begins with a dot, so none of its files has this prefix."""
RESERVE_BYTES = 1 << 30
"""So many bytes of the disk stay free."""
_HUB_METADATA = (".cache", "huggingface")


class WeightsStore:
    """The weights on this node's disk. `most_bytes`: of all that the agent fetched."""

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        digests: Digests,
        *,
        reserve_bytes: int = RESERVE_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._most_bytes, self._reserve_bytes = most_bytes, reserve_bytes
        self._digests, self._clock = digests, clock
        self._locking = threading.Lock()

    # -- what is here

    def held(self) -> dict[str, int]:
        """Returns the sizes in bytes of the entries that are here whole, as their recorded digests say, by
        key."""
        found = {}
        for name in self._names():
            known = self._digests.known(self.folder / name)
            if known and known.keys() == (there := files_below(self.folder / name)).keys():
                found[key_of(name.partition(AT)[0], known.items())] = sum(there.values())
        return dict(sorted(found.items()))

    def kept(self) -> dict[str, Kept]:
        """Returns what the agent fetched, or began to fetch, by the name of its folder."""
        found = {}
        for mark in self._marks():
            name = mark.name[1 : -len(MARK)]
            with contextlib.suppress(OSError, ValueError):  # removed meanwhile, or not written by an agent
                size, used_at = int(mark.read_text() or 0), mark.stat().st_mtime
                here = sum(map(bytes_below, (self.folder / name, self.part(name))))
                found[name] = Kept(size, here, used_at, self._is_busy(mark))
        return found

    def limits(self) -> Limits:
        there = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        return Limits(self._most_bytes, shutil.disk_usage(there).free, self._reserve_bytes)

    def name_of(self, entry: LockedWeights) -> str:
        """Returns the name of the entry's folder: its key, unless somebody else has put it here under its
        name."""
        if (self.folder / entry.key).is_dir() or _is_link(self.folder / entry.name):
            return entry.key
        return entry.name if (self.folder / entry.name).is_dir() else entry.key

    def problem(self, entry: LockedWeights, *, hashing: Callable[[], None] = lambda: None) -> str | None:
        """Returns why the entry's folder cannot be used: empty if there is no folder; None if it is as
        locked. Computes the digests that are not recorded, after it has called `hashing`. Raises
        WeightsFailed if its files are written meanwhile: those digests belong to no state of the files."""
        folder = self.folder / self.name_of(entry)
        if not folder.is_dir():
            return ""
        found = files_below(folder)
        for file in entry.files:
            if found.pop(file.path, None) != file.size:
                return f"{file.path} is missing, or has another size"
        if found:
            return f"{min(found)} is not locked"
        before = _stamps(folder, entry)
        known = dict(self._digests.known(folder))
        if unread := [file.path for file in entry.files if file.path not in known]:
            hashing()
            known |= {path: _sha256(folder / path) for path in unread}
            if _stamps(folder, entry) != before:
                raise WeightsFailed(f"files in {folder} were written while they were verified")
            self._digests.record(folder, known)
        for file in entry.files:
            if known[file.path] != file.sha256:
                return f"{file.path} has another sha256"
        return None

    def is_own(self, name: str) -> bool:
        """Returns whether the agent fetched the folder of this name."""
        return self._mark(name).exists()

    # -- what is used

    def use(self, name: str) -> int | None:
        """Notes that it is used from now on, until the descriptor is closed; None where nobody removes it
        anyway. Raises WeightsFailed if it was just removed."""
        fd = self._lock_mark(name, fcntl.LOCK_SH) if self.is_own(name) else None
        if not (self.folder / name).is_dir():
            if fd is not None:
                os.close(fd)
            raise WeightsFailed("they were just removed")
        self.touch(name)
        return fd

    def touch(self, name: str) -> None:
        with contextlib.suppress(OSError):  # somebody else put it here
            os.utime(self._mark(name), (self._clock(), self._clock()))

    def link(self, entry: LockedWeights) -> None:
        """Lets the entry's name lead to these contents from now on, unless the name is a folder."""
        link = self.folder / entry.name
        if (link.is_dir() and not _is_link(link)) or (link.is_symlink() and os.readlink(link) == entry.key):
            return
        new = self.folder / f".{entry.name}.link-{secrets.token_hex(4)}"
        new.symlink_to(entry.key)
        new.replace(link)

    # -- fetching

    @contextlib.contextmanager
    def fetching(self, name: str) -> Iterator[None]:
        """Holds the lock of an entry while it is fetched. Raises WeightsFailed where another process fetches
        it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise WeightsFailed("another process is fetching them") from None
            yield

    @contextlib.contextmanager
    def making_room(self) -> Iterator[None]:
        """Holds the lock for making room: two processes that look at once would each take the same room."""
        with (self.folder / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def begin(self, name: str, size_bytes: int) -> int:
        """Marks it as the agent's, which counts as its size from then on; returns what holds the mark."""
        mark = self._mark(name)
        if not mark.exists():
            new = mark.with_name(f"{mark.name}.new")
            new.write_text(f"{size_bytes}\n")
            new.replace(mark)
        self.part(name).mkdir(exist_ok=True)
        return self._lock_mark(name, fcntl.LOCK_SH)

    def part(self, name: str) -> Path:
        return self.folder / f".{name}.part"

    def finish(self, entry: LockedWeights) -> None:
        """Makes the files, which have arrived and were verified, the entry's folder."""
        part, folder = self.part(entry.key), self.folder / entry.key
        locked = {file.path for file in entry.files}
        for path in files_below(part, metadata=True).keys() - locked:
            (part / path).unlink()
        for where, folders, _ in os.walk(part, topdown=False):
            for name in folders:
                with contextlib.suppress(OSError):  # those that are empty now
                    os.rmdir(os.path.join(where, name))
            _sync(Path(where))
        part.rename(folder)
        _sync(self.folder)
        self._digests.record(folder, {file.path: file.sha256 for file in entry.files})
        self.touch(entry.key)

    # -- removing

    def remove(self, name: str) -> bool:
        """Removes what the agent fetched, unless it is used; returns whether it did."""
        try:
            fd = self._lock_mark(name, fcntl.LOCK_EX)
        except WeightsFailed:
            return False
        try:
            link = self.folder / name.partition(AT)[0]
            if _is_link(link) and os.readlink(link) == name:
                link.unlink()
            for path in (self.folder / name, self.part(name)):
                if path.exists():
                    path.rename(self.folder / f"{GONE}{name}-{secrets.token_hex(4)}")
            (self.folder / f".{name}.digests.json").unlink(missing_ok=True)
            self._mark(name).unlink(missing_ok=True)
        finally:
            os.close(fd)
        self._empty_gone()
        return True

    def sweep(self) -> None:
        """Removes what an agent left that was killed."""
        self._empty_gone()
        for mark in self._marks():
            name = mark.name[1 : -len(MARK)]
            if not (self.folder / name).exists() and not self.part(name).exists():
                self.remove(name)
        for path in self.folder.glob("*"):
            if _is_link(path) and not path.exists():
                path.unlink()

    def _empty_gone(self) -> None:
        for path in self.folder.glob(f"{GONE}*"):
            remove_tree(path)

    # -- names

    def _names(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            found = [one for one in self.folder.iterdir() if one.name[0] != "." and one.is_dir()]
            return [one.name for one in found if not _is_link(one)]
        return []

    def _marks(self) -> list[Path]:
        return sorted(self.folder.glob(f".*{MARK}"))

    def _mark(self, name: str) -> Path:
        return self.folder / f".{name}{MARK}"

    def _is_busy(self, mark: Path) -> bool:
        with self._locking, mark.open("r+") as file:  # on NFS only a writer may lock alone
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _lock_mark(self, name: str, how: int) -> int:
        """Returns the descriptor of the locked mark. Raises WeightsFailed where it is removed or used
        meanwhile."""
        mark = self._mark(name)
        try:
            fd = os.open(mark, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise WeightsFailed("they were just removed") from None
        try:
            with self._locking:  # not while `_is_busy` has it
                fcntl.flock(fd, how | fcntl.LOCK_NB)
            if os.fstat(fd).st_ino == mark.stat().st_ino:
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        raise WeightsFailed("they are just being removed, or are in use")


def files_below(folder: Path, *, metadata: bool = False) -> dict[str, int]:
    """Returns the size of each file by its path; -1 for what is not a regular file. The metadata of the hub's
    library is left out, unless it is wanted."""
    found = {}
    for where, folders, names in os.walk(folder):
        below = Path(where).relative_to(folder)
        for name in (*names, *(one for one in folders if os.path.islink(os.path.join(where, one)))):
            path = below / name
            if metadata or path.parts[:2] != _HUB_METADATA:
                whole = folder / path
                found[path.as_posix()] = whole.stat().st_size if whole.is_file() else -1
    return found


def _is_link(path: Path) -> bool:
    """Returns whether the path is a link that the agent made; operators may have links of their own."""
    return path.is_symlink() and os.readlink(path).startswith(f"{path.name}{AT}")


def bytes_below(folder: Path) -> int:
    """Returns the bytes of all regular files below a folder."""
    return sum(max(size, 0) for size in files_below(folder, metadata=True).values())


def _stamps(folder: Path, entry: LockedWeights) -> list[tuple[int, int, int]]:
    """Returns what changes where a file is written or replaced."""
    found = [(folder / file.path).stat() for file in entry.files]
    return [(one.st_size, one.st_mtime_ns, one.st_ino) for one in found]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
