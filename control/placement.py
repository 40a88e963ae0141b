"""Where work goes. Pure: which devices a new worker gets, and which free slot is offered a job first.

It starts nothing and claims nothing. A refusal is a sentence that the caller of a waiting job may read.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from stoker.control.types import Slot
from stoker.wire.messages import Device

CPU_WORKERS = 16
"""Handler processes that one CPU device carries: it has no memory of its own to fill."""


@dataclass(frozen=True, slots=True)
class Room:
    """One connected node: its devices, how many workers hold each of them, and why some are ill."""

    node: str
    devices: tuple[Device, ...]
    held: Mapping[str, int]
    ill: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoPlace:
    why: str


def place_worker(rooms: Sequence[Room]) -> Place | NoPlace:
    """The device for one more worker: a GPU before a CPU, the emptiest node first, then by name. Never one
    that is ill."""
    open_places = [
        (device.kind == "cpu", sum(room.held.values()), room.node, device.index, device.uuid)
        for room in rooms
        for device in room.devices
        if device.uuid not in room.ill and room.held.get(device.uuid, 0) < capacity(device)
    ]
    if open_places:
        _, _, node, _, uuid = min(open_places)
        return Place(node, (uuid,))
    if not rooms:
        return NoPlace("no capacity: no node is connected")
    return NoPlace(f"throttled: {_why_full(rooms)}")


def _why_full(rooms: Sequence[Room]) -> str:
    ill = [(uuid, why) for room in rooms for uuid, why in sorted(room.ill.items())]
    if not ill:
        return "every device is taken"
    well = any(device.uuid not in room.ill for room in rooms for device in room.devices)
    taken = "every other device is taken" if well else "no device is well"
    (uuid, why), others = ill[0], len(ill) - 1
    more = f"; and {others} more" if others else ""
    return f"{taken}; device {uuid} is out of placement: {why}{more}"


def capacity(device: Device) -> int:
    """A GPU belongs to one worker; without a GPU the CPU carries several."""
    return CPU_WORKERS if device.kind == "cpu" else 1


@dataclass(frozen=True, slots=True)
class FreeWorker:
    """A worker with room for `slot.free` more jobs. `busy`: how many it has; `last_used`: when it got one."""

    slot: Slot
    busy: int = 0
    last_used: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """All jobs that a node has, of any endpoint, and how many devices carry them."""

    jobs: int = 0
    devices: int = 1


def offer(workers: Iterable[FreeWorker], nodes: Mapping[str, NodeLoad], most: int) -> list[Slot]:
    """At most `most` free slots, in the order in which jobs shall go into them.

    Jobs spread before they share: the worker with the fewest jobs is next, each slot counted as if it were
    filled. Among equals the node with the least load per device, then the worker that was used last: a warm
    worker answers fastest; the others grow idle and may be stopped. The rest is decided by name.
    """
    jobs = {node: load.jobs for node, load in nodes.items()}
    given: Counter[str] = Counter()

    def rank(worker: FreeWorker) -> tuple[int, float, float, str]:
        name, node = worker.slot.worker, worker.slot.node
        load = jobs[node] / max(nodes[node].devices, 1)
        return worker.busy + given[name], load, -worker.last_used, name

    # Ranks only fall behind as slots are given, so one that is first and still true is the next.
    heap = [(rank(worker), worker) for worker in workers]
    heapq.heapify(heap)
    order: list[Slot] = []
    while heap and len(order) < most:
        was, worker = heap[0]
        if was == rank(worker):
            order.append(worker.slot)
            given[worker.slot.worker] += 1
            jobs[worker.slot.node] += 1
        if given[worker.slot.worker] < worker.slot.free:
            heapq.heapreplace(heap, (rank(worker), worker))
        else:
            heapq.heappop(heap)
    return [replace(slot, free=sum(1 for _ in same)) for slot, same in groupby(order)]


def choose_stops(workers: Mapping[str, float], surplus: int) -> list[str]:
    """Which `surplus` idle workers to stop, the longest idle first. Values are seconds of idleness."""
    tired = sorted(workers, key=lambda w: (-workers[w], w))
    return tired[:surplus]
