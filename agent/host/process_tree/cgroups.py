"""Creates a cgroup (version 2) for each worker, if the agent may: for its limits, and to kill all its
processes.

    <the agent's own>/stoker-<folder>-<life>/<worker>.<n>/      killed with all descendants by `cgroup.kill`
                     '- of an earlier agent: killed and removed when an agent of the same folder starts

- Every descendant of a worker is in its cgroup, whatever it does to its session, environment or parents.
- Limits need controllers in the agent's own cgroup, and no process in it but its children. If the agent is
  alone there, it moves into a cgroup of its own; otherwise workers can be killed by cgroup but not limited.
- Nothing here waits: an empty cgroup is removed at the next look.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from stoker.agent.host.process_tree.tree import life

WANTED = ("memory", "pids", "cpu")
LEFT_S = 2.0
"""How long the processes that an earlier agent left may take to die."""


class NoCgroups(Exception):
    """The error on a host without cgroups for the agent. The message says why."""


class Cgroup:
    """The cgroup of one worker."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def procs(self) -> Path:
        """A process that writes "0" to this file enters the cgroup."""
        return self.path / "cgroup.procs"

    def pids(self) -> list[int]:
        """Returns the running processes, also those in cgroups that the worker created below its own."""
        found = []
        for folder in _folders(self.path):
            with contextlib.suppress(OSError):
                found += [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        return found

    def kill(self) -> None:
        """Sends SIGKILL to all processes in it, and to those that they fork meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / "cgroup.kill").write_text("1")

    @property
    def populated(self) -> bool:
        return _count(self.path / "cgroup.events", "populated") != 0

    @property
    def oom_kills(self) -> int:
        """Returns the number of processes that the kernel killed for exceeding the memory limit."""
        return _count(self.path / "memory.events", "oom_kill")

    def remove(self) -> bool:
        """Removes the cgroup if it is empty, and returns whether it was removed."""
        for folder in _folders(self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not self.path.exists()


class Cgroups:
    """The cgroups of the workers. `own` is the agent's own cgroup, `folder` its data folder. Raises
    NoCgroups."""

    def __init__(self, folder: Path, own: Path | None = None) -> None:
        self._own = find_own() if own is None else own
        mark = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
        if not (self._own / "cgroup.kill").exists() and not _has_kill(self._own):
            raise NoCgroups("the kernel has no cgroup.kill (5.14 has)")
        self.left = self._remove_orphans(f"stoker-{mark}-")
        self.path = self._own / f"stoker-{mark}-{life()}"
        try:
            self.path.mkdir(exist_ok=True)
        except OSError as error:
            raise NoCgroups(f"{self._own} cannot be written to: {error.strerror}") from None
        self.controllers = self._enable()
        if (kind := _kind(self.path)) != "domain":
            self.close()
            raise NoCgroups(f"the cgroups below {self._own} are {kind}: no process may enter them")

    def _enable(self) -> frozenset[str]:
        """Enables the wanted controllers for the workers' cgroups, and returns those that they have."""
        there = set((self._own / "cgroup.controllers").read_text().split()) & set(WANTED)
        if not there or not self._move_aside():
            return frozenset()
        for name in sorted(there):
            with contextlib.suppress(OSError):
                for folder in (self._own, self.path):
                    (folder / "cgroup.subtree_control").write_text(f"+{name}")
        return frozenset(_fields(self.path / "cgroup.subtree_control") & there)

    def _move_aside(self) -> bool:
        """Moves the agent into a cgroup of its own, and returns whether this one has no process left.

        While there is one, the kernel refuses memory limits, and with limits of processes or CPU time it lets
        no process into the cgroups below. In the root of all cgroups processes may stay."""
        if not (self._own / "cgroup.type").exists():
            return True
        if not _fields(self._own / "cgroup.procs") <= {str(os.getpid())}:
            return False
        aside = self._own / "stoker-agent"
        try:
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text("0")
        except OSError:
            return False
        return True

    def make(self, name: str, limits: Mapping[str, str]) -> Cgroup:
        """Creates a worker's cgroup. Raises OSError."""
        made = Cgroup(self.path / name)
        made.path.mkdir()
        for file, value in limits.items():
            path = made.path / file
            if file != "memory.swap.max" or path.exists():  # missing if the host has no swap
                path.write_text(value)
        return made

    def _remove_orphans(self, start: str) -> int:
        """Kills what earlier agents left, and returns the number of processes."""
        left = [Cgroup(path) for path in self._own.glob(f"{start}*")]
        count = sum(len(one.pids()) for one in left)
        for one in left:
            one.kill()
        until = time.monotonic() + LEFT_S
        while [one for one in left if not one.remove()] and time.monotonic() < until:
            time.sleep(0.001)  # only at the agent's start, when nothing else runs
        return count

    def close(self) -> None:
        """Removes the folder. If it is not empty it stays, and the next agent removes it."""
        Cgroup(self.path).remove()


def find_own(self: Path = Path("/proc/self")) -> Path:
    """Returns the folder of this process's cgroup of version 2. Raises NoCgroups."""
    own = next(
        (line[3:] for line in (self / "cgroup").read_text().splitlines() if line.startswith("0::")), None
    )
    for root, point in _mounts((self / "mountinfo").read_text()):
        if own is not None and (own == root or own.startswith(root.rstrip("/") + "/")):
            found = Path(point) / own[len(root.rstrip("/")) :].lstrip("/")
            if not os.access(found, os.W_OK):
                raise NoCgroups(f"{found} is not writable")
            return found
    raise NoCgroups("no cgroups of version 2 are mounted")


def _mounts(mountinfo: str) -> Iterator[tuple[str, str]]:
    """Yields the root and the mount point of each mount of version 2."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] == "cgroup2":
            yield before.split(" ")[3], before.split(" ")[4]


def _has_kill(own: Path) -> bool:
    """Returns whether the kernel has cgroup.kill. Looks into a new cgroup, since the root of all cgroups
    never has it."""
    probe = own / f"stoker-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError as error:
        raise NoCgroups(f"{own} cannot be written to: {error.strerror}") from None
    try:
        return (probe / "cgroup.kill").exists()
    finally:
        probe.rmdir()


def _kind(path: Path) -> str:
    with contextlib.suppress(OSError):
        return (path / "cgroup.type").read_text().strip()
    return "domain"


def _folders(path: Path) -> list[Path]:
    """Returns the folder and all folders in it, the innermost first."""
    return [Path(name) for name, _, _ in os.walk(path, topdown=False)]


def _count(path: Path, name: str) -> int:
    """Reads one number from a file with a name and a number in each line; returns 0 if the file is gone."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.split(" ")[0] == name:
                return int(line.split(" ")[1])
    return 0


def _fields(path: Path) -> set[str]:
    return set(path.read_text().split())
