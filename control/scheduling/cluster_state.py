"""The cluster as this control process sees it: connected nodes, their workers, and the jobs of each worker.

Nothing here is stored: all of it comes from Hello and reports, and a new process receives it again. A slot
is free only when the agent reports it; it is *reserved* while a claim for it is under way, so that two claims
never hold the same slot. Where an endpoint's jobs are short, some lie *ahead* of a busy worker
(`control.rules.queueing.ahead`): they have no slot yet.

    worker: starting -> ready -> stopping -> gone        slots of a ready worker: free -> reserved -> busy
                 \\-> unhealthy (its agent backs off)                              ^--------- released
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct, field

from stoker.control.rules.nodes import disk
from stoker.control.rules.nodes.ways import Reach
from stoker.control.rules.placement import NodeRoom, charges
from stoker.control.rules.queueing import ahead
from stoker.control.rules.queueing.ahead import PATIENCE_S, takes_ahead
from stoker.control.rules.queueing.expected import Pace
from stoker.control.rules.types import Endpoint, Slot
from stoker.control.scheduling import spots
from stoker.control.scheduling.placed import PlacedPod, PlacedWorker, stale
from stoker.wire.messages import AttemptKey, Device, DeviceSample

NEWEST = 0.2
"""The weight of the newest in an average: after ten others, a tenth of what was first is left."""
LAST = -1.0
"""In place of the time when a worker was used: it comes last among equals, until it is used again."""


class Throughput(Struct):
    """The speed of an endpoint, as far as this process has seen. `begun`: jobs that were given to workers.
    `job_s`: how long a job holds its slot; `run_s`: how long its handler runs. Seconds are averages, and None
    until there was a job; of those that held a slot, `ended` have ended."""

    begun: int = 0
    ended: int = 0
    start_s: float | None = None
    job_s: float | None = None
    run_s: float | None = None


def averaged(before: float | None, seconds: float) -> float:
    """Returns an average in which what came last weighs more."""
    newest = max(seconds, 0.0)
    return newest if before is None else before + NEWEST * (newest - before)


class NodeState(Struct):
    """A connected node. `draining`: its agent announced that it is about to stop. `drained`: an operator
    allows nothing new there. `reach`: how its http workers are reached. `jobs_ahead`, `saves` and
    `yields` are those of its Hello."""

    node: str
    session: int
    devices: tuple[Device, ...]
    facts: Mapping[str, str] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    draining: bool = False
    drained: bool = False
    reach: Reach = field(default_factory=Reach)
    jobs_ahead: int = 0
    saves: bool = False
    yields: bool = False

    @property
    def closed(self) -> str:
        """The reason why nothing new may go there, as the end of a sentence about the node, or ""."""
        if self.draining:
            return "is about to go"
        return "is drained" if self.drained else disk.full(self.facts)

    def shares_taken(self, holders: Iterable[PlacedWorker | PlacedPod]) -> dict[str, float]:
        """Returns how much of each device, and of the host's memory, these take."""
        taken: Counter[str] = Counter()
        for holder in holders:
            taken.update(charges(self.devices, self.facts, holder.needs, holder.devices))
        return dict(taken)

    def note(self, samples: Iterable[DeviceSample]) -> None:
        """Stores the newest sample of each device; a device that a message leaves out is as it was."""
        self.samples |= {sample.uuid: sample for sample in samples}

    @property
    def unhealthy(self) -> dict[str, str]:
        """The devices that no worker may be placed on, and why."""
        return {uuid: sample.ill for uuid, sample in self.samples.items() if sample.ill}


class ClusterState:
    """Lookups and slot accounting; no I/O."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.workers: dict[str, PlacedWorker] = {}
        self.pods: dict[str, PlacedPod] = {}
        self.drained: set[str] = set()  # nodes, connected or not
        self._of_endpoint: dict[str, dict[str, PlacedWorker]] = {}
        self._on_node: dict[str, dict[str, PlacedWorker]] = {}
        self._busy_at: dict[AttemptKey, str] = {}
        self._requests: Counter[str] = Counter()  # by worker; they outlive its node's session
        self.throughputs: defaultdict[str, Throughput] = defaultdict(Throughput)
        """By endpoint. They outlive its workers."""
        self.saving: dict[str, int] = {}
        """The endpoints of which a save was seen, and the newest of their versions that saved."""

    # -- nodes and workers

    def add_worker(self, worker: PlacedWorker) -> None:
        worker.requests = self._requests.get(worker.worker, 0)
        self.workers[worker.worker] = worker
        self._of_endpoint.setdefault(worker.endpoint, {})[worker.worker] = worker
        self._on_node.setdefault(worker.node, {})[worker.worker] = worker

    def remove_worker(self, worker: str) -> None:
        gone = self.workers.pop(worker, None)
        if gone is not None:
            self._of_endpoint[gone.endpoint].pop(worker, None)
            self._on_node[gone.node].pop(worker, None)
            for key in (*gone.busy, *gone.ahead):
                self._busy_at.pop(key, None)

    def remove_node(self, node: str, session: int) -> bool:
        """Forgets the node, unless a newer session has taken it over."""
        state = self.nodes.get(node)
        if state is None or state.session != session:
            return False
        del self.nodes[node]
        for worker in [w for w in self.workers.values() if w.node == node]:
            self.remove_worker(worker.worker)
        return True

    def on_unhealthy_device(self, worker: PlacedWorker) -> bool:
        node = self.nodes.get(worker.node)
        return node is not None and not node.unhealthy.keys().isdisjoint(worker.devices)

    def unhealthy(self) -> dict[str, str]:
        """Returns the unhealthy devices of all nodes, each with the reason."""
        return {uuid: why for node in self.nodes.values() for uuid, why in node.unhealthy.items()}

    def of_endpoint(self, endpoint: str) -> list[PlacedWorker]:
        return list(self._of_endpoint.get(endpoint, {}).values())

    def ready_workers(self, endpoint: str) -> int:
        """Returns how many workers of the endpoint of this id are ready, busy or not."""
        return sum(worker.state == "ready" for worker in self._of_endpoint.get(endpoint, {}).values())

    # -- room

    def retire_old(self, endpoint: Endpoint) -> None:
        """Gives no more jobs to workers of the endpoint's old versions."""
        for worker in self.of_endpoint(endpoint.id):
            worker.retiring |= stale(worker, endpoint)

    def on_node(self, node: str) -> list[PlacedWorker | PlacedPod]:
        """Returns all workers and pods that may hold devices on the node."""
        pods = [pod for pod in self.pods.values() if pod.node == node]
        return [*self._on_node.get(node, {}).values(), *pods]

    def rooms(self, without: str = "") -> list[NodeRoom]:
        """Returns every connected node as placement sees it; `without`: as if that worker had ended."""
        pods: defaultdict[str, list[PlacedPod]] = defaultdict(list)
        for pod in self.pods.values():
            pods[pod.node].append(pod)
        rooms = []
        for node in self.nodes.values():
            workers = self._on_node.get(node.node, {})
            holders = [worker for name, worker in workers.items() if name != without]
            taken = node.shares_taken([*holders, *pods.get(node.node, ())])
            rooms.append(NodeRoom(node.node, node.devices, taken, node.unhealthy, node.facts, node.closed))
        return rooms

    # -- slots

    def reserve(self, endpoint: str, most: int, now: float) -> list[Slot]:
        """Reserves free slots of the endpoint's workers and room ahead of them until `settle`. Workers of any
        version have some: an old one serves until it is replaced."""
        run_s = self.throughputs[endpoint].run_s
        workers = self._of_endpoint.get(endpoint, {})
        rooms: dict[str, int] = {}
        for name, worker in workers.items():
            room = worker.free
            if room < most and (depth := ahead.depth(run_s)) and worker.node in self.nodes:
                room = worker.room(min(depth, self.nodes[worker.node].jobs_ahead), now)
            if room:
                rooms[name] = room
        free = [workers[name] for name in rooms]
        offered = [(worker, min(rooms[worker.worker], most)) for worker in free]
        if len(free) > 1:
            loads = {node: self.load(node) for node in {one.node for one in free}}
            last = self._spots() if spots.why_avoided(run_s, 0.0, saves=endpoint in self.saving) else ()
            offered = offer(free, loads, rooms, most, ahead.packed(run_s), last)
        slots = []
        for worker, count in offered:
            worker.reserved += count
            node = self.nodes.get(worker.node)
            saves = node is None or node.saves
            slots.append(Slot(endpoint, worker.node, worker.session, worker.worker, count, saves))
        return slots

    def pace(self, endpoint: str, now: float) -> Pace:
        """Returns the pace of the endpoint's ready workers."""
        throughput = self.throughputs[endpoint]
        ready = [one for one in self.of_endpoint(endpoint) if one.state == "ready" and not one.retiring]
        return Pace(
            slots=sum(one.concurrency for one in ready),
            running_for=tuple(now - at for one in ready for at in one.busy.values()),
            job_s=throughput.job_s,
            run_s=throughput.run_s,
            ended=throughput.ended,
        )

    def _spots(self) -> list[str]:
        return [node.node for node in self.nodes.values() if spots.is_spot(node.facts)]

    def note_save(self, key: AttemptKey) -> None:
        """Notes that the handler of the attempt's worker saves."""
        if (worker_state := self.workers.get(self._busy_at.get(key, ""))) is not None:
            known = self.saving.get(worker_state.endpoint, 0)
            self.saving[worker_state.endpoint] = max(known, worker_state.version)

    def load(self, node: str) -> NodeLoad:
        """Returns the load of a node. What is being claimed for the node is counted, too."""
        jobs = sum(worker.jobs for worker in self._on_node.get(node, {}).values())
        devices = self.nodes[node].devices if node in self.nodes else ()
        return NodeLoad(jobs, sum(device.kind != "cpu" for device in devices) or 1)

    def settle(self, slots: Iterable[Slot], taken: Mapping[AttemptKey, str], at: float) -> None:
        """Ends the reservation of these slots, and makes the workers busy that these attempts are on. Those
        for which a worker has no slot lie ahead of it."""
        for slot in slots:
            worker = self.workers.get(slot.worker)
            if worker is not None and worker.session == slot.session:
                worker.reserved = max(worker.reserved - slot.free, 0)
        for key, name in taken.items():
            if (worker_state := self.workers.get(name)) is not None:
                full = len(worker_state.busy) >= worker_state.concurrency and takes_ahead(worker_state.spec)
                (worker_state.ahead if full else worker_state.busy)[key] = worker_state.last_used = at
                self.throughputs[worker_state.endpoint].begun += 1
                self._busy_at[key] = name

    def release(self, key: AttemptKey, at: float, ran_s: float | None = None) -> str | None:
        """Frees the attempt's slot or place, once; returns the worker's endpoint if there was one to free.
        The first that lay ahead has the slot then. `ran_s`: how long its handler ran, to its end."""
        worker_state = self.workers.get(self._busy_at.pop(key, ""))
        if worker_state is None:
            return None
        worker_state.ahead.pop(key, None)
        worker_state.lay_ahead.pop(key, None)
        throughput = self.throughputs[worker_state.endpoint]
        if ran_s is not None:
            throughput.run_s = averaged(throughput.run_s, ran_s)
        if key in worker_state.busy:
            throughput.job_s = averaged(throughput.job_s, at - worker_state.busy.pop(key))
            throughput.ended += 1
        if worker_state.ahead and len(worker_state.busy) < worker_state.concurrency:
            following = next(iter(worker_state.ahead))
            worker_state.busy[following] = at
            worker_state.lay_ahead[following] = worker_state.ahead.pop(following)
        if not worker_state.busy:
            worker_state.idle_since = at
        return worker_state.endpoint

    def node_of(self, key: AttemptKey) -> NodeState | None:
        """Returns the connected node that has the attempt."""
        worker_state = self.workers.get(self._busy_at.get(key, ""))
        return None if worker_state is None else self.nodes.get(worker_state.node)

    def attempts_on(self, node: str) -> list[AttemptKey]:
        """Returns the attempts of the node's workers, those that lie ahead of one too."""
        return [key for one in self._on_node.get(node, {}).values() for key in (*one.busy, *one.ahead)]

    # -- requests

    def begin_request(self, worker: str, at: float) -> None:
        self._requests[worker] += 1
        if (worker_state := self.workers.get(worker)) is not None:
            worker_state.requests += 1
            worker_state.last_used = at
            self.throughputs[worker_state.endpoint].begun += 1

    def end_request(self, worker: str, at: float) -> None:
        self._requests[worker] -= 1
        if not self._requests[worker]:
            del self._requests[worker]
        if (worker_state := self.workers.get(worker)) is not None:
            worker_state.requests = self._requests.get(worker, 0)
            if not worker_state.jobs:
                worker_state.idle_since = at

    # -- jobs ahead

    def lies_ahead(self, key: AttemptKey) -> bool:
        """Returns whether the job's worker has not come to it, as far as its node has reported."""
        worker_state = self.workers.get(self._busy_at.get(key, ""))
        return worker_state is not None and key in worker_state.ahead

    def waiting_ahead(self, endpoint: str) -> dict[AttemptKey, float]:
        """Returns the endpoint's jobs that lie ahead of its workers, and since when."""
        workers = self._of_endpoint.get(endpoint, {}).values()
        return {key: at for worker in workers for key, at in worker.ahead.items()}

    def all_ahead(self) -> frozenset[AttemptKey]:
        """Returns the jobs that lie ahead of any worker."""
        return frozenset(key for worker in self.workers.values() for key in worker.ahead)

    def handed_back(self, key: AttemptKey) -> None:
        """Notes that a job's node gave it back. Where it lay ahead, the one before took long, and others may.
        Else its worker is `LAST`, as the node may refuse the next. To be called before `release`."""
        if (worker := self.workers.get(self._busy_at.get(key, ""))) is None:
            return
        if key in worker.ahead:
            throughput = self.throughputs[worker.endpoint]
            throughput.run_s = max(throughput.run_s or 0.0, PATIENCE_S)
        else:
            worker.last_used = LAST


class NodeLoad(Struct, frozen=True):
    """All jobs that a node has, of any endpoint, and how many devices carry them: its GPUs, or its CPU."""

    jobs: int = 0
    devices: int = 1


def offer(
    workers: Sequence[PlacedWorker],
    loads: Mapping[str, NodeLoad],
    rooms: Mapping[str, int],
    most: int,
    pack: int = 0,
    last: Collection[str] = (),
) -> list[tuple[PlacedWorker, int]]:
    """Returns at most `most` of these workers' `rooms`, in the order in which jobs shall go into them.

    Jobs spread before they share: the worker with the fewest jobs is next, each slot counted as if it were
    filled. But one that has jobs, at most `pack`, comes before one that has none, the fullest first: the
    shortest jobs wake few workers. Among equals the node with the least load per device, then the worker
    that was used last: a warm worker answers fastest; the others grow idle and may be stopped. The rest is
    decided by name. Workers on the nodes `last` come after all others.
    """
    jobs = {node: load.jobs for node, load in loads.items()}
    assigned: dict[str, int] = defaultdict(int)

    def rank(worker: PlacedWorker) -> tuple[bool, int, float, float, str]:
        load = jobs[worker.node] / max(loads[worker.node].devices, 1)
        has = worker.jobs + assigned[worker.worker]
        first = -has if has <= pack else has
        return worker.node in last, first, load, -worker.last_used, worker.worker

    if most == 1:  # as for every submission
        first = min(workers, key=rank, default=None)
        return [] if first is None else [(first, 1)]
    # The ranks of others only fall behind as one is given slots, so one that is first and still true is next.
    heap = [(rank(worker), worker) for worker in workers]
    heapq.heapify(heap)
    order: list[PlacedWorker] = []
    while heap and len(order) < most:
        was, worker = heap[0]
        if was == rank(worker):
            order.append(worker)
            assigned[worker.worker] += 1
            jobs[worker.node] += 1
        if assigned[worker.worker] < rooms[worker.worker]:
            heapq.heapreplace(heap, (rank(worker), worker))
        else:
            heapq.heappop(heap)
    return [(worker, sum(1 for _ in same)) for worker, same in groupby(order)]
