"""Holds all kinds of resources, each with the parts of the plane that it needs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from stoker.control.auth.callers import Callers
from stoker.control.config.endpoints import Endpoints
from stoker.control.config.settings import PlaneSettings
from stoker.control.errors import ControlError
from stoker.control.jobs.waiters import JobChanges
from stoker.control.nodes.sessions import NodeSessions
from stoker.control.nodes.yields import Yields
from stoker.control.resources.audit import Audit
from stoker.control.resources.billing import Billing
from stoker.control.resources.catalog import Catalog
from stoker.control.resources.endpoints import ManagedEndpoints
from stoker.control.resources.keys import Keys
from stoker.control.resources.nodes import ManagedNodes
from stoker.control.resources.pods.pods import ManagedPods
from stoker.control.resources.registries import Registries
from stoker.control.resources.secrets import ManagedSecrets
from stoker.control.resources.templates import Templates
from stoker.control.resources.temporary import TemporaryEndpoints
from stoker.control.resources.volumes import Volumes
from stoker.control.resources.webhook_secret import WebhookSecret
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.desired_pods import DesiredState
from stoker.control.scheduling.dispatch import Dispatch
from stoker.control.scheduling.requests import Requests
from stoker.control.scheduling.worker_scaling import WorkerScaling
from stoker.control.store.database.commits import Commits

log = logging.getLogger(__name__)

RELOAD_AGAIN_S = 1.0


class ManagedResources:
    """Keeps resources in memory as they are in the store. `uncertain` is set when it is unknown whether a
    commit was done: then everything is loaded again."""

    def __init__(
        self,
        settings: PlaneSettings,
        commits: Commits,
        endpoints: Endpoints,
        cluster: ClusterState,
        scaling: WorkerScaling,
        dispatch: Dispatch,
        sessions: NodeSessions,
        yields: Yields,
        changes: JobChanges,
        clock: Callable[[], float],
        rng: Random,
        callers: Callers,
        desired: DesiredState,
        requests: Requests,
    ) -> None:
        self.commits = commits
        self.cluster = cluster
        self.scaling = scaling
        self.dispatch = dispatch
        self.clock = clock
        self.rng = rng
        self.callers = callers
        self.uncertain = asyncio.Event()
        self.catalog = Catalog(commits, cluster)
        self.billing = Billing(commits, settings.price_list, clock)
        self.keys = Keys(commits, callers, endpoints, clock)
        self.audit = Audit(commits, clock)
        self.webhook_secret = WebhookSecret(commits)
        self.nodes = ManagedNodes(
            commits, cluster, scaling, clock, settings.silence_s, sessions.disconnect, yields
        )
        self.registries = Registries(commits, settings.registries, clock, rng)
        self.secrets = ManagedSecrets(commits, desired.secrets, scaling, clock)
        self.volumes = Volumes(
            commits,
            cluster,
            desired.volumes,
            scaling,
            self.catalog,
            self.billing.before_volume_changes,
            clock,
            rng,
        )
        self.endpoints = ManagedEndpoints(
            settings,
            commits,
            endpoints,
            cluster,
            scaling,
            dispatch,
            changes,
            self.catalog,
            self.registries,
            self.secrets,
            self.volumes,
            clock,
            rng,
        )
        self.temporary = TemporaryEndpoints(commits, endpoints, self.endpoints, requests, clock)
        self.templates = Templates(commits, self.endpoints, self.registries, self.secrets, clock, rng)
        self.pods = ManagedPods(
            commits,
            cluster,
            desired.pods,
            scaling,
            self.catalog,
            self.volumes,
            self.registries,
            self.secrets,
            callers,
            self.billing.pod_hour,
            self.billing.before_pod_changes,
            clock,
            rng,
        )

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
                self.callers.forget()
            except ControlError as error:
                log.error("the resources cannot be loaded, and are loaded again in a moment: %s", error)
                self.uncertain.set()
                await asyncio.sleep(RELOAD_AGAIN_S)
