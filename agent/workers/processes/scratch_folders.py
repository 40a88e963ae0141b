"""The scratch folders of attempts, and what of them a handler may hand over.

A worker of the agent's own user makes an attempt's folder itself, when its handler first asks for it: most
jobs need none. For a worker of another user and for a container the agent makes it beforehand. The agent
removes it in any case.

A handler hands over an open descriptor. The agent may see more than the handler (it may be root, it holds
other jobs' files), so it judges the file behind the descriptor, and never opens a name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import re
import shutil
import stat
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from stoker.agent.host.sandbox.isolation import User
from stoker.agent.host.sandbox.users import WorkerUsers
from stoker.agent.host.storage.removal import remove_tree
from stoker.agent.interfaces import FileRefused
from stoker.agent.worker_frames import BrokenProtocol
from stoker.wire.messages import AttemptKey

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}

RESERVE = 64 << 20
"""Bytes that must be free for a next attempt: one that starts on a full disk can only fail."""

ROOM_S = 1.0
"""How long a disk that had room is not checked again."""

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def check_file(fd: int, scratch: str | os.PathLike[str], uid: int) -> int:
    """Returns the size of the file behind `fd`: a regular file of `uid`'s, below `scratch`, with no other
    name.

    Raises FileRefused with a message for callers: it names the file as seen from the scratch folder, and a
    file outside by its bare name. Raises BrokenProtocol for what no runtime hands over.
    """
    facts = os.fstat(fd)
    path = os.readlink(f"/proc/self/fd/{fd}")
    inside = path.startswith(above := os.path.realpath(scratch) + os.sep)
    name = path.removeprefix(above) if inside else os.path.basename(path)
    if not stat.S_ISREG(facts.st_mode):
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode), "no file")
        raise BrokenProtocol(f"it handed over {kind} instead of a regular file")
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    if flags & os.O_PATH or flags & os.O_ACCMODE == os.O_WRONLY:
        raise BrokenProtocol("it handed over a file that is not open for reading")
    if facts.st_uid != uid:
        raise FileRefused(f"{name} belongs to another user")
    if facts.st_nlink == 0:
        raise FileRefused(f"{name.removesuffix(' (deleted)')} was deleted")
    if facts.st_nlink > 1:
        raise FileRefused(f"{name} is a hard link: it has {facts.st_nlink} names; hand over a copy")
    if not inside or facts.st_dev != os.stat(scratch).st_dev:
        raise FileRefused(f"{name} lies outside the job's scratch folder; write it below job.scratch")
    return facts.st_size


class _Folder(Struct):
    """An attempt's folder, which may not be there. `uid` owns it. It is in the folder of its `worker`, or
    of all where that is empty."""

    path: str
    uid: int
    worker: str


def _let_through(folder: Path) -> None:
    """Lets other users pass to their own folders, whatever the umask is, without listing this one."""
    folder.chmod(0o711)


class ScratchFolders:
    """Below `root`, a folder of mode 0700 for each attempt. What an earlier agent left in `root` goes.

    `users` has the user that each worker runs as, where that is not the agent's own. A worker that must not
    see other workers' files (a container) has a folder of its own, from `open` on, which names its user: its
    attempts' folders lie in that folder, which is removed when it was closed and the last of them has ended.
    `clock` counts seconds.
    """

    def __init__(
        self, root: Path, users: WorkerUsers | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._root = root.absolute()
        self._clock = clock
        self._room_until = -math.inf
        self._uid = os.geteuid()
        self._users = users if users is not None and users.other else None
        self._open: Counter[str] = Counter()
        self._opened_for: dict[str, User] = {}
        self._folders: dict[AttemptKey, _Folder] = {}
        remove_tree(self._root)
        self._root.mkdir(mode=0o700, parents=True)
        if self._users is not None:
            _let_through(self._root)

    def open(self, worker: str, user: User | None = None) -> Path:
        """Makes and returns the worker's own folder. `user` is who the worker runs as from now on, if not the
        agent's own user. Each `open` needs a `close`. Raises OSError."""
        folder = self._of(worker)
        folder.mkdir(mode=0o700, exist_ok=True)
        if user is not None:
            self._opened_for[worker] = user
            _let_through(folder)
        self._open[worker] += 1
        return folder

    def close(self, worker: str) -> None:
        self._open[worker] -= 1
        if not self._open[worker]:
            del self._open[worker]
            self._opened_for.pop(worker, None)
            self._sweep(self._of(worker))

    def _of(self, worker: str) -> Path:
        return self._root / f"{_UNSAFE.sub('_', worker)}.worker"

    def _sweep(self, folder: Path) -> None:
        """Removes a worker's folder, unless the worker still runs or an attempt of it still uploads."""
        if folder not in map(self._of, self._open):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def prepare(self, key: AttemptKey, worker: str = "") -> str:
        if (now := self._clock()) >= self._room_until:
            if (free := shutil.disk_usage(self._root).free) < RESERVE:
                why = f"{free >> 20} MiB are free, {RESERVE >> 20} MiB are needed"
                raise OSError(errno.ENOSPC, f"the disk under {self._root} is full: {why}")
            self._room_until = now + ROOM_S
        own = worker if worker in self._open else ""
        parent = self._of(own) if own else self._root
        path = f"{parent}/{_UNSAFE.sub('_', key.job)}.{key.attempt}"  # one name, whatever the job's id is
        uid = self._uid
        if own or self._users is not None:
            uid = self._make(path, worker)
        self._folders[key] = _Folder(path, uid, own)
        return path

    def _make(self, path: str, worker: str) -> int:
        """Makes the folder for a worker that cannot, and returns the user that owns it."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        user = self._opened_for.get(worker)
        if user is None and self._users is not None:
            user = self._users.of(worker)
        if user is None:
            return self._uid
        os.chown(path, *user)
        return user[0]

    def remove(self, key: AttemptKey) -> None:
        if (folder := self._folders.pop(key, None)) is None:
            return
        try:
            os.rmdir(folder.path)  # most folders are empty, and a walk takes four times as long
        except FileNotFoundError:
            pass  # its handler asked for none
        except OSError:
            remove_tree(folder.path)
        if folder.worker:
            self._sweep(self._of(folder.worker))

    def check(self, key: AttemptKey, fd: int) -> int:
        if (folder := self._folders.get(key)) is None:
            raise FileRefused("the scratch folder of its job is gone")
        try:
            return check_file(fd, folder.path, folder.uid)
        except OSError as error:
            raise FileRefused(f"the file cannot be read: {error.strerror}") from None
