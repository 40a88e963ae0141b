"""A cgroup (version 2) for each worker, where the agent may make some: its limits, and its end in one write.

    <the agent's own>/stoker-<folder>-<life>/<worker>.<n>/      kill: `cgroup.kill`, grandchildren and all
                     '- of an earlier life: killed and removed when an agent of the same folder starts

- Whatever a worker forks is in its cgroup, whatever it does to its session, environment or parents.
- Limits need controllers in the agent's own cgroup, and no process in it beside its children. Where the agent
  is alone there it steps aside into a cgroup of its own; where it is not, there is the kill and no limit.
- Nothing here waits: a cgroup is removed when it is empty, by whoever looks again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from stoker.agent.process_tree import life

WANTED = ("memory", "pids", "cpu")
LEFT_S = 2.0
"""How long leftovers of an earlier agent may take to die."""


class NoCgroups(Exception):
    """Why this host has none for us, in words."""


class Cgroup:
    """One worker's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def procs(self) -> Path:
        """A process that writes "0" to this file enters the cgroup."""
        return self.path / "cgroup.procs"

    def add(self, pid: int) -> None:
        self.procs.write_text(str(pid))

    def pids(self) -> list[int]:
        """The living processes, with those of cgroups that the worker made below its own."""
        found = []
        for folder in _folders(self.path):
            with contextlib.suppress(OSError):
                found += [int(line) for line in (folder / "cgroup.procs").read_text().split()]
        return found

    def kill(self) -> None:
        """SIGKILL to everything in it, and to what it forks meanwhile."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / "cgroup.kill").write_text("1")

    @property
    def populated(self) -> bool:
        return _count(self.path / "cgroup.events", "populated") != 0

    @property
    def oom_kills(self) -> int:
        """How many the kernel killed for its memory limit."""
        return _count(self.path / "memory.events", "oom_kill")

    def remove(self) -> bool:
        """Whether it is gone: only an empty one can be removed."""
        for folder in _folders(self.path):
            with contextlib.suppress(OSError):
                folder.rmdir()
        return not self.path.exists()


class Cgroups:
    """`own` is the agent's own cgroup, `folder` its data folder. Raises NoCgroups."""

    def __init__(self, folder: Path, own: Path | None = None) -> None:
        self._own = find_own() if own is None else own
        mark = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:12]
        if not (self._own / "cgroup.kill").exists() and not _is_whole(self._own):
            raise NoCgroups("the kernel has no cgroup.kill (5.14 has)")
        self.left = self._remove_leftovers(f"stoker-{mark}-")
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
        """Which of the wanted controllers the workers' cgroups have."""
        there = set((self._own / "cgroup.controllers").read_text().split()) & set(WANTED)
        if not there or not self._stepped_aside():
            return frozenset()
        for name in sorted(there):
            with contextlib.suppress(OSError):
                for folder in (self._own, self.path):
                    (folder / "cgroup.subtree_control").write_text(f"+{name}")
        return frozenset(_words(self.path / "cgroup.subtree_control") & there)

    def _stepped_aside(self) -> bool:
        """Moves the agent into a cgroup of its own. Whether no process is left in this one, as limits demand.

        With one left the kernel refuses limits of memory. It would take those of processes and processors,
        but then let no process into the cgroups below. In the root of all cgroups processes may stay."""
        if not (self._own / "cgroup.type").exists():
            return True
        if not _words(self._own / "cgroup.procs") <= {str(os.getpid())}:
            return False
        aside = self._own / "stoker-agent"
        try:
            aside.mkdir(exist_ok=True)
            (aside / "cgroup.procs").write_text("0")
        except OSError:
            return False
        return True

    def make(self, name: str, limits: Mapping[str, str]) -> Cgroup:
        """Raises OSError."""
        made = Cgroup(self.path / name)
        made.path.mkdir()
        for file, value in limits.items():
            path = made.path / file
            if file != "memory.swap.max" or path.exists():  # not there where there is no swap
                path.write_text(value)
        return made

    def _remove_leftovers(self, start: str) -> int:
        """Ends what earlier agents left; how many processes that were."""
        left = [Cgroup(path) for path in self._own.glob(f"{start}*")]
        count = sum(len(one.pids()) for one in left)
        for one in left:
            one.kill()
        until = time.monotonic() + LEFT_S
        while [one for one in left if not one.remove()] and time.monotonic() < until:
            time.sleep(0.001)  # at the agent's start: nobody else waits
        return count

    def close(self) -> None:
        """What is not empty stays, for the next agent to find."""
        Cgroup(self.path).remove()


def find_own(self: Path = Path("/proc/self")) -> Path:
    """The folder of this process's cgroup of version 2. Raises NoCgroups."""
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
    """Root and mount point of each mount of version 2."""
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        if after.split(" ")[0] == "cgroup2":
            yield before.split(" ")[3], before.split(" ")[4]


def _is_whole(own: Path) -> bool:
    """Whether the kernel has cgroup.kill: seen in a new cgroup, for the root of all cgroups never has it."""
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
    """It and all below, the innermost first."""
    return [Path(name) for name, _, _ in os.walk(path, topdown=False)]


def _count(path: Path, name: str) -> int:
    """Of a file with a name and a number in each line; 0 where it is gone."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            if line.split(" ")[0] == name:
                return int(line.split(" ")[1])
    return 0


def _words(path: Path) -> set[str]:
    return set(path.read_text().split())
