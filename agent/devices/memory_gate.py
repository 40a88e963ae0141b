"""Whether a device's memory is back where it was, before the next work is given to it. Pure.

It measures nothing: `agent.device_watch` asks the driver, off the loop, and performs what is decided here.

    Gate (one for each device)
    unknown --first measure--> open --a process left it--> returning --back at the baseline--> open
                                ^                              '--RETURN_S passed--> withheld (ill)
                                '---------------- back at the baseline ------------------'

- The baseline is what is in use while no process of ours is on the device, as it was last seen.
- A worker's level is what is in use on its device once it is ready. What its completed jobs leave behind
  (an allocator's cache, libraries that are loaded late) raises it, until the first job that is stopped.
- Checked: after every exit of a process, before the next is started there; after a job that was cancelled or
  timed out and whose worker lives on. Not checked: after a job that ended by itself, which costs nothing so.

The numbers. BASELINE_TOLERANCE is less than any CUDA context takes (300 MiB and more): a process that still
holds the device is noticed, the driver's own book-keeping is not. LEVEL_TOLERANCE leaves room for what a
first job loads for good (kernels, cuBLAS and cuDNN workspaces); a leaked batch of activations is larger.
RETURN_S: the driver gives memory back while the process exits, mostly before it is reaped; many gigabytes of
pinned host memory take it some seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MIB, GIB = 1 << 20, 1 << 30

BASELINE_TOLERANCE = 256 * MIB
LEVEL_TOLERANCE = GIB
RETURN_S = 10.0


@dataclass(frozen=True, slots=True)
class Gate:
    """`baseline` is None where the driver does not tell: nothing is checked there. `since`: when a process
    left the device; None while it is open. `used`: the last measure since. `late`: RETURN_S has passed."""

    known: bool = False
    baseline: int | None = None
    since: float | None = None
    used: int | None = None
    late: bool = False

    @property
    def open(self) -> bool:
        return self.known and self.since is None

    @property
    def ill(self) -> str:
        """Why the device is withheld; empty while it is not."""
        if not self.late:
            return ""
        if self.used is None or self.baseline is None:
            return "its memory in use is not known since its worker ended"
        return f"{(self.used - self.baseline) / GIB:.1f} GiB still in use after its worker ended"


def left(gate: Gate, at: float) -> Gate:
    """The last process of ours on this device was reaped."""
    if gate.known and gate.baseline is None:
        return gate
    return replace(gate, since=at, used=None, late=False)


def measured(gate: Gate, at: float, used: int | None) -> Gate:
    """While no process of ours is on the device. `used` is None when the driver does not say."""
    if gate.since is None or gate.baseline is None:
        return Gate(known=True, baseline=gate.baseline if used is None else used)
    if used is not None and used <= gate.baseline + BASELINE_TOLERANCE:
        return Gate(known=True, baseline=gate.baseline)
    return replace(gate, used=used, late=gate.late or at - gate.since >= RETURN_S)


@dataclass(frozen=True, slots=True)
class Level:
    """Of one worker. `stopped`: a job of it was stopped; what is in use since then says nothing new."""

    used: int | None = None
    stopped: bool = False


def settled(level: Level, used: int | None) -> Level:
    """The worker is ready and idle."""
    if level.stopped or used is None:
        return level
    return replace(level, used=used)


def above(level: Level, used: int | None) -> str:
    """In words, what a stopped job has left behind; empty when the worker may take the next."""
    if level.used is None or used is None or used <= level.used + LEVEL_TOLERANCE:
        return ""
    return f"a stopped job left {(used - level.used) / GIB:.1f} GiB of device memory in use"
