"""Values in messages of both directions: versions, phases, devices and references."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

PROTOCOL = 1
"""This side's protocol version. Control accepts it and the one before."""

DeviceKind = Literal["gpu", "mig", "cpu"]

WorkerPhase = Literal["starting", "ready", "stopping", "unhealthy", "gone"]

AttemptPhase = Literal["waiting", "running", "uploading", "reporting"]

PodPhase = Literal["creating", "running", "exited", "failed", "gone"]

End = Literal["completed", "failed", "timed_out", "cancelled", "lost", "yielded"]
"""How an attempt ended. `lost` is an infrastructure failure: control may retry it. `yielded`: it saved and
gave up its place, as it was asked to."""


def accepts_protocol(theirs: int, ours: int = PROTOCOL) -> bool:
    """Returns whether a side at version `ours` can talk to a side at `theirs`: the same version or the one
    before."""
    return theirs >= 1 and ours - 1 <= theirs <= ours


class Device(Struct, frozen=True):
    """A GPU, a part of one, or the processor. `unified_memory`: a GPU without memory of its own, which uses
    that of the host; `memory_total` is the host's then."""

    uuid: str
    kind: str
    name: str
    index: int = 0
    parent: str | None = None
    memory_total: int | None = None
    driver: str | None = None
    unified_memory: bool = False


class DeviceSample(Struct, frozen=True):
    """A sample of a device, in bytes, percent, degrees Celsius and watts. None: the driver does not report
    it.

    `ill` is the reason why no worker may be placed on the device; empty for a healthy one.
    """

    uuid: str
    memory_used: int | None = None
    utilisation: int | None = None
    temperature: int | None = None
    power: float | None = None
    ecc_uncorrected: int | None = None
    ill: str = ""


class AttemptKey(Struct, frozen=True):
    job: str
    attempt: int


class Ref(Struct, frozen=True):
    """The object that holds a payload over 1 MB, or a save over 48 KiB."""

    key: str
    size: int
    sha256: str
