"""Claiming: hands queued jobs to free slots, and never one slot to two jobs.

Work is claimed, not pushed: the process that holds a node's session claims for that node's free slots. A
claim rides in the transaction that made it possible (a submission, an outcome) whenever it can; `run` does
the rest. `backlog` only says where looking is worth while; the store is the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from stoker.control import placement, store
from stoker.control.commit import Commits
from stoker.control.floor import Floor
from stoker.control.placement import FreeWorker, NodeLoad
from stoker.control.types import Claimed, Endpoint, Slot
from stoker.wire.messages import AttemptKey

OFFER_MAX = 256
"""Slots of an endpoint in one claim; where they are all filled, the next follows at once."""


class Assigner(Protocol):
    def __call__(self, claimed: Claimed) -> None:
        """Sends the Assign of a claimed job to its node, if its session still lives."""


class Dispatch:
    def __init__(
        self,
        floor: Floor,
        commits: Commits,
        endpoints: Callable[[str], Endpoint | None],
        assign: Assigner,
        clock: Callable[[], float],
    ) -> None:
        self._floor = floor
        self._commits = commits
        self._endpoints = endpoints
        self._assign = assign
        self._clock = clock
        self._marks: dict[str, int] = {}
        self._due: set[str] = set()
        self._wake = asyncio.Event()
        self.closed = False
        """Nothing is claimed any more: this process goes, and what it claimed now might never be sent."""

    # -- reservations

    def reserve(self, endpoints: Iterable[str], limit: int | None = None) -> list[Slot]:
        """Takes free slots out of the floor until `settle`; of one endpoint at most `limit`."""
        offered: list[Slot] = []
        for endpoint in () if self.closed else endpoints:
            offered += self._offer(endpoint, limit)
        self._floor.reserve(offered)
        return offered

    def _offer(self, endpoint_id: str, limit: int | None) -> list[Slot]:
        endpoint = self._endpoints(endpoint_id)
        if endpoint is None:
            return []
        free = self._floor.free_slots(endpoint.id)
        if not free:
            return []
        held = [self._floor.workers[slot.worker] for slot in free]
        workers = [FreeWorker(slot, w.jobs, w.last_used) for slot, w in zip(free, held, strict=True)]
        loads = {node: self._load(node) for node in {slot.node for slot in free}}
        return placement.offer(workers, loads, OFFER_MAX if limit is None else limit)

    def _load(self, node: str) -> NodeLoad:
        known = self._floor.nodes.get(node)
        return NodeLoad(self._floor.jobs_on(node), len(known.devices) if known is not None else 1)

    def settle(self, slots: Sequence[Slot], claimed: Sequence[Claimed]) -> None:
        """Ends a reservation and sends what was claimed."""
        keys = [(job.worker, AttemptKey(job.job, job.attempt)) for job in claimed]
        self._floor.settle(slots, keys, self._clock())
        for job in claimed:
            self._assign(job)
        if len(claimed) < sum(slot.free for slot in slots):
            for endpoint in {slot.endpoint for slot in slots}:
                self.look(endpoint)

    # -- the backlog

    def may_wait(self, endpoint: str) -> bool:
        return endpoint in self._marks

    def mark(self, endpoint: str) -> None:
        """A job of this endpoint may be waiting: look when a slot is free."""
        self._marks[endpoint] = self._marks.get(endpoint, 0) + 1
        self.look(endpoint)

    def remind(self, endpoint: str) -> None:
        """The store has waiting jobs of this endpoint: look, whatever was noted here."""
        self._marks.setdefault(endpoint, 1)
        self.look(endpoint)

    def look(self, endpoint: str) -> None:
        """A slot of this endpoint may be free."""
        if endpoint in self._marks:
            self._due.add(endpoint)
            self._wake.set()

    def seen(self, endpoint: str) -> int:
        """The mark before a claim; `exhausted` clears it only if nothing was queued meanwhile."""
        return self._marks.get(endpoint, 0)

    def exhausted(self, endpoint: str, seen: int) -> None:
        if self._marks.get(endpoint) == seen:
            self._marks.pop(endpoint, None)

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
        """One claim for the free slots of these endpoints."""
        seen = {endpoint: self.seen(endpoint) for endpoint in endpoints}
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

    def note_exhausted(self, slots: Sequence[Slot], claimed: Sequence[Claimed], seen: dict[str, int]) -> None:
        """Endpoints whose slots were not all filled have nothing more to claim now."""
        for endpoint, mark in seen.items():
            offered = sum(slot.free for slot in slots if slot.endpoint == endpoint)
            taken = sum(1 for job in claimed if job.endpoint == endpoint)
            if offered and taken < offered:
                self.exhausted(endpoint, mark)
            elif offered:
                self.look(endpoint)
