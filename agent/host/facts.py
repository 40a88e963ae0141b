"""The facts that an agent reports about its host, apart from the devices: placement compares needs with them.

    vcpus           processors that this process may use: those it is pinned to, or its cgroup's quota
    memory_bytes    the host's memory, or its cgroup's limit
    data_center     as the operator set it
    label.<name>    as the operator set it

What cannot be read is left out. The driver's own facts are `agent.host.devices.devices`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel numbers the first namespaces itself (PROC_PID_INIT_INO), the same on every host."""


def host_facts(
    data_center: str | None,
    labels: Mapping[str, str],
    memory_bytes: int | None,
    cgroup: Path = CGROUP,
) -> dict[str, str]:
    """Returns the facts of this host, by name. `memory_bytes` is the host's."""
    known = [size for size in (memory_bytes, _limit(cgroup)) if size is not None]
    facts = {"vcpus": f"{vcpus(cgroup):g}"}
    if known:
        facts["memory_bytes"] = str(min(known))
    if data_center:
        facts["data_center"] = data_center
    return facts | {f"label.{name}": value for name, value in labels.items()}


def vcpus(cgroup: Path = CGROUP) -> float:
    pinned = float(len(os.sched_getaffinity(0)))
    parts = _fields(cgroup / "cpu.max")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts) or int(parts[1]) == 0:
        return pinned
    return min(pinned, round(int(parts[0]) / int(parts[1]), 2))


def sees_host_processes(proc: Path = PROC) -> bool:
    """Returns whether the process ids that a driver reports are those of this namespace."""
    try:
        return os.readlink(proc / "self" / "ns" / "pid") == INITIAL_PID_NAMESPACE
    except OSError:
        return False


def _limit(cgroup: Path) -> int | None:
    parts = _fields(cgroup / "memory.max")
    return int(parts[0]) if parts and parts[0].isdecimal() else None


def _fields(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return []
