"""Periodic work of the control plane: expiry, silent nodes, demand, and the object store's orphans.

Everything here is idempotent and driven by the store, so a pass that fails is simply done again. A gap in
this module's own runs (a suspended host, a store that is full) is not held against nodes: silence is counted
only while this process has been watching. The object store is tidied separately: one that hangs holds
nothing else up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import ControlError, Unavailable, level_of
from stoker.control.jobs.artifacts import Artifacts
from stoker.control.jobs.live_logs import LiveLogs
from stoker.control.jobs.waiters import JobChanges
from stoker.control.nodes.joining import revoked_nodes
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.tunnels import Tunnels
from stoker.control.rules.types import Changed
from stoker.control.scheduling.making_way import MakingWay
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn

log = logging.getLogger(__name__)

BATCH = 500
GAP_S = 5.0
SETTLE_S = 10.0
"""How long a new process waits for nodes that were alive a moment ago before it starts workers elsewhere."""

STAFF_PAUSE_S = 0.05

ASIDE_S = 86_400.0
"""After this time, a failed deletion in the object store is tried again, and logged again."""

ARTIFACTS_EVERY = 60
TIDY_AGAIN_S = 10.0


class Sweeper:
    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        artifacts: Artifacts,
        sessions: NodeSessions,
        changes: JobChanges,
        making_way: MakingWay,
        streams: Sequence[LiveLogs | Tunnels],
    ) -> None:
        self._settings, self._commits, self._clock = context.settings, context.commits, context.clock
        self._cluster, self._scaling = scheduling.cluster, scheduling.scaling
        self._dispatch, self._requests = scheduling.dispatch, scheduling.requests
        self._artifacts, self._sessions, self._changes = artifacts, sessions, changes
        self._making_way = making_way
        self._streams = streams
        self._expected: set[str] = set()
        self._hurried = False  # the last pass did not wait for its time

    def expect(self, nodes: Iterable[str]) -> None:
        """Notes nodes that were connected a moment ago, which get time to return before their workers are
        started elsewhere."""
        self._expected = set(nodes)

    async def run(self) -> None:
        """Makes a pass every `sweep_s` seconds, until cancelled."""
        loop = asyncio.get_running_loop()
        watching_since = last = loop.time()
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            now = loop.time()
            if now - last > self._settings.sweep_s + GAP_S:
                watching_since = now
            last = now
            watched = now - watching_since >= self._settings.silence_s
            try:
                if watched:
                    await self._expire_sessions()
                await self._expire_jobs()
                await self._end_late_jobs()
                revoked = await self._commits.read(revoked_nodes)
                self._sessions.disconnect(revoked)
                for streams in self._streams:
                    streams.disconnect(revoked)
            except Exception as error:  # whatever it is: the next pass does it again
                log.log(level_of(error), "a sweep failed and is done again: %r", error)
                watching_since = loop.time()  # reports of nodes could not be stored either

    async def _expire_jobs(self) -> None:
        while True:
            now = self._clock()
            expired = await self._commits.commit(partial(store.expire, now=now, limit=BATCH))
            self._changes.apply(expired)
            if len(expired) < BATCH:
                return

    async def _end_late_jobs(self) -> None:
        while True:
            now = self._clock()
            ended = await self._commits.commit(partial(store.end_late, now=now, limit=BATCH))
            self._changes.apply(ended)
            if len(ended) < BATCH:
                return

    async def _expire_sessions(self) -> None:
        now, ahead = self._clock(), self._cluster.all_ahead()

        def lose(conn: Conn) -> tuple[dict[str, int], tuple[Changed, ...]]:
            lost, changed = store.lost_nodes(conn, now - self._settings.silence_s, now, ahead)
            return lost, store.noted(conn, changed)

        lost, changed = await self._commits.commit(lose)
        self._sessions.expire(lost)
        self._changes.apply(changed)

    # -- the object store

    async def tidy(self) -> None:
        """Deletes in the object store what has had its time, until cancelled."""
        passes = 0
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            try:
                await self._clear()
                if passes % ARTIFACTS_EVERY == 0:
                    await self._forget_artifacts()
                passes += 1
            except Exception as error:
                log.log(level_of(error), "what is to be deleted in the object store stays for now: %r", error)
                await asyncio.sleep(TIDY_AGAIN_S)

    async def _clear(self) -> None:
        """Deletes what no record names. What cannot be deleted is put aside and holds no other up."""
        gone, aside = [], []
        now = self._clock()
        for name in await self._commits.read(lambda conn: store.due_orphans(conn, now, BATCH)):
            try:
                await self._delete(name)
            except Unavailable:
                break
            except (ControlError, ValueError) as error:
                log.error("%s could not be deleted and is put aside for a day: %s", name, error)
                aside.append(name)
            else:
                gone.append(name)

        def note(conn: Conn) -> None:
            store.forget_orphans(conn, gone)
            store.note_orphans(conn, aside, now + ASIDE_S)

        if gone or aside:
            await self._commits.commit(note)

    async def _delete(self, name: str) -> None:
        """Deletes an object, or every object below a prefix, which ends in a slash."""
        await (self._artifacts.delete_prefix(name) if name.endswith("/") else self._artifacts.delete(name))

    async def _forget_artifacts(self) -> None:
        now = self._clock()
        while keys := await self._commits.read(lambda conn: store.expired_artifacts(conn, now, BATCH)):
            # Noted like any other thing to delete: one that cannot be is no other's business.
            def give_up(conn: Conn, keys: tuple[str, ...] = keys) -> None:
                store.note_orphans(conn, keys)
                store.forget_artifacts(conn, keys)

            await self._commits.commit(give_up)

    # -- demand

    async def scale_workers(self) -> None:
        """Staffs when something changed, and each second, until cancelled."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            self._scaling.wake.clear()
            self._scaling.room.clear()
            sampled_at = self._clock()
            try:
                demand = await self._commits.read(store.queue_sample)
            except Exception as error:
                log.log(level_of(error), "demand could not be sampled: %r", error)
            else:
                self._expected -= self._sessions.connected()  # one that has come and left again is gone
                settled = not self._expected or loop.time() - started > SETTLE_S
                requests = self._requests.samples()
                self._scaling.reconcile({**demand, **requests}, sampled_at, may_start=settled)
                for endpoint, sample in demand.items():
                    if sample.queued or sample.low:
                        self._dispatch.remind(endpoint)
                await self._note_assigned()
                await self._make_way([endpoint for endpoint, sample in demand.items() if sample.queued])
            await self._wait()

    async def _make_way(self, endpoints: Sequence[str]) -> None:
        try:
            await self._making_way.look(endpoints)
        except Exception as error:
            log.log(level_of(error), "whether jobs should yield could not be looked up: %r", error)

    async def _note_assigned(self) -> None:
        """Stores which workers were assigned to nodes and which are not wanted any more. A node that
        reconnects to another process is believed to hold what was assigned to it, and no more."""
        assigned, taken = self._scaling.desired.unstored()
        if not assigned and not taken:
            return
        now = self._clock()

        def note(conn: Conn) -> None:
            store.give_workers(conn, assigned)
            store.take_workers(conn, taken, now)

        try:
            await self._commits.commit(note)
        except Exception as error:
            log.log(level_of(error), "the workers assigned to nodes could not be stored yet: %r", error)
            self._scaling.desired.not_noted(assigned, taken)
        else:
            self._scaling.desired.noted(assigned)

    async def _wait(self) -> None:
        """Waits until demand is to be sampled again. A burst of submissions is one reason to look, not a
        thousand: the sample reads an index. New room for workers ends the pause, as jobs wait for the room,
        but only every other time, as nodes say when there is room."""
        hurried, self._hurried = self._hurried, False
        if hurried:
            await asyncio.sleep(STAFF_PAUSE_S)
        else:
            self._hurried = await _within(STAFF_PAUSE_S, self._scaling.room)
        await _within(1.0, self._scaling.wake)


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Returns whether the event was set in this time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
