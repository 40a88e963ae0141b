"""Measures memory that processes use without mapping it: memfds, files in /dev/shm, SysV segments.

The kernel counts their pages for a process only while it maps them; pages written with `write` count for
none. A cgroup counts them for the process that wrote them. Without a cgroup, this is counted:

    each memfd and each file in /dev/shm that one of the processes has open, once
    all of a /dev/shm that belongs to the worker only, open or not
    the files in the host's /dev/shm, and the SysV segments, of a user that belongs to the worker only

Not counted is what a worker without a user or a /dev/shm of its own writes to /dev/shm and closes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

SHM = "/dev/shm"  # read, not written to
SEGMENTS = Path("/proc/sysvipc/shm")
_MAPPING = re.compile(rb"[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) *(.*)\n")
_SHARED = (b"/memfd:", b"/dev/shm/", b"/dev/zero (deleted)", b"/SYSV")
_SEGMENT = b"/SYSV"


class HiddenMemory(Struct, frozen=True):
    """The bytes of files by device and inode, of whole folders by device, and of segments by id."""

    files: dict[tuple[int, int], int]
    folders: dict[int, int]
    segments: dict[int, int]

    @property
    def total(self) -> int:
        return sum(self.files.values()) + sum(self.folders.values()) + sum(self.segments.values())


def hidden_memory(pids: Sequence[int], uid: int | None = None) -> HiddenMemory:
    """Returns the memory that these processes use without mapping it. `uid` is their user, if no other
    worker has that user."""
    folders = dict(_own_folders(pids))
    found = dict(_open_files(pids))
    if uid is not None:
        found |= dict(_files_of(uid))
    files = {inode: size for inode, size in found.items() if inode[0] not in folders}
    return HiddenMemory(files, folders, {} if uid is None else dict(_segments_of(uid)))


def mapped_uncounted(pid: int, counted: HiddenMemory) -> int:
    """Returns the bytes of shared memory that this process maps and that are not counted yet. A page that
    others map, too, counts in part."""
    total, counts = 0, False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps", "rb") as lines:
        for line in lines:
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) << 10 if counts else 0
            elif found := _MAPPING.fullmatch(line):
                device = os.makedev(int(found[1], 16), int(found[2], 16))
                counts = found[4].startswith(_SHARED) and not _is_counted(
                    device, int(found[3]), found[4], counted
                )
    return total


def _is_counted(device: int, inode: int, path: bytes, counted: HiddenMemory) -> bool:
    if path.startswith(_SEGMENT):
        return inode in counted.segments
    return device in counted.folders or (device, inode) in counted.files


def _open_files(pids: Iterable[int]) -> Iterable[tuple[tuple[int, int], int]]:
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{name}").startswith(("/memfd:", f"{SHM}/")):
                        yield _inode(os.stat(f"{folder}/{name}"))


def _own_folders(pids: Iterable[int]) -> Iterable[tuple[int, int]]:
    with contextlib.suppress(OSError):
        host = os.stat(SHM).st_dev
        for pid in pids:
            with contextlib.suppress(OSError):
                folder = f"/proc/{pid}/root{SHM}"
                if (device := os.stat(folder).st_dev) != host:
                    room = os.statvfs(folder)
                    yield device, (room.f_blocks - room.f_bfree) * room.f_frsize


def _files_of(uid: int) -> Iterable[tuple[tuple[int, int], int]]:
    for folder, _, names in os.walk(SHM):
        for name in names:
            with contextlib.suppress(OSError):
                seen = os.lstat(f"{folder}/{name}")
                if seen.st_uid == uid:
                    yield _inode(seen)


def _segments_of(uid: int) -> Iterable[tuple[int, int]]:
    with contextlib.suppress(OSError):
        names, *rows = SEGMENTS.read_text().splitlines()
        for row in rows:
            segment = dict(zip(names.split(), row.split(), strict=True))
            if str(uid) in (segment["uid"], segment["cuid"]):
                yield int(segment["shmid"]), int(segment["rss"])


def _inode(seen: os.stat_result) -> tuple[tuple[int, int], int]:
    return (seen.st_dev, seen.st_ino), seen.st_blocks * 512
