"""Reads bills, and bills disks and volumes by the minute, whether they are used or not.

Disks and volumes cost while they exist. The time up to which each was billed is stored with it, so after a
failure, or an outage of days, the next pass catches up. Before a size changes, it is billed up to that
moment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import level_of
from stoker.control.resources.endpoint_workers import EndpointWorker
from stoker.control.rules.billing import CPU, BillRecord, BucketSize, PriceList, hourly, records
from stoker.control.rules.pods import Pod
from stoker.control.rules.types import Endpoint
from stoker.control.store import BillQuery, Conn
from stoker.control.store.jobs.quota_uses import forget_gpu_days

log = logging.getLogger(__name__)

EVERY_S = 60.0
BATCH = 500


class Billing:
    def __init__(self, context: Context) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._settings = context.settings

    @property
    def _prices(self) -> PriceList:
        return self._settings.price_list

    async def read(self, query: BillQuery, size: BucketSize) -> list[BillRecord]:
        """Returns the bills, summed up in the reading thread, because a million rows would block the loop.
        All buckets but hours consist of whole days, which the database sums up faster."""
        days = size != "hour"
        return await self._commits.read(
            lambda conn: records(
                store.read_bills(conn, query, days=days), store.read_spaces(conn, query), size
            )
        )

    def pod_hour(self, pod: Pod) -> int | None:
        """Returns the price of its devices for an hour in nano-USD, or None while its devices are unknown."""
        cpu = pod.body.compute == "CPU"
        return hourly(self._prices, CPU if cpu else pod.gpu_type, 1 if cpu else pod.body.gpu_count)

    def device_hour(self, device_type: str) -> int | None:
        """Returns the price of one device of a type for an hour, or None if none is set."""
        return hourly(self._prices, device_type, 1) or None

    def worker_hour(self, worker: EndpointWorker, endpoint: Endpoint) -> int | None:
        """Returns the price of an endpoint's worker for an hour, by the part of each device that it takes."""
        device = worker.gpus[0] if worker.gpus else CPU
        whole = hourly(self._prices, device, len(worker.gpus) or 1)
        return round(whole * endpoint.run.needs.share) if whole else None

    def workers_hour(self, workers: Iterable[EndpointWorker], endpoint: Endpoint) -> int | None:
        """Returns the price of all workers on nodes for an hour; None where there is no price."""
        prices = [self.worker_hour(worker, endpoint) for worker in workers if worker.node]
        return sum(price or 0 for price in prices) if any(prices) else None

    def before_pod_changes(self, conn: Conn, pod: str) -> None:
        store.bill_pods(conn, self._prices, self._clock(), pod)

    def before_volume_changes(self, conn: Conn, volume: str) -> None:
        store.bill_volumes(conn, self._prices, self._clock(), volume)

    async def run(self) -> None:
        """Bills every minute, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._pass()
            except Exception as error:
                log.log(level_of(error), "disks and volumes are billed with the next pass: %r", error)

    async def _pass(self) -> None:
        now = self._clock()
        if await self._commits.read(store.spaces_due):
            await self._commits.commit(partial(_bill_all, prices=self._prices, now=now))
        await self._commits.commit(lambda conn: forget_gpu_days(conn, now))
        while await self._commits.read(lambda conn: store.usage_due(conn, now)):
            await self._commits.commit(lambda conn: store.forget_usage(conn, now, BATCH))


def _bill_all(conn: Conn, prices: PriceList, now: float) -> None:
    store.bill_pods(conn, prices, now)
    store.bill_volumes(conn, prices, now)
