"""Requests to load-balancing endpoints: those that wait for a worker, and those that a worker has.

Requests are in no queue and no store: they live as long as their caller's connection. `samples` is their
demand, as the store's is that of jobs; an open WebSocket is a request. Counts of ended requests begin again
with the process.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from stoker.control.rules.types import EndpointHealth, QueueSample
from stoker.control.scheduling.cluster_state import ClusterState


class Requests:
    """The requests that wait, and those that workers have. `wake` is called when a request finds no
    worker."""

    def __init__(self, cluster: ClusterState, clock: Callable[[], float], wake: Callable[[], None]) -> None:
        self._cluster, self._clock, self._wake = cluster, clock, wake
        self._waiting: defaultdict[str, dict[asyncio.Event, float]] = defaultdict(dict)
        self._since = clock()
        self._last_at: dict[str, float] = {}
        self.completed: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    @contextmanager
    def wait(self, endpoint: str) -> Iterator[asyncio.Event]:
        """Counts a request as waiting during the block. The event is set each time a worker may be there for
        the request."""
        event = asyncio.Event()
        self._waiting[endpoint][event] = self._clock()
        self._wake()
        try:
            yield event
        finally:
            waiting = self._waiting[endpoint]
            del waiting[event]
            if not waiting:
                del self._waiting[endpoint]
            self._last_at[endpoint] = self._clock()

    def look(self, endpoint: str) -> None:
        """Wakes the requests that wait, as a worker of this endpoint may be ready, or have ended."""
        for event in self._waiting.get(endpoint, ()):
            event.set()

    @contextmanager
    def at(self, worker: str) -> Iterator[None]:
        """Counts a request as the worker's during the block."""
        self._cluster.begin_request(worker, self._clock())
        endpoint = self._cluster.workers[worker].endpoint if worker in self._cluster.workers else ""
        try:
            yield
        finally:
            self._cluster.end_request(worker, self._clock())
            self._last_at[endpoint] = self._clock()

    def last_at(self, endpoint: str) -> float:
        """Returns when a request last ended, in seconds since the epoch. What was before this process is not
        known and counts as its start."""
        return self._last_at.get(endpoint, self._since)

    def counted(self, endpoint: str, health: EndpointHealth) -> EndpointHealth:
        """Returns the health of a load-balancing endpoint: its requests in place of jobs."""
        return replace(
            health,
            completed=self.completed[endpoint],
            failed=self.failed[endpoint],
            in_queue=len(self._waiting.get(endpoint, ())),
            in_progress=self.in_progress(endpoint),
        )

    def samples(self) -> dict[str, QueueSample]:
        """Returns the demand of each endpoint that has requests."""
        busy = {worker.endpoint for worker in self._cluster.workers.values() if worker.requests}
        return {endpoint: self._sample(endpoint) for endpoint in busy | self._waiting.keys()}

    def _sample(self, endpoint: str) -> QueueSample:
        waiting = self._waiting.get(endpoint, {})
        return QueueSample(
            endpoint,
            queued=len(waiting),
            in_progress=self.in_progress(endpoint),
            waiting_since=min(waiting.values(), default=None),
        )

    def in_progress(self, endpoint: str) -> int:
        return sum(worker.requests for worker in self._cluster.of_endpoint(endpoint))
