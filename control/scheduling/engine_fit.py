"""The nodes, and their devices, that can run an endpoint's workers. Pure: what the nodes tell of themselves.

The facts are `containers` ("docker 28.0.1", or "none: why") and `containers_cdi` ("yes", "no"), and those of
weights (`control.rules.weights`). What an agent does not tell is not held against it: it refuses itself what
it cannot run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from stoker.control.rules.placement import NodeRoom
from stoker.control.rules.weights import standing
from stoker.control.scheduling.placed import PlacedWorker
from stoker.wire.messages import Device, LockedWeights


def fitting(image: str, rooms: Sequence[NodeRoom]) -> list[NodeRoom]:
    """Returns the rooms, each with those of its devices marked that can take no container of this image;
    without an image none is marked."""
    return [replace(room, unfit=_unfit_of(room)) if image else room for room in rooms]


def reachable(rooms: Sequence[NodeRoom], reached: Collection[str]) -> list[NodeRoom]:
    """Returns the rooms for http workers, of which those are closed whose nodes are not `reached`."""
    why = "cannot be reached for requests: its agent is too old, or no way to it is allowed (gateway_ways)"
    return [room if room.closed or room.node in reached else replace(room, closed=why) for room in rooms]


def with_weights(
    weights: Sequence[LockedWeights],
    rooms: Sequence[NodeRoom],
    workers: Mapping[str, PlacedWorker],
    without: str = "",
) -> list[NodeRoom]:
    """Returns the rooms, each with how its node stands to these weights; a room that cannot hold them is
    closed. `workers`: all, by name; `without`: as if that worker had ended, which may use weights that no
    other does."""
    if not weights:
        return list(rooms)
    going, found = workers.get(without), []
    for room in rooms:
        staying = [one for one in workers.values() if one.node == room.node and one is not going]
        coming = {entry.key for one in staying for entry in _of(one)}
        left = () if going is None or going.node != room.node else _of(going)
        stands = standing(room.facts, weights, coming, sum(one.size for one in left if one.key not in coming))
        found.append(replace(room, weights=stands, closed=room.closed or stands.bars))
    return found


def _of(worker: PlacedWorker) -> Sequence[LockedWeights]:
    return () if worker.spec is None else worker.spec.weights


def _unfit_of(room: NodeRoom) -> dict[str, str]:
    found = {device.uuid: unfit(device, room.facts) for device in room.devices}
    return {uuid: why for uuid, why in found.items() if why is not None}


def unfit(device: Device, facts: Mapping[str, str]) -> str | None:
    """Returns why no container can have this device, as the end of a sentence about its node; None when one
    can."""
    engine = facts.get("containers", "")
    if engine.startswith("none"):
        return f"has no container engine: {engine.partition(': ')[2]}"
    if device.kind != "cpu" and facts.get("containers_cdi") == "no":
        return f"has {engine}, which brings no GPUs into containers (CDI)"
    return None
