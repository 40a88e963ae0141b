"""Where work goes. Pure: which devices a new worker gets, and which free slot is offered a job first.

It starts nothing and claims nothing. A refusal is a sentence that the caller of a waiting job may read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stoker.control.types import Slot
from stoker.wire.messages import Device

CPU_WORKERS = 16
"""Handler processes that one CPU device carries: it has no memory of its own to fill."""


@dataclass(frozen=True, slots=True)
class Room:
    """One connected node: its devices, and how many workers hold each of them."""

    node: str
    devices: tuple[Device, ...]
    held: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoPlace:
    why: str


def place_worker(rooms: Sequence[Room]) -> Place | NoPlace:
    """The device for one more worker: a GPU before a CPU, the emptiest node first, then by name."""
    open_places = [
        (device.kind == "cpu", sum(room.held.values()), room.node, device.index, device.uuid)
        for room in rooms
        for device in room.devices
        if room.held.get(device.uuid, 0) < capacity(device)
    ]
    if open_places:
        _, _, node, _, uuid = min(open_places)
        return Place(node, (uuid,))
    if not rooms:
        return NoPlace("no capacity: no node is connected")
    return NoPlace("throttled: every device is taken")


def capacity(device: Device) -> int:
    """A GPU belongs to one worker; without a GPU the CPU carries several."""
    return CPU_WORKERS if device.kind == "cpu" else 1


def offer(slots: Iterable[Slot], last_used: Mapping[str, float]) -> list[Slot]:
    """The order in which free slots are offered: the worker that was used last comes first.

    A warm worker answers fastest; the others grow idle and may be stopped. A worker with several slots
    is offered one at a time, so that jobs spread over idle workers before they share one.
    """
    return sorted(slots, key=lambda slot: (-slot.free, -last_used.get(slot.worker, 0.0), slot.worker))


def choose_stops(workers: Mapping[str, float], surplus: int) -> list[str]:
    """Which `surplus` idle workers to stop, the longest idle first. Values are seconds of idleness."""
    tired = sorted(workers, key=lambda w: (-workers[w], w))
    return tired[:surplus]
