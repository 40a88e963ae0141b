"""A real plane over a store in memory, and the whole API in front of it, called without a network.

`managed(...)` works on a real loop and in stories of virtual time; `base_url` is the management API's, so
`http.get("/templates")` asks /v1/templates, and `http.get(V2 + "/echo/health")` an endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from starlette.types import ASGIApp

from stoker.control.config.settings import PlaneSettings
from stoker.control.http.calls.app import make_app
from stoker.control.http.calls.settings import ApiSettings
from stoker.control.http.management.app import make_management_app
from stoker.control.plane import Plane
from stoker.control.resources import ManagedResources
from stoker.control.rules.types import Endpoint
from tests.control.plane_world import World

V2 = "http://stoker/v2"
STRICT = {"Prefer": "handling=strict"}
"""As Stoker's own client asks: names that nobody knows are refused."""


@dataclass
class Managed:
    world: World
    app: ASGIApp
    http: httpx2.AsyncClient
    running: asyncio.Task[None] | None = field(default=None)

    @property
    def plane(self) -> Plane:
        return self.world.plane

    @property
    def management(self) -> ManagedResources:
        return self.world.plane.management

    def run(self) -> None:
        """The plane's own work from now on, until the block ends: jobs move."""
        self.running = asyncio.create_task(self.plane.run(), name="plane")

    async def made(self, path: str, **fields: Any) -> dict[str, Any]:
        """Created over HTTP, and what was answered."""
        answer = await self.http.post(path, json=fields)
        assert answer.status_code in (200, 201), answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def again(self, *endpoints: Endpoint) -> None:
        """Another control process on the same store; `endpoints` are in its configuration's file."""
        old = self.world.plane
        if self.running is not None:
            await _ended(self.running)
            self.running = None
        settings, world = self.world.settings, self.world
        world.plane = Plane(settings, world.commits, world.artifacts, world.now, old._context.rng, world.post)
        await world.plane.start(endpoints)
        self.app = make_app(world.plane, ApiSettings(rate_limits=False), make_management_app(world.plane))
        self.http._transport = httpx2.ASGITransport(self.app, raise_app_exceptions=True)


@asynccontextmanager
async def managed(*endpoints: Endpoint, settings: PlaneSettings | None = None) -> AsyncIterator[Managed]:
    """`endpoints` are declared in the configuration's file."""
    world = World()
    world.settings = settings or world.settings
    await world.open(*endpoints)
    app = make_app(world.plane, ApiSettings(rate_limits=False), make_management_app(world.plane))
    headers = {"Authorization": f"Bearer {world.key}"}
    transport = httpx2.ASGITransport(app, raise_app_exceptions=True)
    try:
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://stoker/v1", headers=headers
        ) as http:
            made = Managed(world, app, http)
            try:
                yield made
            finally:
                if made.running is not None:
                    await _ended(made.running)
    finally:
        world.store.close()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
