"""Bills: what is read of them; and what exists is billed by the minute, whether anybody uses it or not.

Disks and volumes cost while they exist. Up to when each is billed is stored with it, so a pass that failed,
or an outage of days, is made up for by the next one. Whoever changes a size bills up to that moment first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from stoker.control import store
from stoker.control.billing import CPU, BillRecord, BucketSize, PriceList, hourly, records
from stoker.control.commit import Commits
from stoker.control.pod import Pod
from stoker.control.store import BillQuery, Conn

log = logging.getLogger(__name__)

EVERY_S = 60.0
BATCH = 500


class Billing:
    def __init__(self, commits: Commits, prices: PriceList, clock: Callable[[], float]) -> None:
        self._commits = commits
        self._prices = prices
        self._clock = clock

    async def read(self, query: BillQuery, size: BucketSize) -> list[BillRecord]:
        """Summed up where it is read: beside the calls, which a million rows would hold up. All buckets but
        hours have whole days, and the database sums these up faster."""
        days = size != "hour"
        return await self._commits.read(lambda conn: records(store.read_bills(conn, query, days=days), size))

    def pod_hour(self, pod: Pod) -> int | None:
        """What its devices cost for an hour, in nano-USD; None while it is not known which it has."""
        cpu = pod.body.compute == "CPU"
        return hourly(self._prices, CPU if cpu else pod.gpu_type, 1 if cpu else pod.body.gpu_count)

    def before_pod_changes(self, conn: Conn, pod: str) -> None:
        store.bill_pods(conn, self._prices, self._clock(), pod)

    def before_volume_changes(self, conn: Conn, volume: str) -> None:
        store.bill_volumes(conn, self._prices, self._clock(), volume)

    async def run(self) -> None:
        """A pass each minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._pass()
            except Exception as error:
                log.error("disks and volumes are billed with the next pass: %r", error)

    async def _pass(self) -> None:
        now = self._clock()
        if await self._commits.read(store.spaces_due):
            await self._commits.commit(partial(_bill_all, prices=self._prices, now=now))
        while await self._commits.read(lambda conn: store.usage_due(conn, now)):
            await self._commits.commit(lambda conn: store.forget_usage(conn, now, BATCH))


def _bill_all(conn: Conn, prices: PriceList, now: float) -> None:
    store.bill_pods(conn, prices, now)
    store.bill_volumes(conn, prices, now)
