"""Live endpoints on the platform: found, created, updated, replaced and removed, as `plan` says.

One endpoint is provisioned once at a time, and three endpoints at most. What came of it is kept in the local
file (`cache`) and in `states`, from which the caller reads why an endpoint failed. It goes on if its caller
leaves: the platform may have made an endpoint whose id would be unknown.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.cli.dev.live_endpoints import cache
from stoker.cli.dev.live_endpoints.leaving import Staying
from stoker.cli.dev.live_endpoints.plan import Action, Cached, Existing, Wanted, decide, stale
from stoker.cli.dev.project import AppEndpoint
from stoker.cli.errors import CliError
from stoker.client import AsyncClient, ClientError, NotFound
from stoker.client.apps.resources import (
    IMAGE,
    LIVE_PREFIX,
    config_hash,
    endpoint_body,
    endpoint_changes,
    template_body,
    template_changes,
)
from stoker.control.rules.limits import DEV_DEPLOYS_AT_ONCE


class Provisioning:
    """The provisioning of live endpoints. `folder` has the local file. `say` prints a sentence. `close` ends
    what goes on without a caller."""

    def __init__(self, stoker: AsyncClient, folder: Path, say: Callable[[str], None]) -> None:
        self._manage, self._folder, self._say = stoker.manage, folder, say
        self._cached: dict[str, Cached] = {}
        self._existing: dict[str, Existing] = {}
        self._made: set[str] = set()
        self._slots = asyncio.Semaphore(DEV_DEPLOYS_AT_ONCE)
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._running: set[asyncio.Task[str]] = set()
        self.states: dict[str, str] = {}
        """The state of endpoints that were provisioned: `ready`, or `failed: ` and why."""

    async def start(self) -> None:
        """Reads the local file, and what the platform has. Raises ClientError."""
        self._cached, broken = cache.read(self._folder)
        if broken:
            self._say(broken)
        self._existing = live_endpoints(await self._manage.endpoints.list())
        if gone := stale(self._cached, self._existing):
            self._say(f"{', '.join(gone)}: not on the platform any more, and created again when needed")
            for name in gone:
                del self._cached[name]
            self._write()

    def plan(self, endpoints: Iterable[AppEndpoint]) -> dict[str, Action]:
        """Returns what provisioning each of these endpoints would do now, by name."""
        return {LIVE_PREFIX + one.name: self._decide(one) for one in endpoints}

    async def ensure(self, served: AppEndpoint) -> str:
        """Returns the id of the live endpoint, which is created or updated first if need be. Raises
        ClientError."""
        running = asyncio.create_task(self._ensure(served), name=f"provisions {served.name}")
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    async def close(self) -> None:
        for one in self._running:
            one.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def _ensure(self, served: AppEndpoint) -> str:
        name = LIVE_PREFIX + served.name
        async with self._turns[name], self._slots:
            action = self._decide(served)
            try:
                done = await self._carry_out(name, served, action)
            except ClientError as error:
                self.states[name] = f"failed: {error}"
                raise
            self.states.setdefault(name, "ready")
            if action.verb != "keep":
                self.states[name] = "ready"
                if action.verb == "create":
                    self._made.add(name)
                self._cached[name] = Cached(done.id, done.template, wanted(served).hash)
                self._write()
                self._say(f"{name}: {action.verb}d, {done.id} ({action.reason})")
            return done.id

    async def provision(self, endpoints: Iterable[AppEndpoint]) -> None:
        """Provisions all of them; one that fails is reported, and does not keep the others."""

        async def one(served: AppEndpoint) -> None:
            try:
                await self.ensure(served)
            except (ClientError, CliError) as error:
                self._say(f"{LIVE_PREFIX}{served.name} could not be provisioned: {error}")

        async with asyncio.TaskGroup() as tasks:
            for served in endpoints:
                tasks.create_task(one(served))

    def forget(self, served: AppEndpoint, endpoint: str) -> None:
        """Forgets an endpoint that the platform no longer has: the next `ensure` creates one, unless another
        call has done so meanwhile."""
        existing = self._existing.get(LIVE_PREFIX + served.name)
        if existing is not None and existing.id == endpoint:
            del self._existing[LIVE_PREFIX + served.name]

    async def leave(self) -> list[Staying]:
        """Lets the endpoints that were provisioned from here end all their workers once these are idle.
        Returns what stays. Raises ClientError."""
        for name, existing in self._existing.items():
            if name in self._cached and existing.workers_min:
                with suppress(NotFound):
                    await self._manage.endpoints.update(existing.id, {"workersMin": 0})
        ours = {one.id for one in self._cached.values()}
        found = await self._manage.endpoints.list(includeWorkers=True)
        return [Staying.of(one) for one in found if one["id"] in ours]

    async def clean(self, names: Iterable[str]) -> list[str]:
        """Deletes the live endpoints with these names and those of the local file, with their templates.
        Returns the names of those that were there."""
        return await self._remove({*names, *self._cached})

    async def remove_made(self) -> list[str]:
        """Deletes the endpoints that were created since the start. Returns their names."""
        return await self._remove(self._made)

    async def _remove(self, names: set[str]) -> list[str]:
        removed = sorted(names & self._existing.keys())
        for name in removed:
            await self._delete(self._existing.pop(name))
        self._cached = {name: one for name, one in self._cached.items() if name not in names}
        self._write()
        return removed

    # -- one endpoint

    def _decide(self, served: AppEndpoint) -> Action:
        name = LIVE_PREFIX + served.name
        return decide(wanted(served), self._cached.get(name), self._existing.get(name))

    async def _carry_out(self, name: str, served: AppEndpoint, action: Action) -> Existing:
        existing = action.existing
        if existing is not None and action.verb == "keep":
            return existing
        if existing is not None and action.verb == "replace":
            await self._delete(existing)
            existing = None
        template = template_body(served.endpoint, served.definition, name=name, live=True)
        try:
            made = await self._put(name, served, existing, template)
        except NotFound:  # somebody deleted it
            made = await self._put(name, served, None, template)
        self._existing[name] = _existing(made)
        return self._existing[name]

    async def _put(
        self, name: str, served: AppEndpoint, existing: Existing | None, template: Mapping[str, Any]
    ) -> Any:
        if existing is None:
            body = self._body(name, served, await self._put_template(name, template))
            return await self._manage.endpoints.create(body)
        await self._manage.templates.update(existing.template, template_changes(template))
        body = self._body(name, served, existing.template)
        return await self._manage.endpoints.update(existing.id, endpoint_changes(body))

    def _body(self, name: str, served: AppEndpoint, template: str) -> dict[str, Any]:
        body = endpoint_body(served.endpoint, served.definition, name=name, template_id=template)
        return {**body, "temporary": True}

    async def _put_template(self, name: str, template: Mapping[str, Any]) -> str:
        """Creates or updates the template with this name and returns its id; an earlier run may have left
        one."""
        for one in await self._manage.templates.list(includeEndpointBoundTemplates=True):
            if one["name"] == name and one["imageName"] == IMAGE:
                await self._manage.templates.update(one["id"], template_changes(template))
                return str(one["id"])
        return str((await self._manage.templates.create(template))["id"])

    async def _delete(self, existing: Existing) -> None:
        for kind, member in (
            (self._manage.endpoints, existing.id),
            (self._manage.templates, existing.template),
        ):
            try:
                await kind.delete(member)
            except NotFound:
                continue

    def _write(self) -> None:
        try:
            cache.write(self._folder, self._cached)
        except CliError as error:  # another server of this folder may write it now; calls need it not
            self._say(f"{error}; each endpoint is updated again when the server is started next")


def wanted(served: AppEndpoint) -> Wanted:
    """Returns what the platform has to have for the endpoint, which does not include its code."""
    body = endpoint_body(served.endpoint, served.definition, name=served.name, template_id="")
    compute = body.get("computeType") or ""
    return Wanted(config_hash(served.definition), body["type"], compute, body["workersMin"])


def live_endpoints(found: Iterable[Mapping[str, Any]]) -> dict[str, Existing]:
    """Returns the temporary endpoints with the prefix, by name; of several with one name, the newest."""
    return {
        one["name"]: _existing(one)
        for one in found
        if one["name"].startswith(LIVE_PREFIX) and one.get("temporary")
    }


def _existing(record: Mapping[str, Any]) -> Existing:
    """Reads the record of the management API."""
    template, least = record.get("templateId", ""), record["workersMin"]
    return Existing(record["id"], template, record["type"], record["computeType"], least)
