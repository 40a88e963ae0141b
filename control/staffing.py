"""Which workers exist: samples demand, asks the pure decisions, and tells the nodes their desired workers.

What is wanted is a function of the store and the floor, so a new control process arrives at it again; it
adopts the workers that nodes say they hold. Agents start, restart and stop; this module only names.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random

from stoker.control import placement
from stoker.control.autoscale import ScalePolicy, ScaleSample, decide
from stoker.control.engine_fit import fitting
from stoker.control.floor import Floor, FloorWorker
from stoker.control.placement import NoPlace, Place, Room
from stoker.control.types import Endpoint, QueueSample
from stoker.wire.messages import Desired, PodSpec, VolumeSpec, WorkerSpec
from stoker.wire.names import short_id

NOTHING = QueueSample(endpoint="")

DRAINING = "no capacity: every connected node is about to go"

LOW_WAITS = "low priority: it starts no worker, and waits for one that other jobs start"


class Staffing:
    def __init__(
        self,
        floor: Floor,
        endpoints: Callable[[], Mapping[str, Endpoint]],
        tell: Callable[[str, Desired], None],
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._floor = floor
        self._endpoints = endpoints
        self._tell = tell
        self._clock = clock
        self._rng = rng
        self._revision = int(clock() * 1000)  # above those of an earlier process
        self._refusals: dict[str, tuple[int, str]] = {}  # by endpoint: workers that found no place, and why
        self.wake = asyncio.Event()
        self.pods_of: Callable[[str], tuple[PodSpec, ...]] = lambda node: ()
        self.volumes_of: Callable[[str], tuple[VolumeSpec, ...]] = lambda node: ()

    # -- one pass

    def staff(self, demand: Mapping[str, QueueSample], *, may_start: bool = True) -> None:
        """Brings the floor's workers to what demand wants and tells every node that changed."""
        touched: set[str] = set()
        for endpoint in self._endpoints().values():
            touched |= self._staff_endpoint(endpoint, demand.get(endpoint.id, NOTHING), may_start)
        for worker in list(self._floor.workers.values()):
            current = self._endpoints().get(worker.endpoint)
            if current is None or (worker.version != current.version and worker.idle):
                touched |= self._stop(worker)
        for node in touched:
            self.tell(node)

    def _staff_endpoint(self, endpoint: Endpoint, queue: QueueSample, may_start: bool) -> set[str]:
        workers = [w for w in self._floor.of_endpoint(endpoint.id) if _counts(w, endpoint)]
        now = self._clock()
        idle = {w.worker: now - w.idle_since for w in workers if w.idle}
        idle |= {w.worker: float("inf") for w in workers if w.state == "unhealthy" and not w.busy}
        sample = ScaleSample(
            queued=queue.queued,
            in_progress=queue.in_progress,
            workers=len(workers),
            idle_for=tuple(idle.values()),
            low_priority_queued=queue.low,
            concurrency=endpoint.run.concurrency,
            slots=tuple(w.concurrency for w in workers if w.state == "ready"),
        )
        policy = ScalePolicy(endpoint.workers_min, endpoint.workers_max, endpoint.idle_timeout_s)
        wanted = decide(sample, policy).workers
        if wanted > len(workers):
            return self._start(endpoint, wanted - len(workers)) if may_start else set()
        self._refusals.pop(endpoint.id, None)
        if queue.low and not wanted:
            self._refusals[endpoint.id] = (0, LOW_WAITS)
        surplus = placement.choose_stops(idle, len(workers) - wanted)
        return {node for name in surplus for node in self._stop(self._floor.workers[name])}

    def _start(self, endpoint: Endpoint, count: int) -> set[str]:
        touched = set()
        self._refusals.pop(endpoint.id, None)
        for started in range(count):
            rooms, unfit = fitting(endpoint.run.image, self._rooms(), self._facts())
            place = NoPlace(unfit) if unfit and not rooms else placement.place_worker(rooms)
            if isinstance(place, NoPlace):
                self._refusals[endpoint.id] = (count - started, self._why_no_place(place))
                break
            self._add(endpoint, place)
            touched.add(place.node)
        return touched

    def _why_no_place(self, place: NoPlace) -> str:
        nodes = self._floor.nodes.values()
        return DRAINING if nodes and all(node.draining for node in nodes) else place.why

    def _add(self, endpoint: Endpoint, place: Place) -> None:
        node = self._floor.nodes[place.node]
        spec = _spec(endpoint, short_id(self._rng), place.devices)
        self._floor.add_worker(
            FloorWorker(
                worker=spec.worker,
                endpoint=endpoint.id,
                version=endpoint.version,
                node=place.node,
                session=node.session,
                state="starting",
                spec=spec,
                devices=spec.devices,
                concurrency=spec.concurrency,
                idle_since=self._clock(),
            )
        )

    def _stop(self, worker: FloorWorker) -> set[str]:
        if worker.state == "stopping":
            return set()
        worker.state, worker.spec = "stopping", None
        return {worker.node}

    def _facts(self) -> dict[str, Mapping[str, str]]:
        return {node.node: node.facts for node in self._floor.nodes.values()}

    def _rooms(self) -> list[Room]:
        held: dict[str, Counter[str]] = {node: Counter() for node in self._floor.nodes}
        for worker in self._floor.workers.values():
            held[worker.node].update(worker.devices)
        nodes = [node for node in self._floor.nodes.values() if not node.draining]
        return [Room(node.node, node.devices, held[node.node], node.ill) for node in nodes]

    # -- nodes

    def adopt(self, worker: FloorWorker) -> None:
        """A node holds this worker: it stays if its endpoint still wants that version."""
        endpoint = self._endpoints().get(worker.endpoint)
        current = endpoint is not None and endpoint.version == worker.version
        if endpoint and current and worker.state != "stopping" and not self._floor.on_ill_device(worker):
            worker.spec = _spec(endpoint, worker.worker, worker.devices)
            worker.concurrency = worker.concurrency or worker.spec.concurrency
        else:
            worker.state = "stopping"
        self._floor.add_worker(worker)

    def drain(self, node: str) -> None:
        """This node is about to go. Its workers are neither given jobs nor counted from now on, so others
        start elsewhere at once; the node ends its own."""
        self._floor.nodes[node].draining = True
        for worker in [w for w in self._floor.workers.values() if w.node == node]:
            worker.state, worker.spec = "stopping", None
        self.wake.set()

    def shun(self, node: str) -> None:
        """Another of its devices is ill, or well: the workers there are no capacity, and others take over."""
        there = [worker for worker in self._floor.workers.values() if worker.node == node]
        stopped = [self._stop(worker) for worker in there if self._floor.on_ill_device(worker)]
        if any(stopped):
            self.tell(node)
        self.wake.set()

    def tell(self, node: str) -> None:
        """Sends the node all the workers, pods and volumes that shall exist there."""
        self._revision += 1
        specs = (w.spec for w in self._floor.workers.values() if w.node == node)
        workers = tuple(spec for spec in specs if spec is not None)
        self._tell(node, Desired(self._revision, workers, self.pods_of(node), self.volumes_of(node)))

    # -- why a job waits

    def reason(self, endpoint: Endpoint) -> str:
        """Promise 7: a queued job says why it waits."""
        workers = [w for w in self._floor.of_endpoint(endpoint.id) if w.version == endpoint.version]
        sick = [w for w in workers if w.state == "unhealthy"]
        if sick and not any(w.state == "ready" for w in workers):
            return sick[0].reason  # "crash loop: <last log line>", as its agent says
        count, refusal = self._refusals.get(endpoint.id, (0, ""))
        if any(w.state == "ready" for w in workers):
            return f"every worker is busy; {refusal}" if count else "every worker is busy"
        if any(w.state == "starting" for w in workers):
            return "starting"
        if endpoint.workers_max == 0:
            return "no capacity: workersMax is 0"
        return refusal or ("starting" if self._floor.nodes else "no capacity: no node is connected")

    def throttled(self, endpoint: str) -> int:
        """Workers that are wanted and found no place."""
        return self._refusals.get(endpoint, (0, ""))[0]


def _counts(worker: FloorWorker, endpoint: Endpoint) -> bool:
    return worker.version == endpoint.version and worker.state != "stopping"


def _spec(endpoint: Endpoint, worker: str, devices: tuple[str, ...]) -> WorkerSpec:
    run = endpoint.run
    return WorkerSpec(
        worker=worker,
        endpoint=endpoint.id,
        version=endpoint.version,
        handler=run.handler,
        devices=devices,
        env=run.env,
        concurrency=run.concurrency,
        start_timeout_s=run.start_timeout_s,
        preload=run.preload,
        kind=run.kind,
        command=run.command,
        image=run.image,
        registry=run.registry,
        volume=run.volume,
        limits=run.limits,
        max_jobs=run.max_jobs,
        max_growth_bytes=run.max_growth_bytes,
        share=run.needs.share,
        entrypoint=run.entrypoint,
    )
