"""Network volumes: folders that outlive workers and pods, one below each node's volume root.

    create ──> nodes hear of it ──> it is measured there ──> delete ──> nodes remove its folder, once nobody
                                                                        there works in it

The records are kept in memory, too: nodes are told of them whenever they are told anything, and no worker is
placed without a look at them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from stoker.control import store
from stoker.control.commit import Commits
from stoker.control.errors import BadRequest, NotFound
from stoker.control.floor import Floor
from stoker.control.management.catalog import Catalog
from stoker.control.placement import Room
from stoker.control.staffing import Staffing
from stoker.control.store import Conn
from stoker.control.volume import Volume, fitting, grown
from stoker.wire.messages import VolumeSpec, VolumeUsed
from stoker.wire.names import short_id

_Rooms = list[Room]  # below, `list` is a method


class Volumes:
    """`load` is to be awaited before a node comes."""

    def __init__(
        self,
        commits: Commits,
        floor: Floor,
        staffing: Staffing,
        catalog: Catalog,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._commits, self._floor, self._staffing = commits, floor, staffing
        self._catalog, self._clock, self._rng = catalog, clock, rng
        self._known: dict[str, Volume] = {}
        self.before_change: Callable[[Conn, str], None] = lambda conn, volume: None  # of its size
        staffing.volumes_of = self.of_node
        staffing.volume_rooms = self.rooms

    async def load(self) -> None:
        now = self._clock()

        def load(conn: Conn) -> tuple[Volume, ...]:
            store.forget_volumes(conn, now)
            return store.list_volumes(conn)

        self._known = {volume.id: volume for volume in await self._commits.commit(load)}

    # -- what callers do

    async def create(self, account: str, *, name: str, size_gb: int, data_center: str) -> Volume:
        self._catalog.check_data_centers([data_center], "dataCenterId")
        made = Volume(short_id(self._rng), account, name, data_center, size_gb, self._clock())
        await self._commits.commit(lambda conn: store.add_volume(conn, made))
        self._now(made)
        return made

    def list(self, account: str) -> tuple[Volume, ...]:
        return tuple(one for one in self._known.values() if one.account == account and one.deleted_at is None)

    def get(self, account: str, volume: str) -> Volume:
        found = self.find(account, volume)
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
            self.before_change(conn, volume)
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
            using = [user.words for user in store.users_of(conn, account) if user.volume == volume]
            if using:
                raise BadRequest(f"network volume {volume} is attached to {', '.join(using)}")
            store.delete_volume(conn, volume, now)
            return replace(known, deleted_at=now)

        self._now(await self._commits.commit(delete))

    def _now(self, volume: Volume) -> None:
        self._known[volume.id] = volume
        for node in self._floor.nodes:
            if self.of_node(node):
                self._staffing.tell(node)
        self._staffing.wake.set()

    # -- what others ask

    def find(self, account: str, volume: str) -> Volume | None:
        found = self._known.get(volume)
        return found if found and found.account == account and found.deleted_at is None else None

    def attach(self, account: str, volume: str) -> Volume:
        """The one that an endpoint or a pod asks for. Raises BadRequest."""
        found = self.find(account, volume)
        if found is None:
            raise BadRequest(
                f"networkVolumeId must be the id of a network volume; there is none of {volume!r}"
            )
        return found

    def check_still(self, conn: Conn, account: str, volume: str) -> None:
        """In the transaction that comes to use it. Raises BadRequest where it was deleted meanwhile."""
        if volume and store.get_volume(conn, account, volume) is None:
            raise BadRequest(f"networkVolumeId: network volume {volume} has just been deleted")

    def rooms(self, account: str, volume: str, rooms: _Rooms) -> _Rooms:
        """Closed where it cannot be had. `volume` may name a folder that has no record, or nothing."""
        return fitting(volume, self.find(account, volume), rooms)

    def of_node(self, node: str) -> tuple[VolumeSpec, ...]:
        """For a node that has a volume root: all that there are, and those whose folders shall go."""
        there = self._floor.nodes.get(node)
        if there is None or not there.facts.get("volumes", "").startswith("yes"):
            return ()
        return tuple(
            VolumeSpec(one.id, one.size_bytes, gone=one.deleted_at is not None)
            for one in self._known.values()
        )

    def measured(self, used: VolumeUsed) -> None:
        """A node has told, and it is stored."""
        known = self._known.get(used.volume)
        if known is None or known.deleted_at is not None or used.gone:
            return
        self._known[used.volume] = replace(known, used_bytes=used.used_bytes, measured_at=self._clock())
        self._staffing.wake.set()
