"""What happens by the clock: expiry, silent nodes, demand, and the object store's leftovers.

Everything here is idempotent and driven by the store, so a pass that fails is simply done again. A gap in
this module's own runs (a suspended host, a long outage) is not held against nodes: silence is counted only
while this process has been watching.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from stoker.control import store
from stoker.control.artifacts import Artifacts
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.errors import ControlError
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.types import QueueSample

log = logging.getLogger(__name__)

BATCH = 500
GAP_S = 5.0
SETTLE_S = 10.0
"""A new process waits so long for nodes that were alive a moment ago before it starts workers elsewhere."""

ARTIFACTS_EVERY = 60


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

    async def run(self) -> None:
        """A pass each `sweep_s`, until cancelled."""
        loop = asyncio.get_running_loop()
        watching_since = last = loop.time()
        passes = 0
        while True:
            await asyncio.sleep(self._settings.sweep_s)
            now = loop.time()
            if now - last > self._settings.sweep_s + GAP_S:
                watching_since = now
            last = now
            watched = now - watching_since >= self._settings.silence_s
            try:
                await self._pass(watched, artifacts=passes % ARTIFACTS_EVERY == 0)
            except ControlError as error:
                log.error("a sweep failed and is done again: %s", error)
            passes += 1

    async def _pass(self, watched: bool, *, artifacts: bool) -> None:
        await self._expire()
        if watched:
            await self._lapse()
        if artifacts:
            await self._forget_artifacts()

    async def _expire(self) -> None:
        now = self._clock()
        expired = await self._commits.commit(lambda conn: store.expire(conn, now, BATCH))
        self._nodes.apply(expired.changed, {})
        for prefix in expired.prefixes:
            await self._artifacts.delete_prefix(prefix)

    async def _lapse(self) -> None:
        now = self._clock()
        silent = now - self._settings.silence_s
        self._nodes.apply(await self._commits.commit(lambda conn: store.lost_nodes(conn, silent, now)), {})

    async def _forget_artifacts(self) -> None:
        now = self._clock()
        keys = await self._commits.read(lambda conn: store.expired_artifacts(conn, now, BATCH))
        for key in keys:
            await self._artifacts.delete(key)
        if keys:
            await self._commits.commit(lambda conn: store.forget_artifacts(conn, keys))

    # -- demand

    async def staff(self) -> None:
        """Staffs when something changed, and each second, until cancelled."""
        loop = asyncio.get_running_loop()
        expected = await self._commits.read(lambda conn: store.live_nodes(conn, self._clock() - 60.0))
        started = loop.time()
        while True:
            try:
                demand = await self._commits.read(self._sample)
            except ControlError as error:
                log.error("demand could not be sampled: %s", error)
            else:
                settled = set(expected) <= self._nodes.connected() or loop.time() - started > SETTLE_S
                self._staffing.staff(demand, may_start=settled)
                for endpoint, sample in demand.items():
                    if (sample.queued or sample.low) and not self._dispatch.may_wait(endpoint):
                        self._dispatch.mark(endpoint)
            await self._wait()

    def _sample(self, conn: Conn) -> dict[str, QueueSample]:
        return {sample.endpoint: sample for sample in store.queue_sample(conn)}

    async def _wait(self) -> None:
        self._staffing.wake.clear()
        try:
            async with asyncio.timeout(1.0):
                await self._staffing.wake.wait()
        except TimeoutError:
            pass
