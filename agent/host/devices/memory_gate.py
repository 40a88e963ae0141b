"""Decides whether a device's memory is free again before the next work uses it. Pure.

`agent.host.devices.watch` measures the memory and acts on the result.

    Gate (one for each device)
    unknown --first measure--> open --a process left it--> returning --back at the baseline--> open
                                ^                              '--RETURN_S passed--> withheld
                                '---------------- back at the baseline ------------------'

- The baseline is the memory in use while no process of ours is on the device, as last measured.
- A worker's level is the memory in use on its device once it is ready. What its completed jobs leave (an
  allocator's cache, libraries that are loaded late) raises the level, until the first job that is stopped.
- Memory is checked after every exit of a process, before the next is started there, and after a job that was
  cancelled or timed out while its worker lives on. It is not checked after a job that ended by itself.

BASELINE_TOLERANCE is less than a CUDA context takes (300 MiB and more): it detects a process that still holds
the device, but not the driver's own book-keeping. LEVEL_TOLERANCE allows for what a first job loads for good
(kernels, cuBLAS and cuDNN workspaces); a leaked batch of activations is larger. RETURN_S: the driver frees
memory while the process exits, mostly before it is reaped; many gigabytes of pinned host memory take it
seconds.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

MIB, GIB = 1 << 20, 1 << 30

BASELINE_TOLERANCE = 256 * MIB
LEVEL_TOLERANCE = GIB
RETURN_S = 10.0


class MemoryGate(Struct, frozen=True):
    """The gate of one device.

    baseline  None if the driver does not report it: then nothing is checked
    since     when the last process left the device; None while the gate is open
    used_bytes  the last measurement since then
    late      RETURN_S has passed
    """

    known: bool = False
    baseline: int | None = None
    since: float | None = None
    used_bytes: int | None = None
    late: bool = False

    @property
    def open(self) -> bool:
        return self.known and self.since is None

    @property
    def problem(self) -> str:
        """The reason why the device is withheld; "" if it is not."""
        if not self.late:
            return ""
        if self.used_bytes is None or self.baseline is None:
            return "its memory in use is not known since its worker ended"
        return f"{(self.used_bytes - self.baseline) / GIB:.1f} GiB still in use after its worker ended"


def left(gate: MemoryGate, at: float) -> MemoryGate:
    """Returns the gate after the last process of ours on this device was reaped."""
    if gate.known and gate.baseline is None:
        return gate
    return replace(gate, since=at, used_bytes=None, late=False)


def measured(gate: MemoryGate, at: float, used_bytes: int | None) -> MemoryGate:
    """Returns the gate after a measurement while no process of ours is on the device. `used_bytes` is None if
    the driver does not report it."""
    if gate.since is None or gate.baseline is None:
        return MemoryGate(known=True, baseline=gate.baseline if used_bytes is None else used_bytes)
    if used_bytes is not None and used_bytes <= gate.baseline + BASELINE_TOLERANCE:
        return MemoryGate(known=True, baseline=gate.baseline)
    return replace(gate, used_bytes=used_bytes, late=gate.late or at - gate.since >= RETURN_S)


class Level(Struct, frozen=True):
    """The level of one worker. `stopped`: a job of it was stopped, so later measurements do not raise the
    level."""

    used_bytes: int | None = None
    stopped: bool = False


def settled(level: Level, used_bytes: int | None) -> Level:
    """Returns the level after a measurement while the worker is ready and idle."""
    if level.stopped or used_bytes is None:
        return level
    return replace(level, used_bytes=used_bytes)


def above(level: Level, used_bytes: int | None) -> str:
    """Describes what a stopped job has left; returns "" if the worker may take the next job."""
    if level.used_bytes is None or used_bytes is None or used_bytes <= level.used_bytes + LEVEL_TOLERANCE:
        return ""
    return f"a stopped job left {(used_bytes - level.used_bytes) / GIB:.1f} GiB of device memory in use"
