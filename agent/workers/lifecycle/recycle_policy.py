"""The replacement of a worker's process that has done enough, or has grown too much, by a fresh one.

Pure: what was counted and measured goes in, the reason to replace it comes out, or None. The shell
(`agent.workers.lifecycle.recycling`) measures and lets the worker drain; nothing that runs on it is lost.

- Jobs count when they have ended. Those that run at the same time as the last one still end here.
- The process's own memory is compared with what it was when it became ready.
- The device's memory is compared with what it was after the first job: an allocator keeps what that needed,
  and will use it again.
- What could not be measured decides nothing.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from stoker.agent.host.process_tree.footprint import UNKNOWN, Footprint

MIB = 1 << 20


class RecycleLimits(Struct, frozen=True):
    """None: without limit."""

    jobs: int | None = None
    growth_bytes: int | None = None


class ProcessRecord(Struct, frozen=True):
    """The record of a process so far. `base` is what its growth counts from."""

    jobs: int = 0
    base: Footprint = UNKNOWN
    now: Footprint = UNKNOWN


def job_ended(record: ProcessRecord) -> ProcessRecord:
    return replace(record, jobs=record.jobs + 1)


def measured(record: ProcessRecord, found: Footprint) -> ProcessRecord:
    host, device = record.base.host, record.base.device
    if host is None:
        host = found.host
    if device is None and record.jobs:
        device = found.device
    return replace(record, base=Footprint(host, device), now=found)


def decide(limits: RecycleLimits, record: ProcessRecord) -> str | None:
    """Returns why the process is to be replaced now; None if it is not."""
    if limits.jobs is not None and record.jobs >= limits.jobs:
        return f"it is replaced after {record.jobs} job{'s' if record.jobs != 1 else ''} (maxJobs)"
    if limits.growth_bytes is None:
        return None
    for what, since, base, now in (
        ("memory", "it was ready", record.base.host, record.now.host),
        ("device's memory", "its first job", record.base.device, record.now.device),
    ):
        if base is not None and now is not None and now - base >= limits.growth_bytes:
            grown, allowed = (now - base) // MIB, limits.growth_bytes // MIB
            return (
                f"it is replaced: its {what} has grown by {grown} MiB since {since}, of {allowed} MiB that"
                " are allowed (maxMemoryGrowthMb)"
            )
    return None
