"""Creates, changes and deletes endpoints while the service runs.

    create ──> stored ──> in memory: takes jobs ──> scaling starts workers      update ──> a new version,
    delete ──> out of memory: 404 ──> its jobs are cancelled ──> its workers stop          rolled out

Endpoints of the configuration file can be listed and read, but only the file can change them, when it is read
again (`control.resources.declared`); of hosted ones callers change the workers.
The jobs of a deleted endpoint end CANCELLED, "the endpoint was deleted". Their webhooks are still called, and
their records expire as usual, but cannot be read any more, because the endpoint's path is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from stoker.control import store
from stoker.control.config.settings import PlaneSettings
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.jobs.replay_rules import one_too_many
from stoker.control.jobs.waiters import JobChanges
from stoker.control.resources import endpoint_fields, own_templates
from stoker.control.resources.catalog import ENDPOINT_CPU_FLAVORS
from stoker.control.resources.declared import hosted
from stoker.control.resources.declared.decision import Decision, decide
from stoker.control.resources.declared.storing import store_decision
from stoker.control.resources.endpoint_workers import EndpointWorker, endpoint_worker
from stoker.control.resources.named import Named
from stoker.control.rules.access import NOBODY, Caller
from stoker.control.rules.placement import NodeRoom, would_be_on_cpus
from stoker.control.rules.quotas import refused_workers
from stoker.control.rules.submissions import abbreviated
from stoker.control.rules.types import Endpoint, EndpointVersion, Template
from stoker.control.scheduling.avoidance import Avoided
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.wire.ids import short_id

CANCEL_BATCH = 1_000
"""How many jobs one transaction cancels, so that other calls are not delayed."""


class ManagedEndpoints:
    def __init__(self, context: Context, scheduling: Scheduling, changes: JobChanges, named: Named) -> None:
        self._settings, self._commits = context.settings, context.commits
        self._clock, self._rng = context.clock, context.rng
        self._book, self._cluster = scheduling.endpoints, scheduling.cluster
        self._scaling, self._dispatch = scheduling.scaling, scheduling.dispatch
        self._changes, self._named = changes, named
        self.turn = asyncio.Lock()
        """Held while an endpoint or template is changed, from reading it until it is stored."""

    async def load(self) -> None:
        """Loads the endpoints from the store; in a commit, so that it is ordered with other changes."""
        there, gone = await self._commits.commit(
            lambda conn: (store.list_endpoints(conn), store.deleted_endpoints(conn))
        )
        self._book.load(there)
        for endpoint in there:
            self._live(endpoint)
        for deleted in gone:
            await self.cancel_jobs(deleted)

    # -- the configuration file

    async def declare(self, declared: Sequence[Endpoint], settings: PlaneSettings) -> Decision:
        """Stores the endpoints of the configuration file as they are declared, and deletes those that are not
        any more, all in one transaction; then uses them, and the file's settings that may change. Raises
        Unavailable, and has changed nothing then."""
        async with self.turn:
            wanted = replace(self._settings)
            wanted.take(settings)
            decision = decide(declared, self._book.by_id.values(), wanted)
            going = [self._book.by_id[name] for name in decision.deleted]
            for endpoint in going:
                self._book.drop(endpoint.id)  # nothing is submitted from now on
            storing = partial(store_decision, decision=decision, now=self._clock(), for_good=True)
            try:
                stored = await self._commits.commit(storing)
            except BaseException:
                for endpoint in going:
                    self._book.put(endpoint)
                raise
            self._settings.take(wanted)
            self._book.alias(settings.aliases)
            self.renewed(stored)
        self._scaling.wake.set()
        return decision

    # -- actions of callers

    async def create(
        self,
        account: str,
        requested: Mapping[str, Any],
        by: Caller = NOBODY,
        *,
        own: Mapping[str, Any] | None = None,
    ) -> Endpoint:
        """Creates an endpoint; with `own`, from a template of its own of these fields. Raises BadRequest,
        which names the field, and TooMany by the key's quota."""
        self._check(account, requested)
        requested = self._anywhere(requested)
        async with self.turn:
            new = None if own is None else self._own_template(account, requested["name"], own)
            if new is not None:
                requested = {**requested, "templateId": new.id, own_templates.OWN: new.id}
            template = new or await self._template(account, requested["templateId"])
            made = await self._made(account, short_id(self._rng), requested, template)
            self._check_workers(by, made)
            stored = await self._stored(replace(made, api_key=by.key), own=new)
        self._live(stored)
        return stored

    async def add(self, made: Endpoint) -> Endpoint:
        """Stores an endpoint that was made otherwise than by a request for one, and uses it from now on.
        Raises TooMany for the replay of a job whose endpoint's jobs have many."""
        async with self.turn:
            if refusal := one_too_many(made, self._book.by_id.values()):
                raise refusal
            stored = await self._stored(made)
        self._live(stored)
        return stored

    def list(self, account: str) -> Sequence[Endpoint]:
        """Returns the account's endpoints, the oldest first."""
        own = [one for one in self._book.by_id.values() if one.account == account]
        return sorted(own, key=lambda one: (one.created_at, one.id))

    def get(self, account: str, endpoint: str) -> Endpoint:
        found = self._book.by_id.get(endpoint)
        if found is None or found.account != account:
            raise NotFound(f"no endpoint {endpoint!r}: the id is wrong, or it was deleted")
        return found

    async def update(
        self,
        account: str,
        endpoint: str,
        changes: Mapping[str, Any],
        by: Caller = NOBODY,
        *,
        own: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    ) -> Endpoint:
        """Makes a new version, unless only fields in `endpoint_fields.UNVERSIONED` change. With `own` the
        endpoint has a template of its own from now on, with the fields that `own` makes of those that the
        endpoint has in this very moment."""
        if own is None and self.get(account, endpoint).hosted:
            return await self._change_hosted(account, endpoint, changes, by)
        self._check(account, changes)
        async with self.turn:
            old = self._own(account, endpoint, "change")
            requested = self._anywhere(_merged(old.requested, changes))
            before = await self._template(account, requested["templateId"])
            new = None
            if own is not None and own_templates.of_endpoint(old) == before.id:
                new = own_templates.changed(before, own(before.fields))
            elif own is not None:
                new = self._own_template(account, requested["name"], own(before.fields))
                requested = {**requested, "templateId": new.id, own_templates.OWN: new.id}
            anew = {
                name
                for name in requested.keys() | old.requested.keys()
                if requested.get(name) != old.requested.get(name)
            }
            anew -= endpoint_fields.UNVERSIONED
            made = await self._made(account, old.id, requested, new or before)
            if made.workers_max > old.workers_max:
                self._check_workers(by, made)
            made = replace(made, api_key=old.api_key)
            if new is not None and own_templates.is_new_version(before, new):
                anew.add("templateId")
            if not anew:
                made = replace(made, run=old.run)
            stored = await self._stored(made, anew=bool(anew), own=new, before=old)
        self._live(stored)
        return stored

    async def _change_hosted(
        self, account: str, endpoint: str, changes: Mapping[str, Any], by: Caller
    ) -> Endpoint:
        async with self.turn:
            old = self.get(account, endpoint)
            hosted.check(old, changes, self._settings.set_by_file.get(endpoint, ()))
            made = hosted.with_changes(old, {**old.requested, **changes})
            if made.workers_max > old.workers_max:
                self._check_workers(by, made)
            stored = await self._stored(made)
        self._live(stored)
        return stored

    async def delete(self, account: str, endpoint: str) -> None:
        await self.delete_if(self._own(account, endpoint, "delete"), lambda conn: True)

    async def delete_if(self, endpoint: Endpoint, decide: Callable[[Conn], bool]) -> bool:
        """Deletes the endpoint if `decide` returns True in the transaction that would remove it: between the
        two nothing can be submitted. Returns whether it was deleted by this call."""
        async with self.turn:
            old = self._book.by_id.get(endpoint.id)
            if old is None:
                return False
            self._book.drop(old.id)  # nothing is submitted from now on
            now = self._clock()
            gone = False

            def remove(conn: Conn) -> bool:
                decided = decide(conn)
                if decided:
                    store.remove_endpoint(conn, old.id, now)
                    self._remove_own(conn, old, None, now)
                return decided

            try:
                gone = await self._commits.commit(remove)
            finally:
                if not gone:
                    self._book.put(old)
        if gone:
            self._scaling.wake.set()
            await self.cancel_jobs(old.id)
        return gone

    async def cancel_jobs(self, endpoint: str) -> None:
        """Cancels all jobs of an endpoint that was deleted."""
        while True:
            now = self._clock()
            changed = await self._commits.commit(
                partial(store.cancel_all, endpoint=endpoint, now=now, limit=CANCEL_BATCH)
            )
            self._changes.apply(changed)
            if len(changed) < CANCEL_BATCH:
                return

    def workers_of_key(self, key: str, *, but: str = "") -> int:
        """Returns the sum of the `workersMax` of the endpoints that the key created, but for one."""
        own = (one for one in self._book.by_id.values() if one.api_key == key and one.id != but)
        return sum(one.workers_max for one in own)

    def _check_workers(self, by: Caller, made: Endpoint) -> None:
        others = self.workers_of_key(by.key, but=made.id)
        if refusal := refused_workers(by.key, by.quota, others, made.workers_max):
            raise refusal

    def on_cpus(self, endpoint: Endpoint) -> bool:
        """Returns whether its workers run on CPUs, or, if it has none, whether they would."""
        nodes = self._cluster.nodes
        workers = [
            (nodes[one.node], one) for one in self._cluster.of_endpoint(endpoint.id) if one.node in nodes
        ]
        kinds = {
            device.kind for node, one in workers for device in node.devices if device.uuid in one.devices
        }
        if kinds:
            return kinds == {"cpu"}
        rooms = (NodeRoom(one.node, one.devices, {}, facts=one.facts) for one in nodes.values())
        return would_be_on_cpus(rooms, endpoint.run.needs)

    def workers(self, endpoint: Endpoint) -> Sequence[EndpointWorker]:
        """Returns the workers on nodes, the oldest first, and then a throttled one for each that has no
        node."""
        workers = sorted(self._cluster.of_endpoint(endpoint.id), key=lambda one: (one.since, one.worker))
        there = [endpoint_worker(one, endpoint, self._cluster.nodes.get(one.node)) for one in workers]
        why = self._scaling.why_throttled(endpoint.id)
        return there + [
            EndpointWorker(
                f"{endpoint.id}-throttled-{n}", "THROTTLED", why, False, endpoint.version, "", (), 0.0
            )
            for n in range(self._scaling.throttled(endpoint.id))
        ]

    def avoided(self, endpoint: Endpoint) -> Sequence[Avoided]:
        """Returns where its workers did not start, and so are not placed for now."""
        failing = self._scaling.places.avoidance.now_avoided(self._clock())
        return [one for one in failing if one.version.endpoint == endpoint.id]

    # -- templates

    async def remade(self, template: Template) -> Sequence[Endpoint]:
        """Returns the endpoints of a changed template as they are with the change. `turn` must be held."""
        bound = [one for one in self._book.by_id.values() if one.template == template.id]
        return [await self._made(one.account, one.id, one.requested, template) for one in bound]

    def renewed(self, endpoints: Sequence[Endpoint]) -> None:
        """Uses the endpoints that were stored with a new version."""
        for endpoint in endpoints:
            self._live(endpoint)

    def check_template(self, template: Template) -> None:
        """Raises BadRequest if no endpoint could be made from it."""
        endpoint_fields.section("endpoint", {}, template, self._settings)
        endpoint_fields.locked(template, self._settings)

    # -- from a request to an endpoint

    async def _made(
        self, account: str, endpoint: str, requested: Mapping[str, Any], template: Template
    ) -> Endpoint:
        section = endpoint_fields.section(endpoint, requested, template, self._settings)
        run = await self._version(section, requested, template)
        return endpoint_fields.endpoint(section, run, account, requested, template)

    async def _version(
        self, section: Any, requested: Mapping[str, Any], template: Template
    ) -> EndpointVersion:
        registry = template.fields.get("containerRegistryAuthId")
        login = await self._named.registries.login(template.account, registry) if registry else None
        return endpoint_fields.version(section, requested, template, self._settings, login)

    async def _template(self, account: str, template: str) -> Template:
        found = await self._commits.read(lambda conn: store.get_template(conn, template))
        if found is None or not (found.account == account or found.fields["isPublic"]):
            raise BadRequest(
                f"templateId must be the id of a template; there is none of {abbreviated(template)}"
            )
        self._named.secrets.check(account, found.fields["env"])
        return found

    def _own_template(self, account: str, name: str, fields: Mapping[str, Any]) -> Template:
        self._named.secrets.check(account, fields.get("env") or {})
        return own_templates.made(short_id(self._rng), account, name, fields, self._clock())

    async def _stored(
        self,
        made: Endpoint,
        *,
        anew: bool = False,
        own: Template | None = None,
        before: Endpoint | None = None,
    ) -> Endpoint:
        """Stores the endpoint and its own template, and checks in the same transaction that what it refers to
        still exists. `before` is the endpoint that it replaces."""
        now = self._clock()

        def put(conn: Conn) -> Endpoint:
            self._named.volumes.check_still(conn, made.account, made.run.volume)
            self._named.secrets.check_still(conn, made.account, made.run.env)
            if own is not None:
                registry = own.fields.get("containerRegistryAuthId") or ""
                self._named.registries.check_still(conn, made.account, registry)
                store.put_template(conn, own, now)
            if before is not None:
                self._remove_own(conn, before, made, now)
            return store.put_endpoint(conn, made, now, anew=anew)

        return await self._commits.commit(put)

    def _remove_own(self, conn: Conn, before: Endpoint, after: Endpoint | None, now: float) -> None:
        if gone := own_templates.left_over(before, after, self._book.by_id.values()):
            store.remove_template(conn, gone, now)

    def _own(self, account: str, endpoint: str, verb: str) -> Endpoint:
        found = self.get(account, endpoint)
        if found.hosted:
            raise BadRequest(f"endpoint {endpoint} is a hosted model; `--hosted` names those that are served")
        if found.origin != "api":
            raise BadRequest(
                f"endpoint {endpoint} is declared in the configuration file, and only the file can {verb} it"
            )
        if found.replay is not None and verb != "delete":
            raise BadRequest(f"endpoint {endpoint} was made for a replay: it can only be deleted")
        return found

    def _check(self, account: str, requested: Mapping[str, Any]) -> None:
        """Raises BadRequest if a name does not exist. Names that were accepted before are not checked
        again."""
        catalog = self._named.catalog
        catalog.check_gpu_types(requested.get("gpuTypeIds") or ())
        catalog.check_data_centers(requested.get("dataCenterIds") or ())
        catalog.check(
            "allowedCudaVersions", requested.get("allowedCudaVersions") or (), catalog.cuda_versions()
        )
        minimum = requested.get("minCudaVersion")
        catalog.check("minCudaVersion", [minimum] if minimum else (), catalog.cuda_versions())
        catalog.check("cpuFlavorIds", requested.get("cpuFlavorIds") or (), ENDPOINT_CPU_FLAVORS)
        volumes = endpoint_fields.volumes(requested)
        field = "networkVolumeId" if requested.get("networkVolumeId") else "networkVolumeIds"
        for volume in volumes:
            if self._named.volumes.desired.find(account, volume) is None:
                raise BadRequest(
                    f"{field} must name a network volume; there is none of {abbreviated(volume)}"
                )
        if len(volumes) > 1:
            raise BadRequest(
                f"networkVolumeIds may hold one id, a worker sees one volume; got {len(volumes)}"
            )

    def _anywhere(self, requested: Mapping[str, Any]) -> Mapping[str, Any]:
        """Drops the data centres if all are named: then nodes without a data centre qualify, too."""
        everywhere = set(self._named.catalog.data_centers()) <= set(requested.get("dataCenterIds") or ())
        return {**requested, "dataCenterIds": []} if everywhere else requested

    def _live(self, endpoint: Endpoint) -> None:
        """Uses the endpoint from now on: it takes jobs, and gets workers."""
        self._book.put(endpoint)
        if endpoint.temporary:
            self._cluster.retire_old(endpoint)
        self._dispatch.mark(endpoint.id)
        self._scaling.wake.set()


def _merged(requested: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges changes into a request. A new volume replaces the old one, whichever of the two fields named
    them."""
    merged = {**requested, **changes}
    if "networkVolumeIds" in changes and "networkVolumeId" not in changes:
        merged.pop("networkVolumeId", None)
    if "networkVolumeId" in changes and "networkVolumeIds" not in changes:
        merged.pop("networkVolumeIds", None)
    return merged
