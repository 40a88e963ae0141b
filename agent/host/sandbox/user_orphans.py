"""Removes what a worker's user left in shared folders, once no process of that user runs: files in /dev/shm,
/tmp and /var/tmp, message queues, and SysV segments, queues and semaphores.

It must be a user of one worker only. Links are not followed. What cannot be removed is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

from stoker.agent.host.storage.removal import remove_tree

FOLDERS = ("/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp")  # where anybody may write
SYSV = Path("/proc/sysvipc")
IPC_RMID = 0

_libc = ctypes.CDLL(None, use_errno=True)


def remove_orphans(first: int, last: int) -> None:
    """Removes what the users from `first` to `last` left."""
    for folder in FOLDERS:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            mine = [entry.path for entry in entries if first <= _owner(entry) <= last]
            for path in mine:
                remove_tree(path)
    for kind, name in (("shm", "shmid"), ("msg", "msqid"), ("sem", "semid")):
        for number in _of_sysv(kind, name, first, last):
            _remove_sysv(kind, number)


def _owner(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_uid
    except OSError:
        return -1


def _of_sysv(kind: str, name: str, first: int, last: int) -> list[int]:
    try:
        names, *rows = (SYSV / kind).read_text().splitlines()
    except (OSError, ValueError):
        return []
    found = [dict(zip(names.split(), row.split(), strict=True)) for row in rows]
    return [int(one[name]) for one in found if first <= int(one["cuid"]) <= last]


def _remove_sysv(kind: str, number: int) -> None:
    """Does nothing if it was removed meanwhile."""
    match kind:
        case "shm":
            _libc.shmctl(number, IPC_RMID, None)
        case "msg":
            _libc.msgctl(number, IPC_RMID, None)
        case _:
            _libc.semctl(number, 0, IPC_RMID)
