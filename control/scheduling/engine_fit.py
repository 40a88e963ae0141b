"""Which nodes, and which of their devices, can run an endpoint's workers. Pure: what the nodes tell of
themselves.

The facts are `containers` ("docker 28.0.1", or "none: why") and `containers_cdi` ("yes", "no"), and those of
weights (`control.rules.weights`). What an agent does not tell is not held against it: it refuses itself what
it cannot run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from stoker.control.rules.placement import NodeRoom
from stoker.control.rules.weights import standing
from stoker.wire.messages import Device, LockedWeights


def fitting(image: str, rooms: Sequence[NodeRoom]) -> list[NodeRoom]:
    """The rooms, each with those of its devices marked that can take no container of this image; without an
    image none is."""
    return [replace(room, unfit=_unfit_of(room)) if image else room for room in rooms]


def reachable(rooms: Sequence[NodeRoom], reached: Collection[str]) -> list[NodeRoom]:
    """The rooms for http workers, of which those are closed whose nodes are not `reached`."""
    why = "cannot be reached for requests: its agent is too old, or no way to it is allowed (gateway_ways)"
    return [room if room.closed or room.node in reached else replace(room, closed=why) for room in rooms]


def with_weights(weights: Sequence[LockedWeights], rooms: Sequence[NodeRoom]) -> list[NodeRoom]:
    """The rooms, each with how its node stands to these weights; one that cannot hold them is closed."""
    found = []
    for room in rooms:
        stands = standing(room.facts, weights)
        found.append(replace(room, weights=stands, closed=room.closed or stands.bars))
    return found


def _unfit_of(room: NodeRoom) -> dict[str, str]:
    found = {device.uuid: unfit(device, room.facts) for device in room.devices}
    return {uuid: why for uuid, why in found.items() if why is not None}


def unfit(device: Device, facts: Mapping[str, str]) -> str | None:
    """Why no container can have this device, as the end of a sentence about its node; None when it can."""
    engine = facts.get("containers", "")
    if engine.startswith("none"):
        return f"has no container engine: {engine.partition(': ')[2]}"
    if device.kind != "cpu" and facts.get("containers_cdi") == "no":
        return f"has {engine}, which brings no GPUs into containers (CDI)"
    return None
