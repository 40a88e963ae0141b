"""What happens by the clock: expiry, silent nodes, demand, and the object store's leftovers.

Everything here is idempotent and driven by the store, so a pass that fails is simply done again. A gap in
this module's own runs (a suspended host, a store that is full) is not held against nodes: silence is counted
only while this process has been watching. The object store is tidied beside all that: one that hangs holds
nothing else up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from stoker.control import store
from stoker.control.artifacts import Artifacts
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.errors import ControlError, Unavailable
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.types import Changed

log = logging.getLogger(__name__)

BATCH = 500
GAP_S = 5.0
SETTLE_S = 10.0
"""A new process waits so long for nodes that were alive a moment ago before it starts workers elsewhere."""

STAFF_PAUSE_S = 0.05

ARTIFACTS_EVERY = 60
TIDY_AGAIN_S = 10.0


class Sweeper:
    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        artifacts: Artifacts,
        staffing: Staffing,
        dispatch: Dispatch,
        nodes: Nodes,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._commits = commits
        self._artifacts = artifacts
        self._staffing = staffing
        self._dispatch = dispatch
        self._nodes = nodes
        self._clock = clock
        self._expected: set[str] = set()

    def expect(self, nodes: Iterable[str]) -> None:
        """These were connected a moment ago: no worker is started elsewhere until they had time to return."""
        self._expected = set(nodes)

    async def run(self) -> None:
        """A pass each `sweep_s`, until cancelled."""
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
                    await self._lapse()
                await self._expire()
            except Exception as error:  # whatever it is: the next pass does it again
                log.error("a sweep failed and is done again: %r", error)
                watching_since = loop.time()  # what nodes said could not be stored either

    async def _expire(self) -> None:
        while True:
            now = self._clock()
            expired = await self._commits.commit(partial(store.expire, now=now, limit=BATCH))
            self._nodes.apply(expired)
            if len(expired) < BATCH:
                return

    async def _lapse(self) -> None:
        now = self._clock()

        def lapse(conn: Conn) -> tuple[dict[str, int], tuple[Changed, ...]]:
            lost, changed = store.lost_nodes(conn, now - self._settings.silence_s, now)
            return lost, store.noted(conn, changed)

        lost, changed = await self._commits.commit(lapse)
        self._nodes.lapse(lost)
        self._nodes.apply(changed)

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
                log.error("what is to be deleted in the object store stays for now: %r", error)
                await asyncio.sleep(TIDY_AGAIN_S)

    async def _clear(self) -> None:
        """Deletes what no record names any more. What cannot be deleted stays noted and holds no other up."""
        gone = []
        now = self._clock()
        for name in await self._commits.read(lambda conn: store.leftovers(conn, now, BATCH)):
            try:
                await self._delete(name)
            except Unavailable:
                break
            except ControlError as error:
                log.error("%s could not be deleted: %s", name, error)
            else:
                gone.append(name)
        if gone:
            await self._commits.commit(partial(store.forget_leftovers, names=gone))

    async def _delete(self, name: str) -> None:
        """A prefix ends in a slash."""
        await (self._artifacts.delete_prefix(name) if name.endswith("/") else self._artifacts.delete(name))

    async def _forget_artifacts(self) -> None:
        now = self._clock()
        while keys := await self._commits.read(lambda conn: store.expired_artifacts(conn, now, BATCH)):
            for key in keys:
                await self._artifacts.delete(key)
            await self._commits.commit(partial(store.forget_artifacts, keys=keys))

    # -- demand

    async def staff(self) -> None:
        """Staffs when something changed, and each second, until cancelled."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        while True:
            self._staffing.wake.clear()
            asked = self._clock()
            try:
                demand = await self._commits.read(store.queue_sample)
            except Exception as error:
                log.error("demand could not be sampled: %r", error)
            else:
                settled = self._expected <= self._nodes.connected() or loop.time() - started > SETTLE_S
                self._staffing.staff(demand, asked, may_start=settled)
                for endpoint, sample in demand.items():
                    if sample.queued or sample.low:
                        self._dispatch.remind(endpoint)
            await self._wait()

    async def _wait(self) -> None:
        """A burst of submissions is one reason to look, not a thousand: the sample reads an index."""
        await asyncio.sleep(STAFF_PAUSE_S)
        try:
            async with asyncio.timeout(1.0):
                await self._staffing.wake.wait()
        except TimeoutError:
            pass
