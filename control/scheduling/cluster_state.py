"""The shop floor as this control process sees it: connected nodes, their workers, who is busy with what.

Nothing here is truth: all of it is told by Hello and by reports, and a new process learns it again. A slot
is free only when the agent says so; it is *reserved* while a claim for it is under way, so that two claims
never hold the same slot.

    worker: starting -> ready -> stopping -> gone        slots of a ready worker: free -> reserved -> busy
                 \\-> unhealthy (its agent backs off)                              ^--------- released
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stoker.control.needs import Needs
from stoker.control.pace import Pace
from stoker.control.placement import Room, takes
from stoker.control.types import Slot
from stoker.wire.messages import AttemptKey, Device, DeviceSample, WorkerSpec


@dataclass(slots=True)
class FloorWorker:
    """`spec` is None for a worker that a node holds and this process did not ask for. `concurrency`: how many
    jobs it takes at once; as its endpoint allows, until the worker has told its own number. `needs`: what it
    was placed by; a whole device, where this process does not know. `busy`: its jobs, and since when.
    `since`: when it came to be; `timed`: its start is being measured. `retiring`: no more jobs for it."""

    worker: str
    endpoint: str
    version: int
    node: str
    session: int
    state: str
    spec: WorkerSpec | None = None
    devices: tuple[str, ...] = ()
    concurrency: int = 1
    needs: Needs = field(default_factory=Needs)
    reason: str = ""
    log_tail: tuple[str, ...] = ()
    busy: dict[AttemptKey, float] = field(default_factory=dict)
    reserved: int = 0
    idle_since: float = 0.0
    last_used: float = 0.0
    since: float = 0.0
    timed: bool = False
    retiring: bool = False

    @property
    def free(self) -> int:
        if self.state != "ready" or self.retiring:
            return 0
        return max(self.concurrency - self.jobs, 0)

    @property
    def jobs(self) -> int:
        return len(self.busy) + self.reserved

    @property
    def idle(self) -> bool:
        return self.state == "ready" and not self.jobs


@dataclass(frozen=True, slots=True)
class FloorPod:
    """A pod's hold on devices of its node. It lasts as long as the pod is placed there, connected or not."""

    pod: str
    node: str
    devices: tuple[str, ...]
    needs: Needs = field(default_factory=Needs)


@dataclass(slots=True)
class FloorNode:
    """`draining`: its agent said that it is about to go. `drained`: an operator wants nothing new there."""

    node: str
    session: int
    devices: tuple[Device, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    draining: bool = False
    drained: bool = False

    @property
    def closed(self) -> str:
        """Why nothing new may go there, as the end of a sentence about the node; empty while it may."""
        if self.draining:
            return "is about to go"
        return "is drained" if self.drained else ""

    def held(self, holders: Iterable[FloorWorker | FloorPod]) -> dict[str, float]:
        """How much of each device these take."""
        devices = {device.uuid: device for device in self.devices}
        taken: defaultdict[str, float] = defaultdict(float)
        for holder in holders:
            for uuid in holder.devices:
                if uuid in devices:
                    taken[uuid] += takes(devices[uuid], holder.needs, self.facts)
        return taken

    def note(self, samples: Iterable[DeviceSample]) -> None:
        """The newest of each device is kept; one that a message leaves out is as it was."""
        self.samples |= {sample.uuid: sample for sample in samples}

    @property
    def ill(self) -> dict[str, str]:
        """The devices that no worker may be placed on, and why."""
        return {uuid: sample.ill for uuid, sample in self.samples.items() if sample.ill}


class Floor:
    """Lookups and slot accounting; no I/O."""

    def __init__(self) -> None:
        self.nodes: dict[str, FloorNode] = {}
        self.workers: dict[str, FloorWorker] = {}
        self.pods: dict[str, FloorPod] = {}
        self.drained: set[str] = set()  # nodes, connected or not
        self._of_endpoint: dict[str, dict[str, FloorWorker]] = {}
        self._on_node: dict[str, dict[str, FloorWorker]] = {}
        self._busy_at: dict[AttemptKey, str] = {}
        self.paces: defaultdict[str, Pace] = defaultdict(Pace)
        """By endpoint. They outlive its workers."""

    # -- nodes and workers

    def add_worker(self, worker: FloorWorker) -> None:
        self.workers[worker.worker] = worker
        self._of_endpoint.setdefault(worker.endpoint, {})[worker.worker] = worker
        self._on_node.setdefault(worker.node, {})[worker.worker] = worker

    def remove_worker(self, worker: str) -> None:
        gone = self.workers.pop(worker, None)
        if gone is not None:
            self._of_endpoint[gone.endpoint].pop(worker, None)
            self._on_node[gone.node].pop(worker, None)
            for key in gone.busy:
                self._busy_at.pop(key, None)

    def remove_node(self, node: str, session: int) -> bool:
        """Forgets the node, unless a newer session has taken it over."""
        held = self.nodes.get(node)
        if held is None or held.session != session:
            return False
        del self.nodes[node]
        for worker in [w for w in self.workers.values() if w.node == node]:
            self.remove_worker(worker.worker)
        return True

    def on_ill_device(self, worker: FloorWorker) -> bool:
        node = self.nodes.get(worker.node)
        return node is not None and not node.ill.keys().isdisjoint(worker.devices)

    def ill(self) -> dict[str, str]:
        """Of all nodes, by device."""
        return {uuid: why for node in self.nodes.values() for uuid, why in node.ill.items()}

    def of_endpoint(self, endpoint: str) -> list[FloorWorker]:
        return list(self._of_endpoint.get(endpoint, {}).values())

    # -- room

    def on_node(self, node: str) -> list[FloorWorker | FloorPod]:
        """Whatever may hold devices there."""
        pods = [pod for pod in self.pods.values() if pod.node == node]
        return [*self._on_node.get(node, {}).values(), *pods]

    def rooms(self, without: str = "") -> list[Room]:
        """Every connected node as placement sees it; `without`: as if that worker were gone."""
        pods: defaultdict[str, list[FloorPod]] = defaultdict(list)
        for pod in self.pods.values():
            pods[pod.node].append(pod)
        rooms = []
        for node in self.nodes.values():
            workers = self._on_node.get(node.node, {})
            holders = [worker for name, worker in workers.items() if name != without]
            held = node.held([*holders, *pods.get(node.node, ())])
            rooms.append(Room(node.node, node.devices, held, node.ill, node.facts, node.closed))
        return rooms

    # -- slots

    def free_slots(self, endpoint: str) -> list[Slot]:
        """Of workers of any version: an old one serves until it is replaced."""
        return [
            Slot(endpoint=endpoint, node=w.node, session=w.session, worker=w.worker, free=w.free)
            for w in self._of_endpoint.get(endpoint, {}).values()
            if w.free
        ]

    def jobs_on(self, node: str) -> int:
        """Of any endpoint, what is being claimed for it included."""
        return sum(worker.jobs for worker in self._on_node.get(node, {}).values())

    def reserve(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            self.workers[slot.worker].reserved += slot.free

    def settle(self, slots: Iterable[Slot], claimed: Iterable[tuple[str, AttemptKey]], at: float) -> None:
        """The claim is over: its reservation ends, and what it claimed makes its worker busy."""
        for slot in slots:
            worker = self.workers.get(slot.worker)
            if worker is not None and worker.session == slot.session:
                worker.reserved = max(worker.reserved - slot.free, 0)
        for name, key in claimed:
            self.occupy(name, key, at)

    def occupy(self, worker: str, key: AttemptKey, at: float) -> None:
        held = self.workers.get(worker)
        if held is not None:
            held.busy[key] = at
            self.paces[held.endpoint].begun += 1
            held.last_used = at
            self._busy_at[key] = worker

    def release(self, key: AttemptKey, at: float) -> str | None:
        """Frees the attempt's slot, once; returns the worker's endpoint if there was one to free."""
        held = self.workers.get(self._busy_at.pop(key, ""))
        if held is None:
            return None
        if key in held.busy:
            self.paces[held.endpoint].ended(at - held.busy.pop(key))
        if not held.busy:
            held.idle_since = at
        return held.endpoint
