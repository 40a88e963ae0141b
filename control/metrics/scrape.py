"""Answers a scrape: all counts and measures in Prometheus's text format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import Unavailable
from stoker.control.metrics.counters import Counters
from stoker.control.metrics.gauges import Gauges, Snapshot
from stoker.control.scheduling.cluster_state import NodeState
from stoker.control.scheduling.scheduling import Scheduling

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Scrapes:
    """The answers to scrapes of one control process."""

    def __init__(self, context: Context, scheduling: Scheduling, counters: Counters) -> None:
        self._commits, self._clock, self._counters = context.commits, context.clock, counters
        self._endpoints, self._cluster = scheduling.endpoints, scheduling.cluster
        self.certificates: Callable[[], Mapping[str, float]] = dict
        """When the certificates of control end, by their names, in seconds since the epoch."""

    async def text(self) -> bytes:
        """Returns the text. Raises Unavailable where the database does not answer."""
        begun = time.monotonic()
        queues = await self._commits.read(store.queue_sample)
        read_s = time.monotonic() - begun
        write_s = await self._write_s()
        there = sorted(self._endpoints.by_id)
        self._counters.forget(there)
        cluster = self._cluster
        snapshot = Snapshot(
            now=self._clock(),
            endpoints=there,
            queues=queues,
            workers=tuple(cluster.workers.values()),
            nodes=tuple(cluster.nodes.values()),
            sessions=len(cluster.nodes),
            read_s=read_s,
            write_s=write_s,
            certificates=self.certificates(),
            node_certificates=node_certificates(cluster.nodes.values()),
        )
        now = CollectorRegistry()
        now.register(Gauges(snapshot))
        return generate_latest(self._counters.registry) + generate_latest(now)

    async def _write_s(self) -> float | None:
        """Returns how long a commit waits; None where it fails, which must not hide all other metrics."""
        begun = time.monotonic()
        try:
            await self._commits.commit(lambda conn: None)
        except Unavailable:
            return None
        return time.monotonic() - begun


def node_certificates(nodes: Iterable[NodeState]) -> dict[str, float]:
    """Returns when the certificates of nodes end, by their own facts, in seconds since the epoch."""
    found = {}
    for node in nodes:
        try:
            end = datetime.fromisoformat(node.facts.get("certificate_ends", ""))
        except ValueError:
            continue  # it has none, or says nonsense
        if end.tzinfo is not None:
            found[node.node] = end.timestamp()
    return found
