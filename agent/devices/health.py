"""Whether a device may be worked with. Pure: what was seen of it goes in, its health comes back.

It looks at nothing and stops nothing: `agent.devices` asks the driver, `agent.device_watch` acts.

    well --SILENT_LOOKS looks in a row unanswered--> ill --a look is answered--> well
      '---- a fault: an Xid of the device's own, lost, memory errors, the driver wants it reset ----> ill

- A fault stays until the agent is started again: what mends it (a reset, a reboot, another card) takes the
  driver's handles away, too. Silence may pass.
- `spare`: the driver says that what runs may go on, and only a reset is due. Nothing is started there any
  more, and nothing is killed. With any other illness what runs there is of no use.
- An Xid that a program can cause by itself takes no device out: else one handler could take them all out.
  An Xid that is in neither list does not either; where the driver tells what it wants done, that counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from stoker.wire.messages import DeviceSample

SILENT_LOOKS = 3
"""One look may be late on a host that is starved of processors; three in a row are a driver that hangs."""

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
"""The driver's catalogue answers these with a reset of the GPU, a reboot or a repair."""

APPLICATION_XIDS = frozenset({8, 11, 13, 31, 32, 43, 45, 68, 69, 94, 109})
"""The catalogue answers these with a new start of the program: an illegal address or instruction, a kernel
that never yields, the clean-up after another program's kill. 94 is a memory error that hit one program and
was contained: the program is lost, the device is not."""

_CONTAINED_XID = 94

_STOP_ACTIONS = {1: "a reset", 2: "a reboot of the host", 6: "a reset of its bus", 7: "a reboot of the host"}
_SPARE_ACTIONS = {4: "a reset"}
"""What the driver wants done, by its number (NVML_GPU_RECOVERY_ACTION_…). 3 and 5 are about links between
GPUs, which no worker with one device uses."""


# ---- what is seen -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """A look was answered; what the driver does not tell is None.

    `uncorrected` counts memory errors over the device's life. `remap_pending`: a reset puts a broken row or
    page away. `remap_failed`: there was none left to replace it. `action`: what the driver wants done.
    """

    uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    action: int | None = None


@dataclass(frozen=True, slots=True)
class Missed:
    """A look was not answered in time, or with an error that need not be the device's."""

    why: str = "no answer in time"


@dataclass(frozen=True, slots=True)
class Lost:
    """The driver says that the device is gone, or cannot be used before a reset."""

    why: str


@dataclass(frozen=True, slots=True)
class Xid:
    number: int


Seen: TypeAlias = Answered | Missed | Lost | Xid


@dataclass(frozen=True, slots=True)
class Look:
    """One look at one device: what it measured, and what it says of the device's health."""

    sample: DeviceSample
    seen: Answered | Missed | Lost = field(default_factory=Answered)


# ---- the decision -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Illness:
    """`spare`: what runs on the device may end by itself."""

    why: str
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """`missed`: looks in a row without an answer, and `why` the last had none. `explained`: uncorrected
    errors that are accounted for. `rose`: the last look saw more. `contained`: such a one was told since."""

    fault: Illness | None = None
    missed: int = 0
    why: str = ""
    explained: int | None = None
    rose: bool = False
    contained: bool = False

    @property
    def ill(self) -> Illness | None:
        if self.fault is not None:
            return self.fault
        if self.missed >= SILENT_LOOKS:
            return Illness(f"the driver does not tell how it is: {self.why}")
        return None


def step(health: Health, seen: Seen) -> Health:
    """What `seen` makes of the device's health. The first fault stays, unless a worse one follows."""
    match seen:
        case Missed(why):
            return replace(health, missed=health.missed + 1, why=why)
        case Lost(why):
            return _fault(health, Illness(why))
        case Xid(number) if number in FATAL_XIDS:
            return _fault(health, Illness(f"Xid {number}: {FATAL_XIDS[number]}"))
        case Xid(number):
            return replace(health, contained=health.contained or number == _CONTAINED_XID)
        case Answered():
            found = _illness(seen)
            after = _counted(replace(health, missed=0), seen.uncorrected)
            return after if found is None else _fault(after, found)


def _illness(seen: Answered) -> Illness | None:
    if seen.remap_failed:
        return Illness("a broken memory row could not be replaced")
    if seen.action in _STOP_ACTIONS:
        return Illness(f"the driver asks for {_STOP_ACTIONS[seen.action]}")
    if seen.remap_pending:
        return Illness("a reset is due, to put broken memory away", spare=True)
    if seen.action in _SPARE_ACTIONS:
        return Illness(f"the driver asks for {_SPARE_ACTIONS[seen.action]}", spare=True)
    return None


def _counted(health: Health, uncorrected: int | None) -> Health:
    """A rise is a fault, unless a contained error explains it by the next look: the two come by two ways."""
    if uncorrected is None:
        return health
    risen = health.explained is not None and uncorrected > health.explained
    if not risen or health.contained:
        return replace(health, explained=uncorrected, rose=False, contained=False)
    if not health.rose:
        return replace(health, rose=True)
    more = uncorrected - (health.explained or 0)
    return _fault(health, Illness(f"{more} memory errors that could not be corrected"))


def _fault(health: Health, found: Illness) -> Health:
    worse = health.fault is None or (health.fault.spare and not found.spare)
    return replace(health, fault=found) if worse else health
