"""When a worker's process has done enough, or has grown too much, and is replaced by a fresh one.

Pure: what was counted and measured goes in, the reason to replace it comes out, or None. The shell
(`agent.worker_wear`) measures and lets the worker drain; nothing that runs on it is lost.

- Jobs count when they have ended. Those that run beside the last one still end here.
- The process's own memory is compared with what it was when it became ready.
- The device's memory is compared with what it was after the first job: an allocator keeps what that needed,
  and will use it again.
- What nobody could measure decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """None: without limit."""

    jobs: int | None = None
    growth_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a worker holds: its processes of the host's memory, and of its device's. None: unknown."""

    host: int | None = None
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Wear:
    """One process so far. `base` is what its growth counts from."""

    jobs: int = 0
    base: Footprint = Footprint()
    now: Footprint = Footprint()


def job_ended(wear: Wear) -> Wear:
    return replace(wear, jobs=wear.jobs + 1)


def measured(wear: Wear, found: Footprint) -> Wear:
    host, device = wear.base.host, wear.base.device
    if host is None:
        host = found.host
    if device is None and wear.jobs:
        device = found.device
    return replace(wear, base=Footprint(host, device), now=found)


def decide(limits: Limits, wear: Wear) -> str | None:
    """Why the process is to be replaced now."""
    if limits.jobs is not None and wear.jobs >= limits.jobs:
        return f"it is replaced after {wear.jobs} job{'s' if wear.jobs != 1 else ''} (maxJobs)"
    if limits.growth_bytes is None:
        return None
    for what, since, base, now in (
        ("memory", "it was ready", wear.base.host, wear.now.host),
        ("device's memory", "its first job", wear.base.device, wear.now.device),
    ):
        if base is not None and now is not None and now - base >= limits.growth_bytes:
            grown, allowed = (now - base) // MIB, limits.growth_bytes // MIB
            return (
                f"it is replaced: its {what} has grown by {grown} MiB since {since}, of {allowed} MiB that"
                " are allowed (maxMemoryGrowthMb)"
            )
    return None
