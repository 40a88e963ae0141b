"""The end of temporary endpoints, with the templates that were made for them: a day after their last use; an
hour, where they were made for a replay. Half an hour after it their minimum of workers is 0.

The store and the requests that this process has seen tell of the last use; `rules.temporary` decides. A pass
that fails is done again.
"""

from __future__ import annotations

import asyncio
import logging

from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import level_of
from stoker.control.resources.endpoints import ManagedEndpoints
from stoker.control.rules.temporary import Use, is_unused, life_s, may_cool
from stoker.control.rules.types import LOAD_BALANCER, Endpoint
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn

log = logging.getLogger(__name__)

EVERY_S = 600.0


class TemporaryEndpoints:
    def __init__(self, context: Context, scheduling: Scheduling, endpoints: ManagedEndpoints) -> None:
        self._commits, self._clock = context.commits, context.clock
        self._book, self._requests, self._endpoints = scheduling.endpoints, scheduling.requests, endpoints

    async def run(self) -> None:
        """Makes a pass over the temporary endpoints every ten minutes, until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            for endpoint in [one for one in self._book.by_id.values() if one.temporary]:
                try:
                    await self._look_at(endpoint)
                except Exception as error:  # whatever it is: the next pass does it again
                    log.log(
                        level_of(error),
                        "whether endpoint %s is unused is checked again later: %r",
                        endpoint.id,
                        error,
                    )

    async def _look_at(self, endpoint: Endpoint) -> None:
        use, now = await self._commits.read(lambda conn: self._use(conn, endpoint)), self._clock()
        if use is None:
            return
        if is_unused(use, now, life_s(endpoint)):
            await self._remove(endpoint)
        elif endpoint.workers_min and may_cool(use, now):
            await self._endpoints.update(endpoint.account, endpoint.id, {"workersMin": 0})
            log.info("temporary endpoint %s (%s): no use, its minimum is 0 now", endpoint.id, endpoint.name)

    async def _remove(self, endpoint: Endpoint) -> None:
        def still_unused(conn: Conn) -> bool:
            use = self._use(conn, endpoint)
            return use is not None and is_unused(use, self._clock(), life_s(endpoint))

        if await self._endpoints.delete_if(endpoint, still_unused):
            log.info("temporary endpoint %s (%s) was unused for long: deleted", endpoint.id, endpoint.name)
            await self._commits.commit(lambda conn: self._remove_template(conn, endpoint))

    def _use(self, conn: Conn, endpoint: Endpoint) -> Use | None:
        use = store.use_of(conn, endpoint.id)
        if use is not None and endpoint.type == LOAD_BALANCER:  # healthy workers show nothing about requests
            in_use = endpoint.id in self._requests.samples()
            use = replace(use, open=in_use, worked_at=None, requested_at=self._requests.last_at(endpoint.id))
        return use

    def _remove_template(self, conn: Conn, endpoint: Endpoint) -> None:
        """Removes the endpoint's template if the template has the endpoint's name and makes no other
        endpoint."""
        template = store.get_template(conn, endpoint.template)
        if template is None or template.name != endpoint.name:
            return
        if all(one.template != template.id for one in store.list_endpoints(conn)):
            store.remove_template(conn, template.id, self._clock())
