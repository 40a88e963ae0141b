"""Claiming: hands queued jobs to free slots, and never one slot to two jobs.

Work is claimed, not pushed: the process that holds a node's session claims for that node's free slots. A
claim rides in the transaction that made it possible (a submission, an outcome) whenever it can; `run` does
the rest. `backlog` only says where looking is worth while; the store is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from stoker.control import store
from stoker.control.config.endpoints import Endpoints
from stoker.control.context import Context
from stoker.control.rules.queueing.expected import Pace
from stoker.control.rules.types import Claimed, Slot
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.wire.messages import AttemptKey

OFFER_MAX = 256
"""Slots of an endpoint in one claim; where they are all filled, the next follows at once."""


class Dispatch:
    """The claims of this process. `assign` sends the Assign of a claimed job to its node, if its session
    still lives."""

    def __init__(
        self,
        context: Context,
        cluster: ClusterState,
        endpoints: Endpoints,
        assign: Callable[[Claimed], None],
    ) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._cluster, self._endpoints, self._assign = cluster, endpoints, assign
        self.backlog: dict[str, int] = {}
        """Endpoints of which a job may be waiting, and how often that was noted."""
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False
        """Nothing is claimed any more: this process goes, and what it claimed now might never be sent."""
        self.on_look: Callable[[str], None] = lambda endpoint: None
        """Called with each endpoint of whose workers one may be free, ready or gone."""
        self.on_claim: Callable[[str], None] = lambda endpoint: None
        """Called with the endpoint of each attempt that is given to a worker."""

    # -- reservations

    def reserve(self, endpoints: Iterable[str], most: int = OFFER_MAX) -> list[Slot]:
        """Reserves free slots until `settle`; of one endpoint at most `most`."""
        if self.closed:
            return []
        now = self._clock()
        known = (endpoint for endpoint in endpoints if endpoint in self._endpoints.by_id)
        return [slot for endpoint in known for slot in self._cluster.reserve(endpoint, most, now)]

    def pace(self, endpoint: str) -> Pace:
        """Returns the pace of the endpoint's ready workers now."""
        return self._cluster.pace(endpoint, self._clock())

    def settle(self, slots: Sequence[Slot], claimed: Sequence[Claimed]) -> None:
        """Ends a reservation and sends what was claimed."""
        taken = {AttemptKey(job.job, job.attempt): job.worker for job in claimed}
        self._cluster.settle(slots, taken, self._clock())
        for job in claimed:
            self._assign(job)
            self.on_claim(job.endpoint)
        if len(claimed) < sum(slot.free for slot in slots):
            for endpoint in {slot.endpoint for slot in slots}:
                self.look(endpoint)

    def waiting_ahead(self, endpoint: str) -> tuple[AttemptKey, ...]:
        """Returns the endpoint's jobs that lie ahead of a worker."""
        return tuple(self._cluster.waiting_ahead(endpoint))

    # -- the backlog

    def mark(self, endpoint: str) -> None:
        """Notes that a job of this endpoint may be waiting, and looks whether a slot is free."""
        self.backlog[endpoint] = self.backlog.get(endpoint, 0) + 1
        self.look(endpoint)

    def remind(self, endpoint: str) -> None:
        """Notes that the store has waiting jobs of this endpoint, and looks, whatever was noted here."""
        self.backlog.setdefault(endpoint, 1)
        self.look(endpoint)

    def look(self, endpoint: str) -> None:
        """Looks at an endpoint of which a slot may be free."""
        self.on_look(endpoint)
        if endpoint in self.backlog:
            self._due.add(endpoint)
            self._wake.set()

    async def run(self, on_failure: Callable[[Exception], Awaitable[None]]) -> None:
        """Claims for free slots where jobs may wait, one transaction for all endpoints that are due."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = sorted(self._due), set()
            try:
                await self.claim(due)
            except Exception as error:
                await on_failure(error)
                self._due.update(due)  # nothing else would look again
                self._wake.set()

    async def claim(self, endpoints: Sequence[str]) -> None:
        """Makes one claim for the free slots of these endpoints."""
        seen = {endpoint: self.backlog.get(endpoint, 0) for endpoint in endpoints}
        slots = self.reserve(endpoints)
        if not slots:
            return
        claimed: tuple[Claimed, ...] = ()
        now = self._clock()
        try:
            claimed = await self._commits.commit(lambda conn: store.claim(conn, slots, now))
        finally:
            self.settle(slots, claimed)
        self.note_exhausted(slots, claimed, seen)

    def note_exhausted(
        self, slots: Sequence[Slot], claimed: Sequence[Claimed], seen: Mapping[str, int]
    ) -> None:
        """Notes that endpoints whose slots were not all filled have nothing more to claim now, unless
        something was queued since their marks were `seen`."""
        for endpoint, mark in seen.items():
            offered = sum(slot.free for slot in slots if slot.endpoint == endpoint)
            taken = sum(1 for job in claimed if job.endpoint == endpoint)
            if taken < offered:
                if self.backlog.get(endpoint) == mark:
                    del self.backlog[endpoint]
            elif offered:
                self.look(endpoint)
