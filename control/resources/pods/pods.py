"""Creates, changes and deletes pods: checks a request, places the pod, stores it, and notifies its node.

    create, start ──> place ──> devices held in the cluster ──> stored ──> sent to the node
                        └─ no room ──> 400, and nothing is stored

`control.rules.pods` decides what an action does. A stopped pod keeps its node, where its volume is, and
releases its devices; it starts again only if that node has room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from stoker.control import store
from stoker.control.auth.callers import Callers
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.resources.billing import Billing
from stoker.control.resources.named import Named
from stoker.control.resources.pods.pod_fields import all_fields, body_after, body_of
from stoker.control.resources.pods.pod_views import PodFilter, PodView, matches, view
from stoker.control.rules.access import Access
from stoker.control.rules.placement import NodeRoom, NoPlacement, Placement, place
from stoker.control.rules.pods import Action, ActionRefused, Pod, PodBody, WantedPod, act, changed, placed
from stoker.control.scheduling.desired_pods import DesiredPods
from stoker.control.scheduling.engine_fit import fitting
from stoker.control.scheduling.placed import PlacedPod
from stoker.control.scheduling.pod_needs import needs
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.control.store.resources import keys
from stoker.wire.ids import short_id


class ManagedPods:
    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        desired: DesiredPods,
        named: Named,
        callers: Callers,
        billing: Billing,
    ) -> None:
        self._commits, self._clock, self._rng = context.commits, context.clock, context.rng
        self._cluster, self._scaling = scheduling.cluster, scheduling.scaling
        self._desired, self._named, self._callers, self._billing = desired, named, callers, billing
        self._one_at_a_time = asyncio.Lock()

    # -- actions of callers

    async def create(self, account: str, request: Mapping[str, Any]) -> PodView:
        """Raises BadRequest if the request is wrong, or no node has room for the pod."""
        fields = all_fields(request, await self._template(account, request.get("templateId")))
        body, wish = body_of(fields), fields["desiredStatus"]
        await self._check(account, body)
        if set(self._named.catalog.data_centers()) <= set(body.data_centers):
            body = replace(body, data_centers=())  # all are allowed, and so are nodes without one
        now = self._clock()
        pod = Pod(short_id(self._rng), account, fields["name"], body, wish, created_at=now)
        pod = replace(pod, changed_at=now, change="Rented by User")
        if wish == "RUNNING":
            pod = self._placed(pod, self._find_placement(pod))
        else:
            self._check_engines(pod)

        def add(conn: Conn) -> WantedPod:
            self._check_still(conn, account, body)
            access = Access("pod", pod=pod.id)
            _, token = keys.create_key(conn, name=f"pod {pod.id}", now=now, account=account, access=access)
            made = replace(pod, api_key=token)
            store.add_pod(conn, made)
            return store.want(conn, made)

        return self._view(await self._stored(pod, add))

    async def list(self, account: str, wanted: PodFilter) -> list[PodView]:
        pods = await self._commits.read(lambda conn: store.list_pods(conn, account))
        return [one for pod in pods if matches(one := self._view(pod), wanted)]

    async def get(self, account: str, pod: str) -> PodView:
        return self._view(await self._commits.read(lambda conn: own_pod(conn, account, pod)))

    async def update(self, account: str, pod: str, changes: Mapping[str, Any]) -> PodView:
        """Changes a pod. Changes of the container's fields recreate it. Raises BadRequest, NotFound."""
        async with self._one_at_a_time:
            known = await self._commits.read(lambda conn: own_pod(conn, account, pod))
            body = body_after(known.body, changes)
            await self._check(account, body)

            def change(conn: Conn) -> WantedPod:
                fresh = own_pod(conn, account, pod)
                name = fresh.name if changes.get("name") is None else changes["name"]
                self._check_still(conn, account, body)
                self._billing.before_pod_changes(conn, pod)
                after = changed(fresh, body, name, self._clock())
                return _put(conn, fresh, after)

            return self._view(await self._stored(known, change))

    async def act(self, account: str, pod: str, action: Action) -> PodView:
        """Starts, stops, restarts, resets or deletes it. Raises BadRequest, NotFound."""
        async with self._one_at_a_time:
            known = await self._commits.read(lambda conn: own_pod(conn, account, pod))
            where = self._find_placement(known) if action == "start" and known.wish != "RUNNING" else None

            def change(conn: Conn) -> WantedPod:
                fresh = own_pod(conn, account, pod)
                after = act(fresh, action, self._clock())
                if where is not None and not isinstance(after, ActionRefused):
                    after = self._placed(after, where)
                if action == "delete" and not isinstance(after, ActionRefused) and fresh.api_key:
                    keys.revoke_key(conn, keys.key_id(fresh.api_key), self._clock())
                return _put(conn, fresh, after)

            assigned = known if where is None else self._placed(replace(known, wish="RUNNING"), where)
            stored = await self._stored(assigned, change)
        if action == "delete":
            self._callers.forget()
        return self._view(stored)

    async def include(self, found: PodView, *, template: bool, volume: bool) -> PodView:
        """Adds its template and its network volume, if it has them and they exist."""
        body, account = found.pod.body, found.pod.account
        if template and body.template:
            of = await self._commits.read(lambda conn: store.get_template(conn, body.template))
            found = replace(found, template=of)
        if volume and body.network_volume:
            found = replace(found, volume=self._named.volumes.desired.find(account, body.network_volume))
        return found

    # -- reports of nodes

    def seen(self, pods: Iterable[WantedPod]) -> None:
        """Takes over pods after the reports of nodes were stored."""
        for wanted in pods:
            self._desired.put(wanted)
            if not wanted.pod.holds:
                self._scaling.wake.set()

    # -- checks

    async def _template(self, account: str, template: str | None) -> Mapping[str, Any]:
        if not template:
            return {}
        found = await self._commits.read(lambda conn: store.get_template(conn, template))
        if found is None or not (found.account == account or found.fields["isPublic"]):
            raise BadRequest(f"templateId must be the id of a template; there is none of {template!r}")
        return found.fields

    async def _check(self, account: str, body: PodBody) -> None:
        """Raises BadRequest if a name does not exist."""
        self._named.catalog.check_gpu_types(body.gpu_types)
        self._named.catalog.check_data_centers(body.data_centers)
        self._named.catalog.check(
            "allowedCudaVersions", body.cuda_versions, self._named.catalog.cuda_versions()
        )
        self._named.catalog.check(
            "minCudaVersion", filter(None, [body.min_cuda]), self._named.catalog.cuda_versions()
        )
        self._named.secrets.check(account, body.env)
        if body.network_volume:
            self._named.volumes.attach(account, body.network_volume)
        if body.registry:
            await self._named.registries.login(account, body.registry)

    def _check_still(self, conn: Conn, account: str, body: PodBody) -> None:
        """Checks in the transaction that what the pod refers to still exists."""
        self._named.volumes.check_still(conn, account, body.network_volume)
        self._named.registries.check_still(conn, account, body.registry)
        self._named.secrets.check_still(conn, account, body.env)

    # -- placement

    def _check_engines(self, pod: Pod) -> None:
        """Checks only that a node has an engine for a pod that does not start yet. The rest is checked when
        the pod starts. Raises BadRequest."""
        rooms = fitting(pod.body.image, self._cluster.rooms())
        unfit = [_unfit(room, pod.body.compute) for room in rooms]
        if rooms and all(unfit):
            why = unfit[0]
            raise BadRequest(f"pod {pod.name!r} could never start: node {rooms[0].node} {why}")

    def _find_placement(self, pod: Pod) -> Placement:
        """Chooses a node and devices, preferably those that the pod had. Raises BadRequest."""
        found = place(self._rooms(pod, pod.devices), needs(pod.body))
        if isinstance(found, NoPlacement) and pod.devices:
            found = place(self._rooms(pod), needs(pod.body))
        if isinstance(found, NoPlacement):
            raise BadRequest(f"pod {pod.name!r} cannot run: {found.why}")
        return found

    def _rooms(self, pod: Pod, devices: tuple[str, ...] = ()) -> Sequence[NodeRoom]:
        """Returns the room of the node that has its volume, or else of all nodes. Devices that the pod still
        holds count as free."""
        own = self._cluster.pods.pop(pod.id, None)
        rooms = self._cluster.rooms()
        if own is not None:
            self._cluster.pods[pod.id] = own
        if pod.node:
            rooms = [room for room in rooms if room.node == pod.node]
            if not rooms:
                raise BadRequest(
                    f"pod {pod.id} cannot start: node {pod.node}, which has it, is not connected"
                )
        if devices:
            rooms = [
                replace(one, devices=tuple(each for each in one.devices if each.uuid in devices))
                for one in rooms
            ]
        return fitting(
            pod.body.image, self._named.volumes.desired.rooms(pod.account, pod.body.network_volume, rooms)
        )

    def _placed(self, pod: Pod, where: Placement) -> Pod:
        node = self._cluster.nodes.get(where.node)
        there = node.devices if node else ()
        gpus = [one.name for one in there if one.uuid in where.devices and one.kind != "cpu"]
        return placed(pod, where.node, where.devices, gpus[0] if gpus else "")

    async def _stored(self, pod: Pod, change: Callable[[Conn], WantedPod]) -> Pod:
        """Commits with the pod's devices held, so that nothing else is placed there meanwhile; then notifies
        the node."""
        pods = self._cluster.pods
        before, now = pods.get(pod.id), None
        if pod.wish == "RUNNING" and pod.node:
            now = pods[pod.id] = PlacedPod(pod.id, pod.node, pod.devices, needs(pod.body))
        try:
            wanted = await self._commits.commit(change)
        except BaseException:
            if now is not None and pods.get(pod.id) is now:  # else a report of its node has replaced it
                del pods[pod.id]
                pods.update({} if before is None else {pod.id: before})
            raise
        self.seen([wanted])
        if wanted.pod.node:
            self._scaling.desired.send(wanted.pod.node)
        return wanted.pod

    def _view(self, pod: Pod) -> PodView:
        return replace(
            view(pod, self._cluster.nodes.get(pod.node)), nano_usd=self._billing.pod_hour(pod) or None
        )


def _put(conn: Conn, fresh: Pod, after: Pod | ActionRefused) -> WantedPod:
    if isinstance(after, ActionRefused):
        raise BadRequest(after.why)
    return store.want(conn, fresh if after == fresh else store.put_pod(conn, after))


def own_pod(conn: Conn, account: str, pod: str) -> Pod:
    """Raises NotFound."""
    found = store.get_pod(conn, account, pod)
    if found is None:
        raise NotFound(f"no pod {pod!r}: the id is wrong, or it was deleted")
    return found


def _unfit(room: NodeRoom, compute: str) -> str:
    """Returns why a container can have none of the node's devices of this kind; empty if one can, or if there
    is none."""
    devices = [one.uuid for one in room.devices if (one.kind == "cpu") == (compute == "CPU")]
    if any(uuid not in room.unfit for uuid in devices):
        return ""
    return next((room.unfit[uuid] for uuid in devices), "")
