"""The desired state of each node, as it is sent: its workers, pods and volumes.

    give ──> new: stored with the node ──> noted: sent to the node, whose reports about it are accepted

No node hears of a worker before it is stored that it was given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from stoker.control.auth.secret_references import Filled
from stoker.control.rules.nodes.validation import AssignedWorker
from stoker.control.rules.types import Endpoint
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.node_environment import of_worker
from stoker.wire.messages import Desired, PodSpec, Source, VolumeSpec, WorkerSpec

Assignments = dict[str, tuple[str, AssignedWorker]]
"""By worker: its node, and as what that was given it."""


class DesiredWorkers:
    """The workers that each node shall run. `pods_of` and `volumes_of` name what else a node shall have;
    `send` brings it there. `source_of` returns the source of a worker's handler."""

    def __init__(
        self,
        cluster: ClusterState,
        pods_of: Callable[[str], tuple[PodSpec, ...]],
        volumes_of: Callable[[str], tuple[VolumeSpec, ...]],
        send: Callable[[str, Desired], None],
        source_of: Callable[[WorkerSpec], Source | None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster, self._pods_of, self._volumes_of = cluster, pods_of, volumes_of
        self._send, self._source_of = send, source_of
        self._revision = int(clock() * 1000)  # above those of an earlier process
        self._to_give: Assignments = {}
        self._giving: Assignments = {}
        self._taken: set[str] = set()
        self._gone: set[str] = set()

    def give(self, node: str, spec: WorkerSpec) -> None:
        """Gives this node a new worker."""
        assignment = AssignedWorker(spec.endpoint, spec.version, spec.concurrency, spec.devices)
        self._to_give[spec.worker] = (node, assignment)

    def unstored(self) -> tuple[Assignments, set[str]]:
        """Returns the workers that nodes are to run since the last call; and those that they need not any
        more."""
        assigned, self._to_give = self._to_give, {}
        self._giving |= assigned
        unwanted = {name for name, worker in self._cluster.workers.items() if worker.spec is None}
        taken = (unwanted - self._taken) | self._gone
        self._taken, self._gone = unwanted, set()
        return assigned, taken

    def noted(self, assigned: Mapping[str, tuple[str, AssignedWorker]]) -> None:
        """Notes that assignments are stored, so the workers may be sent to their nodes: their reports about
        them are accepted from then on."""
        for name in assigned:
            self._giving.pop(name, None)
        for node in sorted({node for node, _ in assigned.values()} & self._cluster.nodes.keys()):
            self.send(node)

    def not_noted(self, assigned: Mapping[str, tuple[str, AssignedWorker]], taken: Iterable[str]) -> None:
        """Notes that assignments could not be stored, and are tried again."""
        self._to_give = {**assigned, **self._to_give}
        for name in assigned:
            self._giving.pop(name, None)
        self._gone.update(taken)

    def note_gone(self, worker: str) -> None:
        """Notes that the worker's node reports that it has ended."""
        self._gone.add(worker)

    def send(self, node: str) -> None:
        """Sends the node all the workers, pods and volumes that shall exist there."""
        self._revision += 1
        unknown = self._to_give.keys() | self._giving.keys()
        here = (w for w in self._cluster.workers.values() if w.node == node and w.worker not in unknown)
        specs = (worker.spec for worker in here)
        workers = tuple(replace(spec, source=self._source_of(spec)) for spec in specs if spec is not None)
        self._send(node, Desired(self._revision, workers, self._pods_of(node), self._volumes_of(node)))


def spec_of(
    endpoint: Endpoint,
    worker: str,
    devices: tuple[str, ...],
    filled: Filled,
    facts: Mapping[str, str],
) -> WorkerSpec:
    """Returns the worker's spec. `facts` are its node's."""
    run = endpoint.run
    cpus = run.limits.cpus if run.limits else None
    variables = of_worker(facts, run.needs.vcpus if cpus is None else cpus)
    return WorkerSpec(
        worker=worker,
        endpoint=endpoint.id,
        version=endpoint.version,
        handler=run.handler,
        devices=devices,
        env=variables | dict(filled.env),
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
        hidden=filled.hidden,
        weights=run.weights,
    )
