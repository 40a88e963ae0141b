"""The kinds of resource that are managed, each with what it needs of the plane."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from stoker.control.commit import Commits
from stoker.control.dispatch import Dispatch
from stoker.control.endpoints import Endpoints
from stoker.control.floor import Floor
from stoker.control.management.catalog import Catalog
from stoker.control.management.registries import Registries
from stoker.control.management.secrets import SecretBook
from stoker.control.management.templates import Templates
from stoker.control.management.volumes import Volumes
from stoker.control.staffing import Staffing
from stoker.wire.messages import RegistryAuth


class Management:
    def __init__(
        self,
        commits: Commits,
        endpoints: Endpoints,
        floor: Floor,
        staffing: Staffing,
        dispatch: Dispatch,
        clock: Callable[[], float],
        rng: Random,
        registries: Mapping[str, RegistryAuth],
    ) -> None:
        self.commits = commits
        self.endpoint_book = endpoints
        self.floor = floor
        self.staffing = staffing
        self.dispatch = dispatch
        self.clock = clock
        self.rng = rng
        self.catalog = Catalog(floor)
        self.registries = Registries(commits, registries, clock, rng)
        self.secrets = SecretBook(commits, staffing, clock)
        self.templates = Templates(commits, self.registries, self.secrets, clock, rng)
        self.volumes = Volumes(commits, floor, staffing, self.catalog, clock, rng)

    async def start(self) -> None:
        """To be awaited before a node comes."""
        await self.secrets.load()
        await self.volumes.load()
