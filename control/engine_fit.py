"""Which devices of which nodes can run an endpoint's container. Pure: what the nodes tell of themselves.

The facts are `containers` ("docker 28.0.1", or "none: why") and `containers_cdi` ("yes", "no"). What an agent
does not tell is not held against it: it refuses itself what it cannot run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from stoker.control.placement import Room
from stoker.wire.messages import Device


def fitting(
    image: str, rooms: Sequence[Room], facts: Mapping[str, Mapping[str, str]]
) -> tuple[list[Room], str]:
    """The rooms with the devices that can take a container of this image, and why others cannot; without an
    image, all of them."""
    if not image:
        return list(rooms), ""
    able, why = [], ""
    for room in rooms:
        told = facts.get(room.node, {})
        devices = tuple(device for device in room.devices if unfit(device, told) is None)
        if devices:
            able.append(replace(room, devices=devices))
        elif not why and room.devices:
            why = f"no capacity: node {room.node} {unfit(room.devices[0], told)}"
    return able, why


def unfit(device: Device, facts: Mapping[str, str]) -> str | None:
    """Why no container can have this device, as the end of a sentence about its node; None when it can."""
    engine = facts.get("containers", "")
    if engine.startswith("none"):
        return f"has no container engine: {engine.partition(': ')[2]}"
    if device.kind != "cpu" and facts.get("containers_cdi") == "no":
        return f"has {engine}, which brings no GPUs into containers (CDI)"
    return None
