"""The places where an endpoint's workers may go: the rooms of all nodes, less what rules a node out."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct, field
from msgspec.structs import replace

from stoker.control.rules import placement
from stoker.control.rules.placement import NodeRoom, NoPlacement, Placement
from stoker.control.rules.types import LOAD_BALANCER, Endpoint, Replay
from stoker.control.scheduling import spots
from stoker.control.scheduling.avoidance import Avoidance, Version
from stoker.control.scheduling.cluster_state import ClusterState
from stoker.control.scheduling.engine_fit import fitting, reachable, with_weights
from stoker.control.scheduling.placed import PlacedWorker

VolumeRooms = Callable[[str, str, list[NodeRoom]], list[NodeRoom]]
"""Closes the rooms in which an account's volume cannot be had."""


class Places(Struct):
    """The places for new workers. `clock` gives the time by which nodes are avoided."""

    cluster: ClusterState
    volume_rooms: VolumeRooms
    clock: Callable[[], float]
    avoidance: Avoidance = field(default_factory=Avoidance)

    def rooms(self, endpoint: Endpoint, without: str = "") -> list[NodeRoom]:
        """Returns the rooms where the endpoint's workers may go; `without`: as if that worker had ended."""
        rooms = _on_node(endpoint.replay, fitting(endpoint.run.image, self.cluster.rooms(without)))
        rooms = with_weights(endpoint.run.weights, rooms, self.cluster.workers, without)
        if endpoint.type == LOAD_BALANCER:
            nodes = self.cluster.nodes.values()
            rooms = reachable(rooms, {node.node for node in nodes if node.reach.possible})
        return self.volume_rooms(endpoint.account, endpoint.run.volume, rooms)

    def place(self, endpoint: Endpoint, rooms: list[NodeRoom]) -> Placement | NoPlacement:
        """Returns a place, on a spot host only where no other has one if the endpoint's jobs avoid them."""
        why = self._avoids_spots(endpoint) if any(spots.is_spot(room.facts) for room in rooms) else ""
        steady = self._place(endpoint, spots.others(rooms)) if why else None
        if isinstance(steady, Placement):
            return spots.with_reason(steady, why)
        return self._place(endpoint, rooms)

    def _avoids_spots(self, endpoint: Endpoint) -> str:
        return spots.why_avoided(
            self.cluster.throughputs[endpoint.id].run_s,
            endpoint.execution_timeout_ms / 1000,
            saves=self.cluster.saving.get(endpoint.id) == endpoint.version,
        )

    def _place(self, endpoint: Endpoint, rooms: list[NodeRoom]) -> Placement | NoPlacement:
        """Returns a place on a node that is not avoided; on any, where no other node could ever take the
        worker: what was wrong may have been put right."""
        found = placement.place(self._not_avoided(endpoint, rooms), endpoint.run.needs)
        if isinstance(found, NoPlacement) and not found.may_come:
            return placement.place(rooms, endpoint.run.needs)
        return found

    def capacity(self, endpoint: Endpoint) -> int:
        """Returns how many workers the nodes could have, were all else to end; one at least, so that jobs say
        why they wait."""
        return max(placement.capacity(self.rooms(endpoint), endpoint.run.needs), 1)

    def elsewhere(self, endpoint: Endpoint, worker: PlacedWorker) -> bool:
        """Returns whether another node, which is not avoided, has a place for the worker now."""
        others = [room for room in self.rooms(endpoint, worker.worker) if room.node != worker.node]
        return isinstance(placement.place(self._not_avoided(endpoint, others), endpoint.run.needs), Placement)

    def _not_avoided(self, endpoint: Endpoint, rooms: list[NodeRoom]) -> list[NodeRoom]:
        version = Version(endpoint.id, endpoint.version)
        return self.avoidance.closing(rooms, version, self.clock())


def _on_node(replay: Replay | None, rooms: list[NodeRoom]) -> list[NodeRoom]:
    """Returns the room of the node that a replay is for; where that is not connected, the others, closed."""
    if replay is None:
        return rooms
    own = [room for room in rooms if room.node == replay.node]
    return own or [replace(room, closed="is not the one that the replay is for") for room in rooms]
