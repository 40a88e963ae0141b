"""The log of a worker, of any type of endpoint: its last lines, and new ones as they are printed.

    reader ──> its node is asked ──what it remembers──> lines ──as they are printed──> lines ... ──gone──> end

Control stores nothing of it: a worker's lines are in the memory of its agent, and are gone with the worker.
Its processes come and go meanwhile; the numbers of lines go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress

from stoker.control.errors import NotFound, Unavailable
from stoker.control.jobs.live_logs import LiveLogs
from stoker.control.jobs.log_following import LogPosition
from stoker.control.rules.streams import LogEvent, LogLine
from stoker.control.rules.types import Endpoint
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import log_of_worker

LINES_MOST = 100
"""How many of a worker's last lines /v1 answers at once."""

ANSWER_S = 5.0
"""How long a node may take for what it remembers."""

LOOK_S = 1.0
ABSENT_S = 10.0
"""How long a worker may be absent, as while its node reconnects, before a reader is told that it is gone."""


class WorkerLogs:
    def __init__(self, cluster: ClusterState, live: LiveLogs, stops: Callable[[], bool]) -> None:
        self._cluster, self._live, self._stops = cluster, live, stops

    async def last(self, endpoint: Endpoint, worker: str) -> Sequence[LogLine]:
        """Returns the lines that its node remembers. Raises NotFound where the endpoint has no such worker,
        and Unavailable where its node does not answer."""
        return await self._last("worker", worker, self._placed(endpoint, worker).node)

    async def last_of_pod(self, pod: str, node: str) -> Sequence[LogLine]:
        """Returns the lines of a pod's container that its node remembers. Raises Unavailable."""
        return await self._last("pod", pod, node)

    async def _last(self, what: str, name: str, node: str) -> Sequence[LogLine]:
        printed = asyncio.Event()
        with self._live.reading(log_of_worker(name), node, printed) as ring:
            try:
                async with asyncio.timeout(ANSWER_S):
                    while not ring.caught_up:
                        printed.clear()
                        await printed.wait()
            except TimeoutError:
                raise Unavailable(
                    f"node {node} did not send the log of {what} {name} within {ANSWER_S:.0f} s: it"
                    " does not answer, or its agent is of an earlier version and must be updated"
                ) from None
            return ring.after(-1)

    def follow(
        self, endpoint: Endpoint, worker: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[LogEvent, None]:
        """Returns what is remembered, or comes after the line of this id, and then new lines, until the
        worker is gone. A reader may come back. Raises NotFound."""
        placed = self._placed(endpoint, worker)
        there = self._cluster.workers
        return self._events(worker, placed.node, after, lambda: worker in there)

    def follow_pod(
        self, pod: str, node: str, after: tuple[int, int] | None
    ) -> AsyncGenerator[LogEvent, None]:
        """Returns the events of a pod's log, which end with control."""
        return self._events(pod, node, after, lambda: True)

    async def until_stopped(self) -> None:
        """Waits until control is about to end."""
        printed = asyncio.Event()  # nothing is
        while not self._stops():
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await printed.wait()

    async def _events(
        self, worker: str, node: str, after: tuple[int, int] | None, there: Callable[[], bool]
    ) -> AsyncGenerator[LogEvent, None]:
        position = LogPosition(n=after[1] if after else -1)
        printed, clock = asyncio.Event(), asyncio.get_running_loop().time
        seen = clock()
        with self._live.reading(log_of_worker(worker), node, printed) as ring:
            while not self._stops():
                printed.clear()
                seen = clock() if there() else seen
                over = ring.over or clock() - seen >= ABSENT_S
                for event in position.give(ring.after(position.n)):
                    yield event
                if over:
                    yield LogEvent("end", 0, position.n, worker=worker)
                    return
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await printed.wait()

    def _placed(self, endpoint: Endpoint, worker: str) -> PlacedWorker:
        found = self._cluster.workers.get(worker)
        if found is not None and found.endpoint == endpoint.id:
            return found
        workers = [one.worker for one in self._cluster.of_endpoint(endpoint.id)]
        has = f"it has {', '.join(sorted(workers))}" if workers else "it has none now"
        raise NotFound(f"endpoint {endpoint.id} has no worker {worker!r}: {has}")
