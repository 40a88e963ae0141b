"""The workers that exist: samples demand, decides by pure rules, and sends the nodes their desired workers.

What is wanted is a function of the store and the cluster state, so a new control process arrives at it
again; it adopts the workers that nodes say they hold. Agents start, restart and stop; this module only names.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from random import Random

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.control.auth.secret_references import Filled, UnknownSecret
from stoker.control.config.endpoints import Endpoints
from stoker.control.rules import placement
from stoker.control.rules.placement import NoPlacement, Placement
from stoker.control.rules.types import AS_MANY_AS_FIT, LOAD_BALANCER, Endpoint, EndpointVersion, QueueSample
from stoker.control.rules.wanted_workers import ScaleDecision, ScaleMemory, ScalePolicy, ScaleSample, decide
from stoker.control.scheduling import rollout
from stoker.control.scheduling.avoidance import Version
from stoker.control.scheduling.cluster_state import ClusterState, averaged
from stoker.control.scheduling.desired import DesiredWorkers, spec_of
from stoker.control.scheduling.placed import PlacedWorker, serves, stale, waits_for
from stoker.control.scheduling.places import Places, VolumeRooms
from stoker.control.scheduling.rollout import RolloutWorker
from stoker.wire.ids import short_id

log = logging.getLogger(__name__)

NOTHING = QueueSample(endpoint="")

VERSIONS = 3
"""So many of an endpoint's last versions may still have workers."""

LOW_WAITS = "low priority: it starts no worker, and waits for one that other jobs start"


class _Known(Struct):
    """The facts kept about an endpoint between two passes. `decision`: the last one, logged once; `reached`:
    workers that were wanted and came; `stuck`: why its newest version is not rolled out; `runs`: what its
    last versions run."""

    memory: ScaleMemory | None = None
    decision: ScaleDecision | None = None
    reached: int | None = None
    stuck: str = ""
    runs: dict[int, EndpointVersion] = field(default_factory=dict)


class WorkerScaling:
    """The scaling of all endpoints. `fill` gives an account's environment with its secrets; `volume_rooms`
    closes the rooms in which its volume cannot be had."""

    def __init__(
        self,
        cluster: ClusterState,
        endpoints: Endpoints,
        desired: DesiredWorkers,
        fill: Callable[[str, Mapping[str, str]], Filled | UnknownSecret],
        volume_rooms: VolumeRooms,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._cluster, self._endpoints, self.desired = cluster, endpoints, desired
        self._fill = fill
        self.places = Places(cluster, volume_rooms, clock)
        self._clock = clock
        self._rng = rng
        self._refusals: dict[str, tuple[int, str]] = {}  # by endpoint: workers not placed, and why
        self._known: defaultdict[str, _Known] = defaultdict(_Known)
        self.wake = asyncio.Event()
        self.room = asyncio.Event()

    # -- one pass

    def reconcile(
        self, demand: Mapping[str, QueueSample], sampled_at: float, *, may_start: bool = True
    ) -> None:
        """Brings the workers to what demand requires and notifies every node that changed. `sampled_at`: when
        the store was queried for the demand; jobs assigned out since then may be in it as waiting still."""
        touched: set[str] = set()
        for endpoint in self._endpoints.by_id.values():
            touched |= self._reconcile_endpoint(
                endpoint, self._since(demand, endpoint.id, sampled_at), may_start
            )
        for worker in list(self._cluster.workers.values()):
            if worker.endpoint not in self._endpoints.by_id:
                touched |= self._stop(worker)
        for gone in self._known.keys() - self._endpoints.by_id.keys():
            del self._known[gone]
        self.places.avoidance.keep(self._endpoints.by_id)
        for node in touched:
            self.desired.send(node)

    def _reconcile_endpoint(self, endpoint: Endpoint, queue: QueueSample, may_start: bool) -> set[str]:
        known = self._known[endpoint.id]
        self.note_versions(endpoint.id, {endpoint.version: endpoint.run})
        self._measure(endpoint.id)
        touched = self._withdraw(endpoint)
        wanted = self._wanted(endpoint, queue)
        workers = self._rollout_workers(endpoint)
        plan = rollout.plan(workers, wanted, endpoint.workers_max, at_once=endpoint.temporary)
        for worker in self._cluster.of_endpoint(endpoint.id):
            worker.retiring = worker.worker in plan.retire
        touched |= {node for name in plan.stop for node in self._stop(self._cluster.workers[name])}
        known.stuck = plan.failing and f"the new version does not start, the old one stays: {plan.failing}"
        if plan.start and may_start:
            touched |= self._start(endpoint, plan.start)
            touched |= self._make_room(endpoint, plan.lacking)
        elif not plan.start:
            self._refusals.pop(endpoint.id, None)
        if queue.low and not wanted:
            self._refusals[endpoint.id] = (0, LOW_WAITS)
        known.reached = min(wanted, len(self._cluster.of_endpoint(endpoint.id)))
        return touched

    def _since(self, demand: Mapping[str, QueueSample], endpoint: str, sampled_at: float) -> QueueSample:
        queue = demand.get(endpoint, NOTHING)
        assigned = sum(worker.assigned_since(sampled_at) for worker in self._cluster.of_endpoint(endpoint))
        fresh = min(assigned, queue.queued)
        ahead = [at for at in self._cluster.waiting_ahead(endpoint).values() if at < sampled_at]
        waiting = min(len(ahead), queue.in_progress)
        return replace(
            queue,
            queued=queue.queued - fresh + waiting,
            in_progress=queue.in_progress + fresh - waiting,
            waiting_since=min(ahead, default=None) if queue.waiting_since is None else queue.waiting_since,
        )

    def _wanted(self, endpoint: Endpoint, queue: QueueSample) -> int:
        sample = self._sample(endpoint, queue)
        policy = ScalePolicy(
            workers_min=endpoint.workers_min,
            workers_max=endpoint.workers_max,
            idle_timeout_s=endpoint.idle_timeout_s,
            scaler=endpoint.scaler_type,
            scaler_value=endpoint.scaler_value,
            spread=endpoint.type == LOAD_BALANCER,
        )
        known = self._known[endpoint.id]
        decision, known.memory = decide(sample, policy, known.memory)
        if decision.workers != sample.workers and decision != known.decision:
            change = endpoint.id, sample.workers, decision.workers, decision.why
            log.info("endpoint %s goes from %d to %d workers: %s", *change)
        known.decision = decision
        if endpoint.workers_max == AS_MANY_AS_FIT and decision.workers > sample.workers:
            return max(min(decision.workers, self.places.capacity(endpoint)), sample.workers)
        return decision.workers

    def _sample(self, endpoint: Endpoint, queue: QueueSample) -> ScaleSample:
        now, throughput = self._clock(), self._cluster.throughputs[endpoint.id]
        takes = endpoint.takes_at_once
        workers = [w for w in self._cluster.of_endpoint(endpoint.id) if serves(w, endpoint)]
        idle = [now - w.idle_since for w in workers if w.idle]
        workers = [w for w in workers if not w.ill]
        idle += [float("inf") for w in workers if w.state == "unhealthy" and not w.jobs]
        return ScaleSample(
            queued=queue.queued,
            in_progress=queue.in_progress,
            workers=self._counted(endpoint, len(workers)),
            idle_for=tuple(idle),
            low_priority_queued=queue.low,
            concurrency=takes or endpoint.run.concurrency,
            slots=tuple(takes or w.concurrency for w in workers if w.state == "ready"),
            starting_for=tuple(now - w.since for w in workers if w.state == "starting"),
            waited_s=0.0 if queue.waiting_since is None else now - queue.waiting_since,
            cold_start_s=throughput.start_s,
            running_for=tuple(now - at for w in workers for at in w.busy.values()),
            job_time_s=throughput.job_s,
            begun=throughput.begun,
            now=now,
        )

    def _counted(self, endpoint: Endpoint, serving: int) -> int:
        """Returns how many workers serve; an old one and its replacement count as the one that was wanted."""
        reached = self._known[endpoint.id].reached
        replacing = any(stale(worker, endpoint) for worker in self._cluster.of_endpoint(endpoint.id))
        return reached if replacing and reached is not None else serving

    def _rollout_workers(self, endpoint: Endpoint) -> list[RolloutWorker]:
        now = self._clock()
        return [
            RolloutWorker(
                name=worker.worker,
                new=not stale(worker, endpoint),
                state=worker.state,
                reason=worker.reason,
                jobs=worker.jobs,
                idle_for=now - worker.idle_since,
                retiring=worker.retiring,
                ill=worker.ill,
            )
            for worker in self._cluster.of_endpoint(endpoint.id)
        ]

    def _measure(self, endpoint: str) -> None:
        """Notes how long the starts took that ended since the last pass."""
        for worker in self._cluster.of_endpoint(endpoint):
            if worker.timed and worker.state != "starting":
                worker.timed = False
                if worker.state == "ready":
                    throughput = self._cluster.throughputs[endpoint]
                    throughput.start_s = averaged(throughput.start_s, worker.idle_since - worker.since)

    def _withdraw(self, endpoint: Endpoint) -> set[str]:
        """Stops the unhealthy workers for which another node has a place, and notes where workers failed and
        where they are ready. Others are left to their agents, which try again."""
        touched: set[str] = set()
        for worker in self._cluster.of_endpoint(endpoint.id):
            version = Version(endpoint.id, worker.version)
            if worker.state == "ready":
                self.places.avoidance.note_ready(version, worker.node)
            if worker.state != "unhealthy" or stale(worker, endpoint):
                continue
            failed = worker.node, worker.worker, worker.reason, self._clock()
            self.places.avoidance.note_failed(version, *failed)
            if self.places.elsewhere(endpoint, worker) and not worker.jobs:
                withdrawn = worker.worker, endpoint.id, worker.node, worker.reason.partition("\n")[0]
                log.warning("worker %s of endpoint %s is withdrawn from node %s: %s", *withdrawn)
                touched |= self._stop(worker)
        return touched

    def _make_room(self, endpoint: Endpoint, lacking: int) -> set[str]:
        """Stops an old worker first where a replacement could not be placed, if that makes room. Only what is
        lacking is throttled."""
        refused, why = self._refusals.pop(endpoint.id, (0, ""))
        if not refused:
            return set()
        if lacking:
            self._refusals[endpoint.id] = (min(refused, lacking), why)
        may_run = isinstance(self._fill(endpoint.account, endpoint.run.env), Filled)
        olds = rollout.make_room(self._rollout_workers(endpoint))
        for going in olds:
            found = placement.place(self.places.rooms(endpoint, without=going.name), endpoint.run.needs)
            if may_run and isinstance(found, Placement):
                worker = self._cluster.workers[going.name]
                worker.retiring = bool(going.jobs)
                return set() if going.jobs else self._stop(worker)
        if olds:
            self._known[endpoint.id].stuck = f"the new version cannot be placed, the old one stays: {why}"
        return set()

    def _start(self, endpoint: Endpoint, count: int) -> set[str]:
        touched: set[str] = set()
        self._refusals.pop(endpoint.id, None)
        filled = self._fill(endpoint.account, endpoint.run.env)
        if isinstance(filled, UnknownSecret):
            self._refusals[endpoint.id] = (count, f"no capacity: {filled.why}")
            return touched
        rooms, needs = self.places.rooms(endpoint), endpoint.run.needs
        for started in range(count):
            placed = self.places.place(endpoint, rooms)
            if isinstance(placed, NoPlacement):
                self._refusals[endpoint.id] = (count - started, placed.why)
                break
            if placed.why:
                log.info(
                    "endpoint %s: a worker goes to node %s, which %s", endpoint.id, placed.node, placed.why
                )
            self._add(endpoint, placed, filled)
            rooms = placement.after(rooms, placed, needs)
            touched.add(placed.node)
        return touched

    def _add(self, endpoint: Endpoint, placed: Placement, filled: Filled) -> None:
        node = self._cluster.nodes[placed.node]
        spec = spec_of(endpoint, short_id(self._rng), placed.devices, filled, node.facts)
        self.desired.give(placed.node, spec)
        self._cluster.add_worker(
            PlacedWorker(
                worker=spec.worker,
                endpoint=endpoint.id,
                version=endpoint.version,
                node=placed.node,
                session=node.session,
                state="starting",
                spec=spec,
                devices=spec.devices,
                concurrency=spec.concurrency,
                needs=endpoint.run.needs,
                prices=endpoint.run.prices,
                idle_since=self._clock(),
                since=self._clock(),
                timed=True,
            )
        )

    def _stop(self, worker: PlacedWorker) -> set[str]:
        if worker.state == "stopping":
            return set()
        worker.state, worker.spec = "stopping", None
        return {worker.node}

    def worker_gone(self, worker: str) -> None:
        """Notes that the worker's node reports its end. What could not be placed may fit now."""
        self.desired.note_gone(worker)
        if any(count for count, _ in self._refusals.values()):
            self.room.set()

    # -- nodes

    def adopt(self, worker: PlacedWorker) -> None:
        """Takes over a worker that a node holds: it stays if its endpoint is there, in its version or in one
        that is being replaced."""
        endpoint = self._as_it_was_for(worker)
        filled = self._fill(endpoint.account, endpoint.run.env) if endpoint else None
        usable = worker.state != "stopping" and not self._cluster.on_unhealthy_device(worker)
        usable = usable and not self._cluster.nodes[worker.node].closed
        if endpoint and usable and isinstance(filled, Filled):
            worker.spec = spec_of(
                endpoint, worker.worker, worker.devices, filled, self._cluster.nodes[worker.node].facts
            )
            worker.needs, worker.prices = endpoint.run.needs, endpoint.run.prices
            worker.since = self._clock()
            worker.concurrency = worker.concurrency or worker.spec.concurrency
        else:
            worker.state = "stopping"
        self._cluster.add_worker(worker)

    def note_versions(self, endpoint: str, runs: Mapping[int, EndpointVersion]) -> None:
        """Notes what earlier versions of the endpoint run: their workers stay until they are replaced."""
        known = self._known[endpoint]
        known.runs = dict(sorted((known.runs | dict(runs)).items())[-VERSIONS:])

    def _as_it_was_for(self, worker: PlacedWorker) -> Endpoint | None:
        """Returns the worker's endpoint in the worker's version; None where either is not known any more."""
        endpoint = self._endpoints.by_id.get(worker.endpoint)
        if endpoint is None or worker.version == endpoint.version:
            return endpoint
        run = self._known[endpoint.id].runs.get(worker.version)
        return None if run is None else replace(endpoint, version=worker.version, run=run)

    def leaves(self, node: str) -> None:
        """Marks a node that is about to leave. Its workers are neither assigned jobs nor counted from now on,
        so others start elsewhere at once; the node ends its own."""
        self._cluster.nodes[node].draining = True
        self._give_up(node)

    def drain(self, node: str, *, drained: bool) -> None:
        """Drains this node for an operator, or resumes it. Its idle workers are stopped, and those that are
        busy once they have done; others start elsewhere."""
        (self._cluster.drained.add if drained else self._cluster.drained.discard)(node)
        if not drained:
            self.places.avoidance.note_resumed(node)
        state = self._cluster.nodes.get(node)
        if state is not None and state.drained != drained:
            state.drained = drained
            if drained:
                self._give_up(node)
                self.desired.send(node)
            self.wake.set()

    def _give_up(self, node: str) -> None:
        for worker in [w for w in self._cluster.workers.values() if w.node == node]:
            worker.state, worker.spec = "stopping", None
        self.wake.set()

    def avoid(self, node: str) -> None:
        """Stops the workers on unhealthy devices of a node whose devices changed; others take over."""
        there = [worker for worker in self._cluster.workers.values() if worker.node == node]
        stopped = [self._stop(worker) for worker in there if self._cluster.on_unhealthy_device(worker)]
        if any(stopped):
            self.desired.send(node)
        self.wake.set()

    # -- why a job waits

    def reason(self, endpoint: Endpoint) -> str:
        """Returns why a queued job waits (promise 7)."""
        workers = [w for w in self._cluster.of_endpoint(endpoint.id) if serves(w, endpoint)]
        unhealthy = [w for w in workers if w.state == "unhealthy"]
        if unhealthy and not any(w.state == "ready" for w in workers):
            return unhealthy[0].reason  # "crash loop: <last log line>", as its agent says
        count, refusal = self._refusals.get(endpoint.id, (0, ""))
        if any(w.state == "ready" for w in workers):
            causes = "every worker is busy", count and refusal, self._known[endpoint.id].stuck
            return "; ".join(cause for cause in causes if cause)
        if waits := waits_for(workers):
            return waits
        starting = [w.reason.partition("\n")[0] for w in workers if w.state == "starting"]
        if starting:
            return f"starting again: {starting[0]}" if all(starting) else "starting"
        if endpoint.workers_max == 0:
            return "no capacity: workersMax is 0"
        return refusal or ("starting" if self._cluster.nodes else "no capacity: no node is connected")

    def throttled(self, endpoint: str) -> int:
        """Returns how many workers are wanted and could not be placed."""
        return self._refusals.get(endpoint, (0, ""))[0]

    def why_throttled(self, endpoint: str) -> str:
        """Returns why wanted workers found no place; empty where all of them have one."""
        count, why = self._refusals.get(endpoint, (0, ""))
        return why if count else ""
