"""The range of user ids for workers of an agent that runs as root, and its lock against other agents.

    100000-100999    this range
    auto             the range that this data folder used before, else the first thousand unused ids: no user,
                     group or subordinate range has them, no process runs with them, no other agent uses them

The agent kills every process of its worker users, so a range must belong to one agent. Id N is byte N of a
lock file: ranges that overlap exclude each other, and a lock ends with its process. There is one file for
each PID namespace, because an agent kills only processes that it sees.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import re
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

from stoker.agent.host.process_tree.tree import of_users
from stoker.cli.data_folder import write_private
from stoker.cli.errors import CliError

AUTO = "auto"
LOCKS = Path("/run")
SUBORDINATE = (Path("/etc/subuid"), Path("/etc/subgid"))
FIRST_MIN, USERS_MAX = 1000, 1 << 20
FIRST_AUTO, LAST_AUTO, AUTO_USERS = 0x70000000, 0x7FFE0000, 1000
"""The ids for `auto`: above those of distributions, containers and subordinate ranges, and below 2^31."""

UidRange = tuple[int, int]
"""The first and the last id."""


def parse(text: str) -> UidRange:
    found = re.fullmatch(r"(\d{1,10})-(\d{1,10})", text)
    first, last = (int(found[1]), int(found[2])) if found else (0, -1)
    if not (FIRST_MIN <= first <= last < 1 << 32 and last - first < USERS_MAX):
        raise CliError(f"--worker-users is a range of user ids like 100000-100999, or auto; got {text!r}")
    taken = [entry.pw_name for entry in pwd.getpwall() if first <= entry.pw_uid <= last]
    if taken:
        raise CliError(f"--worker-users {text} contains the id of {taken[0]}: give a range of unused ids")
    return first, last


def of_containers(node: str) -> UidRange:
    """Returns a thousand ids for the containers of this node's agent: they end with their containers, so no
    lock keeps another agent from the same ids, only chance does."""
    ranges = (LAST_AUTO - FIRST_AUTO) // AUTO_USERS
    first = FIRST_AUTO + zlib.crc32(node.encode()) % ranges * AUTO_USERS
    return first, first + AUTO_USERS - 1


class RangeLock:
    """The lock of one agent's range, until `close` or the end of the process."""

    def __init__(self, folder: Path = LOCKS) -> None:
        file = folder / f"stoker-worker-users-{os.stat('/proc/self/ns/pid').st_ino}"
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def close(self) -> None:
        os.close(self._fd)

    def hold(self, candidate: UidRange) -> bool:
        """Takes the lock; False if another agent has some of these ids."""
        first, last = candidate
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first, last - first + 1, 0)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            return False
        return True


def hold(candidate: UidRange, lock: RangeLock) -> None:
    """Locks a range that was configured. Raises CliError if another agent has some of it."""
    if not lock.hold(candidate):
        raise CliError(
            f"--worker-users {candidate[0]}-{candidate[1]}: another agent of this host uses some of these;"
            " give each agent a range of its own, or auto"
        )


def find(folder: Path, lock: RangeLock) -> UidRange:
    """Finds and locks a range for `auto`, and stores it in `folder`: after a kill, the next agent finds
    orphaned processes by their users."""
    file = folder / "worker_users"
    before = _read(file)
    taken = taken_ranges()
    if before is not None and not _overlaps(before, taken) and lock.hold(before):
        return before
    for first in range(FIRST_AUTO, LAST_AUTO, AUTO_USERS):
        candidate = first, first + AUTO_USERS - 1
        if not _overlaps(candidate, taken) and not any(of_users(*candidate)) and lock.hold(candidate):
            write_private(file, f"{candidate[0]}-{candidate[1]}\n")
            return candidate
    raise CliError("--worker-users auto finds no thousand unused user ids; give a range")


def taken_ranges(subordinate: Iterable[Path] = SUBORDINATE) -> list[UidRange]:
    """Returns the ids of users, groups and subordinate ranges."""
    found = [(entry.pw_uid, entry.pw_uid) for entry in pwd.getpwall()]
    found += [(entry.gr_gid, entry.gr_gid) for entry in grp.getgrall()]
    for file in subordinate:
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        for line in lines:
            _, first, count = [*line.split(":"), "", ""][:3]
            if first.isdecimal() and count.strip().isdecimal():
                found.append((int(first), int(first) + int(count) - 1))
    return found


def _overlaps(candidate: UidRange, taken: Iterable[UidRange]) -> bool:
    return any(first <= candidate[1] and candidate[0] <= last for first, last in taken)


def _read(file: Path) -> UidRange | None:
    try:
        found = re.fullmatch(r"(\d+)-(\d+)\n", file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return None if found is None else (int(found[1]), int(found[2]))
