"""The kinds of resource that are managed, each with what it needs of the plane."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from stoker.control.callers import Callers
from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.endpoints import Endpoints
from stoker.control.errors import ControlError
from stoker.control.floor import Floor
from stoker.control.management.audit import Audit
from stoker.control.management.billing import Billing
from stoker.control.management.catalog import Catalog
from stoker.control.management.endpoints import ManagedEndpoints
from stoker.control.management.keys import Keys
from stoker.control.management.nodes import NodeBook
from stoker.control.management.pods import Pods
from stoker.control.management.registries import Registries
from stoker.control.management.secrets import SecretBook
from stoker.control.management.templates import Templates
from stoker.control.management.volumes import Volumes
from stoker.control.nodes import Nodes
from stoker.control.settings import PlaneSettings
from stoker.control.staffing import Staffing

log = logging.getLogger(__name__)

RELOAD_AGAIN_S = 1.0


class Management:
    """What is kept in memory is what the store has. `doubted` is set where a commit broke off and was done,
    or was not: then all of it is read anew."""

    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        endpoints: Endpoints,
        floor: Floor,
        staffing: Staffing,
        dispatch: Dispatch,
        nodes: Nodes,
        clock: Callable[[], float],
        rng: Random,
        callers: Callers,
    ) -> None:
        self.commits = commits
        self.endpoint_book = endpoints
        self.floor = floor
        self.staffing = staffing
        self.dispatch = dispatch
        self.clock = clock
        self.rng = rng
        self.callers = callers
        self.doubted = asyncio.Event()
        self.catalog = Catalog(commits, floor)
        self.keys = Keys(commits, callers, endpoints, clock)
        self.audit = Audit(commits, clock)
        self.nodes = NodeBook(commits, floor, staffing, clock, settings.silence_s)
        self.registries = Registries(commits, settings.registries, clock, rng)
        self.secrets = SecretBook(commits, staffing, clock)
        self.volumes = Volumes(commits, floor, staffing, self.catalog, clock, rng)
        self.endpoints = ManagedEndpoints(
            settings,
            commits,
            endpoints,
            floor,
            staffing,
            dispatch,
            nodes,
            self.catalog,
            self.registries,
            self.secrets,
            self.volumes,
            clock,
            rng,
        )
        self.templates = Templates(commits, self.endpoints, self.registries, self.secrets, clock, rng)
        self.pods = Pods(
            commits,
            floor,
            staffing,
            self.catalog,
            self.volumes,
            self.registries,
            self.secrets,
            clock,
            rng,
        )
        self.billing = Billing(commits, settings.price_list, clock)
        self.pods.price = self.billing.pod_hour
        self.pods.before_change = self.billing.before_pod_changes
        self.volumes.before_change = self.billing.before_volume_changes

    async def start(self) -> None:
        """To be awaited before a node comes."""
        await self.catalog.load()
        await self.nodes.load()
        await self.secrets.load()
        await self.volumes.load()

    async def run(self) -> None:
        """Ends doubts, until cancelled."""
        while True:
            await self.doubted.wait()
            self.doubted.clear()
            try:
                await self.start()
                await self.endpoints.load()
                self.callers.forget()
            except ControlError as error:
                log.error("what is managed is read again in a moment: %s", error)
                self.doubted.set()
                await asyncio.sleep(RELOAD_AGAIN_S)
