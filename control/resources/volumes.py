"""Creates, changes and deletes network volumes: folders that outlive workers and pods, in each node's volume
root.

    create ──> sent to nodes ──> measured there ──> delete ──> nodes remove its folder, once it is not in use
    there

The records are also kept in memory, because they are part of every message to a node, and are needed for
every placement.
"""

from __future__ import annotations

from msgspec.structs import replace

from stoker.control import store
from stoker.control.context import Context
from stoker.control.errors import BadRequest, NotFound
from stoker.control.resources.billing import Billing
from stoker.control.resources.catalog import Catalog
from stoker.control.rules.volumes import Volume, grown
from stoker.control.scheduling.desired_pods import DesiredVolumes
from stoker.control.scheduling.scheduling import Scheduling
from stoker.control.store import Conn
from stoker.wire.ids import short_id
from stoker.wire.messages import VolumeUsed


class Volumes:
    """The network volumes as a resource. `load` must be awaited before a node connects."""

    def __init__(
        self,
        context: Context,
        scheduling: Scheduling,
        desired: DesiredVolumes,
        catalog: Catalog,
        billing: Billing,
    ) -> None:
        self._commits, self._clock, self._rng = context.commits, context.clock, context.rng
        self._cluster, self._scaling = scheduling.cluster, scheduling.scaling
        self._catalog, self._billing = catalog, billing
        self.desired = desired

    async def load(self) -> None:
        now = self._clock()

        def load(conn: Conn) -> tuple[Volume, ...]:
            store.forget_volumes(conn, now)
            return store.list_volumes(conn)

        self.desired.known = {volume.id: volume for volume in await self._commits.commit(load)}

    # -- actions of callers

    async def create(self, account: str, *, name: str, size_gb: int, data_center: str) -> Volume:
        self._catalog.check_data_centers([data_center], "dataCenterId")
        made = Volume(short_id(self._rng), account, name, data_center, size_gb, self._clock())
        await self._commits.commit(lambda conn: store.add_volume(conn, made))
        self._now(made)
        return made

    def list(self, account: str) -> tuple[Volume, ...]:
        return tuple(
            one for one in self.desired.known.values() if one.account == account and one.deleted_at is None
        )

    def get(self, account: str, volume: str) -> Volume:
        found = self.desired.find(account, volume)
        if found is None:
            raise NotFound(f"no network volume {volume!r}")
        return found

    async def update(
        self, account: str, volume: str, *, name: str | None = None, size_gb: int | None = None
    ) -> Volume:
        def change(conn: Conn) -> Volume:
            known = store.get_volume(conn, account, volume)
            if known is None:
                raise NotFound(f"no network volume {volume!r}")
            after = grown(known, known.size_gb if size_gb is None else size_gb)
            if isinstance(after, str):
                raise BadRequest(after)
            after = replace(after, name=known.name if name is None else name)
            self._billing.before_volume_changes(conn, volume)
            store.put_volume(conn, after)
            return after

        changed = await self._commits.commit(change)
        self._now(changed)
        return changed

    async def delete(self, account: str, volume: str) -> None:
        now = self._clock()

        def delete(conn: Conn) -> Volume:
            known = store.get_volume(conn, account, volume)
            if known is None:
                raise BadRequest(f"no network volume {volume!r}: there is nothing to delete")
            using = [user.description for user in store.users_of(conn, account) if user.volume == volume]
            if using:
                raise BadRequest(f"network volume {volume} is attached to {', '.join(using)}")
            store.delete_volume(conn, volume, now)
            return replace(known, deleted_at=now)

        self._now(await self._commits.commit(delete))

    def _now(self, volume: Volume) -> None:
        self.desired.known[volume.id] = volume
        for node in self._cluster.nodes:
            if self.desired.of_node(node):
                self._scaling.desired.send(node)
        self._scaling.wake.set()

    # -- for other parts of control

    def attach(self, account: str, volume: str) -> Volume:
        """Returns the volume that an endpoint or a pod requests. Raises BadRequest."""
        found = self.desired.find(account, volume)
        if found is None:
            raise BadRequest(
                f"networkVolumeId must be the id of a network volume; there is none of {volume!r}"
            )
        return found

    def check_still(self, conn: Conn, account: str, volume: str) -> None:
        """Checks, in the transaction that stores a reference to it, that it was not deleted meanwhile. Raises
        BadRequest."""
        if volume and store.get_volume(conn, account, volume) is None:
            raise BadRequest(f"networkVolumeId: network volume {volume} has just been deleted")

    def measured(self, used: VolumeUsed) -> None:
        """Takes over a node's report after it was stored."""
        known = self.desired.known.get(used.volume)
        if known is None or known.deleted_at is not None or used.gone:
            return
        self.desired.known[used.volume] = replace(
            known, used_bytes=used.used_bytes, measured_at=self._clock()
        )
        self._scaling.wake.set()
