"""Counts the out-of-memory kills of a container, from the container's cgroup.

Engines do not report them reliably: podman with runc always reports none, and dockerd may report the end of a
container before the kill. The counter's file is found while the container runs and read after it has ended,
before its cgroup is removed. If it cannot be read, the count is unknown.
"""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def counter(pid: int, proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> Path | None:
    """Returns the file that counts the kills in the cgroup of `pid`, or None if it cannot be found."""
    try:
        lines = (proc / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = path.lstrip("/")
        if controllers == "memory":
            return cgroups / "memory" / below / "memory.oom_control"
        if not controllers and (cgroups / "cgroup.controllers").exists():
            return cgroups / below / "memory.events"
    return None


def kills(counting: Path | None) -> int | None:
    """Returns the number of kills, or None if it is unknown."""
    if counting is None:
        return None
    try:
        counts = [line.split() for line in counting.read_text().splitlines()]
    except OSError:
        return None
    return next((int(value) for name, value in counts if name == "oom_kill"), None)
