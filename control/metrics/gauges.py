"""Gauges of what is now: queues, workers, nodes and their devices. Pure: a snapshot goes in, gauges come
out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from stoker.control.rules.types import QueueSample
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import Device, DeviceSample


class Snapshot(Struct, frozen=True):
    """The knowledge of control at one moment. `endpoints` are the ids of all; `queues` has those with living
    jobs. `read_s` and `write_s`: how long the database took to answer, and a commit waited for its turn; None
    where it could not be stored. `certificates`: when those of control end, by their names,
    and `node_certificates` those of nodes."""

    now: float
    endpoints: Sequence[str]
    queues: Mapping[str, QueueSample]
    workers: Sequence[PlacedWorker]
    nodes: Sequence[NodeState]
    sessions: int
    read_s: float
    write_s: float | None
    certificates: Mapping[str, float] = field(default_factory=dict)
    node_certificates: Mapping[str, float] = field(default_factory=dict)


class Gauges:
    """Implements a collector of prometheus_client over one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._of = snapshot

    def collect(self) -> Iterator[Metric]:
        yield from _queues(self._of)
        yield _workers(self._of)
        yield from _nodes(self._of)
        yield GaugeMetricFamily("stoker_sessions", "Nodes that are connected.", self._of.sessions)
        yield GaugeMetricFamily(
            "stoker_database_read_seconds",
            "How long the database took to answer the read for this scrape.",
            self._of.read_s,
        )
        if self._of.write_s is not None:
            yield GaugeMetricFamily(
                "stoker_database_write_seconds",
                "How long a commit waited for those before it, at this scrape.",
                self._of.write_s,
            )


def _queues(of: Snapshot) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "stoker_jobs_waiting",
        "Jobs in the queue, by priority: urgent, normal, low; counted up to a bound.",
        labels=["endpoint", "priority"],
    )
    running = GaugeMetricFamily("stoker_jobs_in_progress", "Jobs that workers have.", labels=["endpoint"])
    age = GaugeMetricFamily(
        "stoker_queue_age_seconds", "How long the job waits that waits longest.", labels=["endpoint"]
    )
    for endpoint in of.endpoints:
        queue = of.queues.get(endpoint, QueueSample(endpoint))
        waiting.add_metric([endpoint, "urgent"], queue.urgent)
        waiting.add_metric([endpoint, "normal"], queue.queued - queue.urgent)
        waiting.add_metric([endpoint, "low"], queue.low)
        running.add_metric([endpoint], queue.in_progress)
        since = of.now if queue.waiting_since is None else queue.waiting_since
        age.add_metric([endpoint], max(of.now - since, 0.0))
    yield from (waiting, running, age)


def _workers(of: Snapshot) -> Metric:
    found = GaugeMetricFamily(
        "stoker_workers",
        "Workers, by state: starting, idle, busy, unhealthy, stopping.",
        labels=["endpoint", "state", "cause"],
    )
    counted = Counter((worker.endpoint, state_of(worker), cause_of(worker)) for worker in of.workers)
    for labels, number in sorted(counted.items()):
        found.add_metric(labels, number)
    return found


def state_of(worker: PlacedWorker) -> str:
    """Returns the worker's state; of a ready one, if it has jobs."""
    if worker.state != "ready":
        return worker.state
    return "busy" if worker.jobs else "idle"


def cause_of(worker: PlacedWorker) -> str:
    """Returns why the worker is in its state, as one of few words; "" where that needs none. Sentences, which
    may quote what a worker prints, are in /health."""
    match worker.state:
        case "starting":
            return "node_prepares" if worker.waits_for else ""
        case "unhealthy":
            return "became_unhealthy" if worker.was_ready else "does_not_start"
        case "ready":
            return "retiring" if worker.retiring else ""
    return ""


_MEASURED = (
    ("memory_used_bytes", "Memory of the device that is in use.", "memory_used"),
    ("utilisation_percent", "The device's utilisation.", "utilisation"),
    ("temperature_celsius", "The device's temperature.", "temperature"),
    ("power_watts", "What the device draws.", "power"),
    ("ecc_uncorrected_errors", "Memory errors that were not corrected.", "ecc_uncorrected"),
)


def _nodes(of: Snapshot) -> Iterator[Metric]:
    takes = GaugeMetricFamily(
        "stoker_node_takes_workers", "1 if new workers may go to the node.", labels=["node"]
    )
    for node in of.nodes:
        takes.add_metric([node.node], 0 if node.closed else 1)
    yield takes
    left = GaugeMetricFamily(
        "stoker_node_certificate_seconds",
        "How long the node's certificate is good, as the node says.",
        labels=["node"],
    )
    for name, end in of.node_certificates.items():
        left.add_metric([name], end - of.now)
    yield left
    yield _certificates(of)
    yield from _devices([(node, device) for node in of.nodes for device in node.devices])


def _certificates(of: Snapshot) -> Metric:
    left = GaugeMetricFamily(
        "stoker_certificate_seconds",
        "How long the certificate of control's ports, and the authority of nodes, are good.",
        labels=["certificate"],
    )
    for name, end in of.certificates.items():
        left.add_metric([name], end - of.now)
    return left


def _devices(found: Sequence[tuple[NodeState, Device]]) -> Iterator[Metric]:
    labels = ["node", "device", "name"]
    healthy = GaugeMetricFamily(
        "stoker_device_healthy", "1 if workers may be placed on the device.", labels=labels
    )
    total = GaugeMetricFamily("stoker_device_memory_bytes", "The device's memory.", labels=labels)
    measured = {
        field: GaugeMetricFamily(f"stoker_device_{name}", about, labels=labels)
        for name, about, field in _MEASURED
    }
    for node, device in found:
        named = [node.node, device.uuid, device.name]
        sample = node.samples.get(device.uuid, DeviceSample(device.uuid))
        healthy.add_metric(named, 0 if sample.ill else 1)
        if device.memory_total is not None:
            total.add_metric(named, device.memory_total)
        for column, family in measured.items():
            if (value := getattr(sample, column)) is not None:
                family.add_metric(named, value)
    yield from (healthy, total, *measured.values())
