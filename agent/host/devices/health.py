"""Decides whether a device is healthy. Pure: readings and Xids go in, the device's health comes out.

`agent.host.devices.devices` reads the driver; `agent.host.devices.watch` acts on the result.

    healthy --SILENT_READINGS in a row unanswered--> unhealthy --a reading is answered--> healthy
       '--- a fault: a hardware Xid, lost, memory errors, the driver requests a reset --> unhealthy

- A fault lasts until the agent is restarted: what repairs it (a reset, a reboot, another card) also
  invalidates the driver's handles. Missing answers are not a fault.
- `spare`: the driver reports that running work may go on and only a reset is due. Nothing new is started
  there, and nothing is killed. With any other problem the work there is lost.
- An Xid that a program can cause by itself does not make a device unhealthy: otherwise one handler could
  disable all devices. An Xid in none of the lists is ignored, too; the driver's recovery action counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.wire.messages import DeviceSample

SILENT_READINGS = 3
"""One reading may be late on a busy host; three in a row mean that the driver hangs."""

FATAL_XIDS: Mapping[int, str] = {
    46: "the GPU stopped processing",
    48: "a memory error that could not be corrected",
    54: "its auxiliary power is not connected",
    62: "its power management unit halted",
    64: "a broken memory row could not be replaced",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    110: "a security fault",
    119: "its system processor does not answer",
    120: "its system processor failed",
    136: "an NVLink could not be trained",
    140: "memory errors that could not be recovered",
    143: "the GPU could not be initialised",
    158: "the GPU did not answer in time",
}
"""NVIDIA's catalogue recommends a reset of the GPU, a reboot or a repair for these."""

APPLICATION_XIDS = frozenset({8, 11, 13, 31, 32, 43, 45, 68, 69, 94, 109})
"""NVIDIA's catalogue recommends a restart of the program for these: an illegal address or instruction, a
kernel that never yields, the clean-up after another program was killed. 94 is a contained memory error, which
affects one program but not the device."""

_CONTAINED_XID = 94

_STOP_ACTIONS = {1: "a reset", 2: "a reboot of the host", 6: "a reset of its bus", 7: "a reboot of the host"}
_SPARE_ACTIONS = {4: "a reset"}
"""The driver's recovery action, by its number (NVML_GPU_RECOVERY_ACTION_…). 3 and 5 are about links between
GPUs, which workers with one device do not use."""


# ---- observations -------------------------------------------------------------------------------------


class Answered(Struct, frozen=True):
    """A reading was answered. What the driver does not report is None.

    uncorrected    the memory errors over the device's life
    remap_pending  a reset will replace a broken row or page
    remap_failed   no spare row was left
    action         the driver's recovery action
    """

    uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    action: int | None = None


class Missed(Struct, frozen=True):
    """A reading was not answered in time, or failed for a reason that need not be the device."""

    why: str = "no answer in time"


class Lost(Struct, frozen=True):
    """The driver reports that the device is lost, or cannot be used before a reset."""

    why: str


class Xid(Struct, frozen=True):
    number: int


Observation: TypeAlias = Answered | Missed | Lost | Xid


class DeviceReading(Struct, frozen=True):
    """A reading of a device: the measurements, and what the driver reports of its health."""

    sample: DeviceSample
    seen: Answered | Missed | Lost = field(default_factory=Answered)


# ---- the decision -------------------------------------------------------------------------------------


class DeviceProblem(Struct, frozen=True):
    """The problem of a device. `spare`: the jobs that run on the device may finish."""

    why: str
    spare: bool = False


class DeviceHealth(Struct, frozen=True):
    """The health of one device.

    missed     the readings in a row without an answer; `why` is the reason of the last one
    explained  the uncorrected errors that are accounted for
    rose       the last reading had more errors than `explained`
    contained  a contained error was reported since
    """

    fault: DeviceProblem | None = None
    missed: int = 0
    why: str = ""
    explained: int | None = None
    rose: bool = False
    contained: bool = False

    @property
    def problem(self) -> DeviceProblem | None:
        if self.fault is not None:
            return self.fault
        if self.missed >= SILENT_READINGS:
            return DeviceProblem(f"the driver does not report its state: {self.why}")
        return None


def step(health: DeviceHealth, seen: Observation) -> DeviceHealth:
    """Returns the health after an observation. The first fault is kept, unless a worse one follows."""
    match seen:
        case Missed(why):
            return replace(health, missed=health.missed + 1, why=why)
        case Lost(why):
            return _fault(health, DeviceProblem(why))
        case Xid(number) if number in FATAL_XIDS:
            return _fault(health, DeviceProblem(f"Xid {number}: {FATAL_XIDS[number]}"))
        case Xid(number):
            return replace(health, contained=health.contained or number == _CONTAINED_XID)
        case Answered():
            found = _problem(seen)
            after = _counted(replace(health, missed=0), seen.uncorrected)
            return after if found is None else _fault(after, found)


def _problem(seen: Answered) -> DeviceProblem | None:
    if seen.remap_failed:
        return DeviceProblem("a broken memory row could not be replaced")
    if seen.action in _STOP_ACTIONS:
        return DeviceProblem(f"the driver asks for {_STOP_ACTIONS[seen.action]}")
    if seen.remap_pending:
        return DeviceProblem("a reset is due, to put broken memory away", spare=True)
    if seen.action in _SPARE_ACTIONS:
        return DeviceProblem(f"the driver asks for {_SPARE_ACTIONS[seen.action]}", spare=True)
    return None


def _counted(health: DeviceHealth, uncorrected: int | None) -> DeviceHealth:
    """Counts uncorrected memory errors. A rise is a fault, unless a contained error explains it before the
    next reading: the two arrive separately."""
    if uncorrected is None:
        return health
    risen = health.explained is not None and uncorrected > health.explained
    if not risen or health.contained:
        return replace(health, explained=uncorrected, rose=False, contained=False)
    if not health.rose:
        return replace(health, rose=True)
    more = uncorrected - (health.explained or 0)
    return _fault(health, DeviceProblem(f"{more} memory errors that could not be corrected"))


def _fault(health: DeviceHealth, found: DeviceProblem) -> DeviceHealth:
    worse = health.fault is None or (health.fault.spare and not found.spare)
    return replace(health, fault=found) if worse else health
