"""The audit log: records changes over the management API, and calls that were refused for lack of a right.

    request ──> line begun ──> the change ──> answered ──> line ended      kept for 90 days
                    └─ the store is down: nothing is changed
    no right ──> refused ──> one line

Lines name keys by their ids; bodies and queries are not stored. Of calls with unknown keys, 60 a minute are
recorded, so that callers without a key cannot fill the disk; a warning is logged if there are more.
"""

from __future__ import annotations

import asyncio
import logging

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import level_of
from stoker.control.rules.access import Caller
from stoker.control.rules.types import AuditLine
from stoker.control.store import DEFAULT_ACCOUNT, Conn

log = logging.getLogger(__name__)

KEPT_S = 90 * 86_400.0
SWEEP_EVERY_S = 3_600.0
SWEPT_AT_ONCE = 1_000
UNKNOWN_PER_MINUTE = 60
UNKNOWN_KEY = "unknown"
PATH_CHARACTERS = 512
ERROR_CHARACTERS = 1_024


class Audit:
    def __init__(self, context: Context) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._minute = self._unknown_calls = 0

    async def begin(self, caller: Caller, method: str, path: str) -> int:
        """Begins a line before a change. If this raises Unavailable, nothing may be changed."""
        now = self._clock()
        return await self._commits.commit(
            lambda conn: store.begin_audit(
                conn, caller.account, caller.key, now, method, path[:PATH_CHARACTERS]
            )
        )

    async def end(self, n: int, status: int, message: str) -> None:
        await self._commits.commit(lambda conn: store.end_audit(conn, n, status, message[:ERROR_CHARACTERS]))

    async def refused(self, caller: Caller | None, method: str, path: str, status: int, message: str) -> None:
        """Records a refusal. If the key is unknown, `caller` is None, and the line is the default
        account's."""
        if caller is None and self._is_crowded():
            return
        account, key = (DEFAULT_ACCOUNT, UNKNOWN_KEY) if caller is None else (caller.account, caller.key)
        now = self._clock()

        def note(conn: Conn) -> None:
            n = store.begin_audit(conn, account, key, now, method, path[:PATH_CHARACTERS])
            store.end_audit(conn, n, status, message[:ERROR_CHARACTERS])

        await self._commits.commit(note)

    def _is_crowded(self) -> bool:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._unknown_calls = minute, 0
        self._unknown_calls += 1
        if self._unknown_calls == UNKNOWN_PER_MINUTE + 1:
            log.warning(
                "more than %d calls with unknown keys in a minute: the rest of them is not in the audit log",
                UNKNOWN_PER_MINUTE,
            )
        return self._unknown_calls > UNKNOWN_PER_MINUTE

    async def list(
        self, account: str, *, limit: int, before: int | None = None, since: float | None = None
    ) -> tuple[AuditLine, ...]:
        return await self._commits.read(
            lambda conn: store.list_audit(conn, account, limit=limit, before=before, since=since)
        )

    async def run(self) -> None:
        """Forgets lines that had their time, until cancelled."""
        while True:
            try:
                await self.sweep()
            except Exception as error:
                log.log(level_of(error), "old lines of the audit log stay for now: %r", error)
            await asyncio.sleep(SWEEP_EVERY_S)

    async def sweep(self) -> None:
        until = self._clock() - KEPT_S
        while await self._commits.commit(lambda conn: store.sweep_audit(conn, until, SWEPT_AT_ONCE)):
            pass
