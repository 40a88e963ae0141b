"""Pods: containers that somebody wants for their own sake. What is asked for is checked, placed and stored,
and the node is told.

    create, start ──> place ──> devices held on the floor ──> stored ──> the node hears of it
                        └─ no room ──> 400, and nothing is stored

What an action leads to is decided by `control.pod`. A stopped pod keeps its node, where its volume is, and
gives its devices back; it starts again only if that node has room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from stoker.control import store
from stoker.control.commit import Commits
from stoker.control.engine_fit import fitting
from stoker.control.errors import BadRequest, ControlError, NotFound
from stoker.control.floor import Floor, FloorPod
from stoker.control.management.catalog import Catalog
from stoker.control.management.pod_fields import body_after, body_of, whole
from stoker.control.management.pod_views import PodFilter, PodView, matches, view
from stoker.control.management.registries import Registries
from stoker.control.management.secrets import SecretBook
from stoker.control.management.volumes import Volumes
from stoker.control.placement import NoPlace, Place, Room, place
from stoker.control.pod import Action, Pod, PodBody, Refusal, WantedPod, act, changed, placed
from stoker.control.pod_book import PodBook
from stoker.control.pod_needs import needs
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.wire.names import short_id


class Pods:
    """`price` gives what an hour of a pod costs in billionths of a US dollar; None or 0: no price is set."""

    def __init__(
        self,
        commits: Commits,
        floor: Floor,
        staffing: Staffing,
        catalog: Catalog,
        volumes: Volumes,
        registries: Registries,
        secrets: SecretBook,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._commits = commits
        self._floor = floor
        self._staffing = staffing
        self._catalog = catalog
        self._volumes = volumes
        self._registries = registries
        self._secrets = secrets
        self._clock = clock
        self._rng = rng
        self._book = PodBook(floor, secrets.fill, registries.declared)
        self._one_at_a_time = asyncio.Lock()
        self.price: Callable[[Pod], int | None] = lambda pod: None
        self.before_change: Callable[[Conn, str], None] = lambda conn, pod: None  # of its disks
        staffing.pods_of = self._book.of_node

    # -- what callers do

    async def create(self, account: str, given: Mapping[str, Any]) -> PodView:
        """Raises BadRequest where the body is wrong, and where no node has room for it."""
        fields = whole(given, await self._template(account, given.get("templateId")))
        body, wish = body_of(fields), fields["desiredStatus"]
        await self._check(account, body)
        if set(self._catalog.data_centers()) <= set(body.data_centers):
            body = replace(body, data_centers=())  # any will do, and a node need not say where it stands
        now = self._clock()
        pod = Pod(short_id(self._rng), account, fields["name"], body, wish, created_at=now)
        pod = replace(pod, changed_at=now, change="Rented by User")
        if wish == "RUNNING":
            pod = self._placed(pod, self._place(pod))
        else:
            self._check_engines(pod)

        def add(conn: Conn) -> WantedPod:
            self._check_still(conn, account, body)
            store.add_pod(conn, pod)
            return store.want(conn, pod)

        return self._view(await self._stored(pod, add))

    async def list(self, account: str, asked: PodFilter) -> list[PodView]:
        pods = await self._commits.read(lambda conn: store.list_pods(conn, account))
        return [one for pod in pods if matches(one := self._view(pod), asked)]

    async def get(self, account: str, pod: str) -> PodView:
        return self._view(await self._commits.read(lambda conn: own_pod(conn, account, pod)))

    async def update(self, account: str, pod: str, changes: Mapping[str, Any]) -> PodView:
        """What goes into the container makes it anew. Raises BadRequest, NotFound."""
        async with self._one_at_a_time:
            known = await self._commits.read(lambda conn: own_pod(conn, account, pod))
            body = body_after(known.body, changes)
            await self._check(account, body)

            def change(conn: Conn) -> WantedPod:
                fresh = own_pod(conn, account, pod)
                self._check_still(conn, account, body)
                self.before_change(conn, pod)
                after = changed(fresh, body, changes.get("name") or fresh.name, self._clock())
                return _put(conn, fresh, after)

            return self._view(await self._stored(known, change))

    async def act(self, account: str, pod: str, action: Action) -> PodView:
        """Starts, stops, restarts, resets or deletes it. Raises BadRequest; NotFound where there is none, but
        to delete what is not is a bad request, as the interface has it."""
        refuse = BadRequest if action == "delete" else NotFound
        async with self._one_at_a_time:
            known = await self._commits.read(lambda conn: own_pod(conn, account, pod, refuse))
            where = self._place(known) if action == "start" and known.wish != "RUNNING" else None

            def change(conn: Conn) -> WantedPod:
                fresh = own_pod(conn, account, pod, refuse)
                after = act(fresh, action, self._clock())
                if where is not None and not isinstance(after, Refusal):
                    after = self._placed(after, where)
                return _put(conn, fresh, after)

            held = known if where is None else self._placed(replace(known, wish="RUNNING"), where)
            return self._view(await self._stored(held, change))

    async def include(self, found: PodView, *, template: bool, volume: bool) -> PodView:
        """With its template and its network volume, where it has them and they are there."""
        body, account = found.pod.body, found.pod.account
        if template and body.template:
            of = await self._commits.read(lambda conn: store.get_template(conn, body.template))
            found = replace(found, template=of)
        if volume and body.network_volume:
            found = replace(found, volume=self._volumes.find(account, body.network_volume))
        return found

    # -- what nodes say

    def seen(self, pods: Iterable[WantedPod]) -> None:
        """Nodes told of them, and it is stored."""
        for wanted in pods:
            self._book.put(wanted)
            if not wanted.pod.holds:
                self._staffing.wake.set()

    # -- checks

    async def _template(self, account: str, template: str | None) -> Mapping[str, Any]:
        if not template:
            return {}
        found = await self._commits.read(lambda conn: store.get_template(conn, template))
        if found is None or not (found.account == account or found.fields["isPublic"]):
            raise BadRequest(f"templateId must be the id of a template; there is none of {template!r}")
        return found.fields

    async def _check(self, account: str, body: PodBody) -> None:
        """Raises BadRequest for a name that nothing has."""
        self._catalog.check_gpu_types(body.gpu_types)
        self._catalog.check_data_centers(body.data_centers)
        self._catalog.check("allowedCudaVersions", body.cuda_versions, self._catalog.cuda_versions())
        self._secrets.check(account, body.env)
        if body.network_volume:
            self._volumes.attach(account, body.network_volume)
        if body.registry:
            await self._registries.login(account, body.registry)

    def _check_still(self, conn: Conn, account: str, body: PodBody) -> None:
        """What it names may have been deleted a moment ago."""
        self._volumes.check_still(conn, account, body.network_volume)
        self._registries.check_still(conn, account, body.registry)
        self._secrets.check_still(conn, account, body.env)

    # -- places

    def _check_engines(self, pod: Pod) -> None:
        """Of one that is not to start yet: is there any engine? The rest is looked at when it starts."""
        rooms = fitting(pod.body.image, self._floor.rooms())
        if rooms and all(len(room.unfit) == len(room.devices) for room in rooms):
            why = next(iter(rooms[0].unfit.values()), "has no device")
            raise BadRequest(f"pod {pod.name!r} could never start: node {rooms[0].node} {why}")

    def _place(self, pod: Pod) -> Place:
        """Where it goes, to the devices that it had if they are free. Raises BadRequest."""
        found = place(self._rooms(pod, pod.devices), needs(pod.body))
        if isinstance(found, NoPlace) and pod.devices:
            found = place(self._rooms(pod), needs(pod.body))
        if isinstance(found, NoPlace):
            raise BadRequest(f"pod {pod.name!r} cannot run: {found.why}")
        return found

    def _rooms(self, pod: Pod, devices: tuple[str, ...] = ()) -> Sequence[Room]:
        """The node that has its volume, or all; what the pod itself still holds is free to it."""
        own = self._floor.pods.pop(pod.id, None)
        rooms = self._floor.rooms()
        if own is not None:
            self._floor.pods[pod.id] = own
        if pod.node:
            rooms = [room for room in rooms if room.node == pod.node]
            if not rooms:
                raise BadRequest(
                    f"pod {pod.id} cannot start: node {pod.node}, which has it, is not connected"
                )
        if devices:
            rooms = [replace(one, devices=_among(one, devices)) for one in rooms]
        return fitting(pod.body.image, self._volumes.rooms(pod.account, pod.body.network_volume, rooms))

    def _placed(self, pod: Pod, where: Place) -> Pod:
        node = self._floor.nodes.get(where.node)
        there = node.devices if node else ()
        gpus = [one.name for one in there if one.uuid in where.devices and one.kind != "cpu"]
        return placed(pod, where.node, where.devices, gpus[0] if gpus else "")

    async def _stored(self, pod: Pod, change: Callable[[Conn], WantedPod]) -> Pod:
        """Commits with the pod's devices held, so that nothing else is placed there meanwhile; then tells."""
        held = self._floor.pods
        before, now = held.get(pod.id), None
        if pod.wish == "RUNNING" and pod.node:
            now = held[pod.id] = FloorPod(pod.id, pod.node, pod.devices, needs(pod.body))
        try:
            wanted = await self._commits.commit(change)
        except BaseException:
            if now is not None and held.get(pod.id) is now:  # else its node has told of it meanwhile
                del held[pod.id]
                held.update({} if before is None else {pod.id: before})
            raise
        self.seen([wanted])
        if wanted.pod.node:
            self._staffing.tell(wanted.pod.node)
        return wanted.pod

    def _view(self, pod: Pod) -> PodView:
        return replace(view(pod, self._floor.nodes.get(pod.node)), nano_usd=self.price(pod) or None)


def _among(room: Room, devices: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(device for device in room.devices if device.uuid in devices)


def _put(conn: Conn, fresh: Pod, after: Pod | Refusal) -> WantedPod:
    if isinstance(after, Refusal):
        raise BadRequest(after.why)
    return store.want(conn, fresh if after == fresh else store.put_pod(conn, after))


def own_pod(conn: Conn, account: str, pod: str, refuse: type[ControlError] = NotFound) -> Pod:
    """Raises `refuse`."""
    found = store.get_pod(conn, account, pod)
    if found is None:
        raise refuse(f"no pod {pod!r}: the id is wrong, or it was deleted")
    return found
