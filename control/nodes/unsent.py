"""Hands back the jobs whose Assign was never sent: their node's session ended after the claim.

    claim ──COMMIT──> is the session still there?  yes ──> Assign
                                                   no  ──> noted here ──> back in the queue, uncounted

Their node never had them, so nothing is lost with it, and they need not wait until it counts as lost. If the
node comes back first, its Hello does the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from stoker.control import store
from stoker.control.errors import level_of
from stoker.control.rules.types import Changed
from stoker.control.store import Conn
from stoker.control.store.database.commits import Commits
from stoker.wire.messages import AttemptKey

log = logging.getLogger(__name__)

RETRY_S = 1.0


class UnsentJobs:
    """The jobs to hand back. `note` may be called from the task that claims; `run` does the rest."""

    def __init__(self, commits: Commits, clock: Callable[[], float]) -> None:
        self._commits = commits
        self._clock = clock
        self._noted: list[tuple[str, AttemptKey]] = []
        self._wake = asyncio.Event()

    def note(self, node: str, key: AttemptKey) -> None:
        """Notes that the node was not sent this attempt, and will not be."""
        self._noted.append((node, key))
        self._wake.set()

    async def run(self, apply: Callable[[Sequence[Changed]], None]) -> None:
        """Hands back what is noted, until cancelled. `apply` takes the changes once they are committed."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            noted, self._noted = self._noted, []
            try:
                apply(await self._hand_back(noted))
            except Exception as error:
                log.log(level_of(error), "jobs that were not sent could not be handed back yet: %s", error)
                self._noted += noted
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _hand_back(self, noted: Sequence[tuple[str, AttemptKey]]) -> Sequence[Changed]:
        now = self._clock()

        def work(conn: Conn) -> Sequence[Changed]:
            return [change for node, key in noted for change in store.hand_back(conn, node, key, now)]

        return await self._commits.commit(work)
