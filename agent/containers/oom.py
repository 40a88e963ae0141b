"""How often the kernel has killed a process of a container for its memory, from the container's own cgroup.

For an engine that does not tell it: podman with runc says no every time, dockerd where the word of it comes
after the word of the end. Found while the container runs, read when it has ended and its cgroup is not yet
swept away. Where it cannot be read, nothing is claimed.
"""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def counter(pid: int, proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> Path | None:
    """The file that counts for the cgroup of `pid`; None where there is none to be seen."""
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
    """None: unknown."""
    if counting is None:
        return None
    try:
        words = [line.split() for line in counting.read_text().splitlines()]
    except OSError:
        return None
    return next((int(value) for name, value in words if name == "oom_kill"), None)
