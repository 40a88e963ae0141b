"""Holds all kinds of resources, each with the parts of the plane that it needs."""

from __future__ import annotations

import asyncio
import logging

from stoker.control.auth.callers import Callers
from stoker.control.context import Context
from stoker.control.errors import ControlError, level_of
from stoker.control.jobs.waiters import JobChanges
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.yields import Yields
from stoker.control.resources.audit import Audit
from stoker.control.resources.billing import Billing
from stoker.control.resources.catalog import Catalog
from stoker.control.resources.endpoints import ManagedEndpoints
from stoker.control.resources.keys import Keys
from stoker.control.resources.named import Named
from stoker.control.resources.nodes import ManagedNodes
from stoker.control.resources.pods.pods import ManagedPods
from stoker.control.resources.registries import Registries
from stoker.control.resources.secrets import ManagedSecrets
from stoker.control.resources.templates import Templates
from stoker.control.resources.temporary import TemporaryEndpoints
from stoker.control.resources.volumes import Volumes
from stoker.control.resources.webhook_secret import WebhookSecret
from stoker.control.scheduling.desired_pods import DesiredState
from stoker.control.scheduling.scheduling import Scheduling

log = logging.getLogger(__name__)

RELOAD_AGAIN_S = 1.0


class ManagedResources:
    """Keeps resources in memory as they are in the store. `uncertain` is set when it is unknown whether a
    commit was done: then everything is loaded again."""

    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        sessions: NodeSessions,
        yields: Yields,
        changes: JobChanges,
        callers: Callers,
        desired: DesiredState,
    ) -> None:
        self._callers, self.cluster, self.clock = callers, scheduling.cluster, context.clock
        self.uncertain = asyncio.Event()
        self.catalog = Catalog(context.commits, scheduling.cluster)
        self.billing = Billing(context)
        self.keys = Keys(context, callers, scheduling.endpoints)
        self.audit = Audit(context)
        self.webhook_secret = WebhookSecret(context.commits)
        self.nodes = ManagedNodes(context, scheduling, sessions, yields)
        self.registries = Registries(context)
        self.secrets = ManagedSecrets(context, desired.secrets, scheduling.scaling)
        self.volumes = Volumes(context, scheduling, desired.volumes, self.catalog, self.billing)
        named = Named(self.catalog, self.registries, self.secrets, self.volumes)
        self.endpoints = ManagedEndpoints(context, scheduling, changes, named)
        self.temporary = TemporaryEndpoints(context, scheduling, self.endpoints)
        self.templates = Templates(context, self.endpoints, named)
        self.pods = ManagedPods(context, scheduling, desired.pods, named, callers, self.billing)

    async def start(self) -> None:
        """Loads everything. To be awaited before a node connects."""
        await self.catalog.load()
        await self.nodes.load()
        await self.secrets.load()
        await self.volumes.load()

    async def run(self) -> None:
        """Loads everything again after each uncertain commit, until cancelled."""
        while True:
            await self.uncertain.wait()
            self.uncertain.clear()
            try:
                await self.start()
                await self.endpoints.load()
                self._callers.forget()
            except ControlError as error:
                log.log(
                    level_of(error),
                    "the resources cannot be loaded, and are loaded again in a moment: %s",
                    error,
                )
                self.uncertain.set()
                await asyncio.sleep(RELOAD_AGAIN_S)
